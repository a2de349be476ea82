# A script in the style of NeMo Curator's image tutorial: read tars, embed, filter by two scores, write tars.
import argparse
import time

from nemo_curator.backends.xenna import XennaExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.file_partitioning import FilePartitioningStage
from nemo_curator.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from nemo_curator.stages.image.filters.aesthetic_filter import ImageAestheticFilterStage
from nemo_curator.stages.image.filters.nsfw_filter import ImageNSFWFilterStage
from nemo_curator.stages.image.io.image_reader import ImageReaderStage
from nemo_curator.stages.image.io.image_writer import ImageWriterStage


def build(args: argparse.Namespace) -> Pipeline:
    pipeline = Pipeline(name="image_curation", description="Embed, score and filter images of tars")
    pipeline.add_stage(
        FilePartitioningStage(
            file_paths=args.input_dir, files_per_partition=args.files_per_partition, file_extensions=[".tar"]
        )
    )
    pipeline.add_stage(
        ImageReaderStage(dali_batch_size=args.batch_size, verbose=args.verbose, num_threads=4, num_gpus_per_worker=0.25)
    )
    scoring = {"num_gpus_per_worker": 0.25, "model_inference_batch_size": 16, "verbose": args.verbose}
    pipeline.add_stage(ImageEmbeddingStage(model_dir=args.model_dir, remove_image_data=False, **scoring))
    pipeline.add_stage(
        ImageAestheticFilterStage(model_dir=args.model_dir, score_threshold=args.aesthetic_threshold, **scoring)
    )
    pipeline.add_stage(ImageNSFWFilterStage(model_dir=args.model_dir, score_threshold=args.nsfw_threshold, **scoring))
    pipeline.add_stage(
        ImageWriterStage(
            output_dir=args.output_dir, images_per_tar=args.images_per_tar, remove_image_data=True, verbose=args.verbose
        )
    )
    return pipeline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input-dir", required=True)
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--model-dir", required=True)
    parser.add_argument("--files-per-partition", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--aesthetic-threshold", type=float, default=0.5)
    parser.add_argument("--nsfw-threshold", type=float, default=0.5)
    parser.add_argument("--images-per-tar", type=int, default=10)
    parser.add_argument("--on-xenna", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    began = time.time()
    pipeline = build(args)
    print(pipeline.describe())
    results = pipeline.run(XennaExecutor() if args.on_xenna else None)
    print(f"{len(list(results))} tasks in {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
