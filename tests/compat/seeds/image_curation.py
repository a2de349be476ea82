# From NeMo Curator's guide "Migration Guide: Dask to Ray", section "Migrating Image Curation Workflows".
# Filled in: the imports; FilePartitioningStage, which lists the tars; values for what the guide has from the command
# line; the aesthetic filter in the pipeline; and `executor = None` for `executor = XennaExecutor()`.
from types import SimpleNamespace

from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.deduplication.semantic import SemanticDeduplicationStage
from nemo_curator.stages.file_partitioning import FilePartitioningStage
from nemo_curator.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from nemo_curator.stages.image.filters.aesthetic_filter import ImageAestheticFilterStage
from nemo_curator.stages.image.io.image_reader import ImageReaderStage

args = SimpleNamespace(
    task_batch_size=100,
    model_dir="models",
    embedding_gpus_per_worker=0.25,
    embedding_batch_size=32,
    aesthetic_gpus_per_worker=0.25,
    aesthetic_batch_size=32,
    aesthetic_threshold=-100.0,
    verbose=False,
)

# New: Read images from webdataset tar files
read_stage = ImageReaderStage(
    task_batch_size=args.task_batch_size,
    num_threads=16,
    num_gpus_per_worker=0.25,
)

# New: Generate CLIP embeddings for images
img_embedding_stage = ImageEmbeddingStage(
    model_dir=args.model_dir,
    num_gpus_per_worker=args.embedding_gpus_per_worker,
    model_inference_batch_size=args.embedding_batch_size,
    remove_image_data=False,
    verbose=args.verbose,
)

# New: Generate aesthetic quality scores and filter
aesthetic_filter_stage = ImageAestheticFilterStage(
    model_dir=args.model_dir,
    num_gpus_per_worker=args.aesthetic_gpus_per_worker,
    model_inference_batch_size=args.aesthetic_batch_size,
    score_threshold=args.aesthetic_threshold,
    verbose=args.verbose,
)

# New: Semantic Deduplication
semantic_dedup_stage = SemanticDeduplicationStage(
    id_field="image_id",
    embedding_field="image_embedding",
    n_clusters=100,
    eps=0.01,
)

# New: Define pipeline
pipeline = Pipeline(
    name="image_curation",
    description="Curate images with embeddings and quality scoring",
    stages=[
        FilePartitioningStage(file_paths="shards", files_per_partition=1, file_extensions=[".tar"]),
        read_stage,
        img_embedding_stage,
        aesthetic_filter_stage,
        semantic_dedup_stage,
    ],
)

# Create executor
executor = None

# Execute pipeline
results = pipeline.run(executor)
