"""Curate images: read tars, embed, drop poor and doubtful images, keep one of those that look the same, write tars.

Without arguments it curates the sample images that come with tamis, on the CPUs of this machine and without a model:
a descriptor of colours and edges takes the place of an embedding, and measures of pixels the place of learned scores.

    python examples/images.py
    python examples/images.py --input shards/ --model-dir models/ --executor streaming

With ``--model-dir``, the folder of a CLIP model, images are embedded by it. If the weights of the aesthetic predictor
and of the NSFW detector are below that folder, images are scored and filtered by them as well.
"""

import argparse
from pathlib import Path

from tamis import LocalExecutor, Pipeline
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.quickstart import sample_images
from tamis.runs.report import summary_table, write_report
from tamis.stages.deduplication.semantic import SemanticDeduplicationStage
from tamis.stages.image.embedders import ImageDescriptorStage, ImageEmbeddingStage
from tamis.stages.image.filters import (
    AspectRatioFilter,
    BrightnessFilter,
    ImageAestheticFilterStage,
    ImageNSFWFilterStage,
    ImageSizeFilter,
    SharpnessFilter,
)
from tamis.stages.image.io import ImageReaderStage, ImageWriterStage
from tamis.stages.text.columns import DropColumns
from tamis.stages.text.filters import ScoreFilter

EXECUTORS = {
    "local": LocalExecutor,
    "streaming": StreamingExecutor,
    "ray-actor-pool": RayActorPoolExecutor,
    "ray-data": RayDataExecutor,
    "xenna": XennaExecutor,
}
AESTHETIC, NSFW = "ttj/sac-logos-ava1-l14-linearMSE", "laion/clip-autokeras-binary-nsfw"


def image_pipeline(
    shards: str | list[str],
    output: str,
    model_dir: str | None = None,
    eps: float = 0.05,
    aesthetic_threshold: float = 4.5,
    nsfw_threshold: float = 0.5,
) -> Pipeline:
    """The pipeline: read, measure, embed, score, deduplicate, write."""
    stages = [
        ImageReaderStage(task_batch_size=32, file_paths=shards, on_error="quarantine"),
        ScoreFilter([ImageSizeFilter(min_side=48), AspectRatioFilter(), BrightnessFilter(), SharpnessFilter()]).with_(
            name="measures"
        ),
    ]
    if model_dir is None:
        stages.append(ImageDescriptorStage())
    else:
        stages.append(ImageEmbeddingStage(model_dir=model_dir, num_gpus_per_worker=0.25))
        if Path(model_dir, AESTHETIC).exists():
            stages.append(ImageAestheticFilterStage(model_dir, score_threshold=aesthetic_threshold))
        if Path(model_dir, NSFW).exists():
            stages.append(ImageNSFWFilterStage(model_dir, score_threshold=nsfw_threshold))
    stages += [
        SemanticDeduplicationStage(id_field="image_id", embedding_field="image_embedding", eps=eps, keep="first"),
        DropColumns(["image_embedding"]),
        ImageWriterStage(output, images_per_tar=1000),
    ]
    return Pipeline("images", "Curates images with embeddings and scores.", stages)


def main() -> None:
    """Curate, and show what was dropped and why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", default=sample_images(), help="tars, or folders of tars")
    parser.add_argument("--output", default="curated-images", help="folder for the tars of what is kept")
    parser.add_argument("--model-dir", help="folder of a CLIP model")
    parser.add_argument("--executor", choices=EXECUTORS, default="local")
    parser.add_argument("--eps", type=float, default=0.05, help="how far from 1 the cosine of duplicates may be")
    parser.add_argument("--aesthetic-threshold", type=float, default=4.5)
    parser.add_argument("--nsfw-threshold", type=float, default=0.5)
    args = parser.parse_args()

    thresholds = (args.aesthetic_threshold, args.nsfw_threshold)
    pipeline = image_pipeline(args.input, args.output, args.model_dir, args.eps, *thresholds)
    result = pipeline.run(EXECUTORS[args.executor]())
    print(summary_table(result.summary))
    print("Pictures of what was kept and dropped:", write_report(result.run_dir))


if __name__ == "__main__":
    main()
