# A script in the style of NeMo Curator's image deduplication tutorial: embeddings to Parquet, a workflow that finds
# duplicates among them, and a second pass over the tars that leaves these out.
import argparse
import os

from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.deduplication.semantic import SemanticDeduplicationWorkflow
from nemo_curator.stages.file_partitioning import FilePartitioningStage
from nemo_curator.stages.image.deduplication.removal import ImageDuplicatesRemovalStage
from nemo_curator.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from nemo_curator.stages.image.io.convert import ConvertImageBatchToDocumentBatchStage
from nemo_curator.stages.image.io.image_reader import ImageReaderStage
from nemo_curator.stages.image.io.image_writer import ImageWriterStage
from nemo_curator.stages.text.io.writer.parquet import ParquetWriter


def reading(args: argparse.Namespace) -> list:
    return [
        FilePartitioningStage(file_paths=args.input_dir, files_per_partition=1, file_extensions=[".tar"]),
        ImageReaderStage(dali_batch_size=25, verbose=False, num_threads=4, num_gpus_per_worker=0.25),
    ]


def embed(args: argparse.Namespace) -> None:
    pipeline = Pipeline(name="image_embedding", description="Write the embedding of each image to Parquet")
    for stage in reading(args):
        pipeline.add_stage(stage)
    pipeline.add_stage(
        ImageEmbeddingStage(
            model_dir=args.model_dir, num_gpus_per_worker=0.25, model_inference_batch_size=16, remove_image_data=True
        )
    )
    pipeline.add_stage(ConvertImageBatchToDocumentBatchStage(fields=["image_id", "embedding"]))
    pipeline.add_stage(ParquetWriter(path=args.embeddings_dir))
    pipeline.run()


def find(args: argparse.Namespace) -> None:
    workflow = SemanticDeduplicationWorkflow(
        input_path=args.embeddings_dir,
        output_path=args.removal_dir,
        id_field="image_id",
        embedding_field="embedding",
        n_clusters=4,
        eps=args.eps,
        verbose=False,
    )
    workflow.run()


def remove(args: argparse.Namespace) -> None:
    pipeline = Pipeline(name="image_removal", description="Leave duplicates out of the tars")
    for stage in reading(args):
        pipeline.add_stage(stage)
    pipeline.add_stage(
        ImageDuplicatesRemovalStage(
            removal_parquets_dir=os.path.join(args.removal_dir, "duplicates"), duplicate_id_field="id", verbose=False
        )
    )
    pipeline.add_stage(ImageWriterStage(output_dir=args.output_dir, images_per_tar=100, verbose=False))
    pipeline.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--input-dir", "--embeddings-dir", "--removal-dir", "--output-dir", "--model-dir"):
        parser.add_argument(name, required=True)
    parser.add_argument("--eps", type=float, default=0.01)
    arguments = parser.parse_args()
    embed(arguments)
    find(arguments)
    remove(arguments)
