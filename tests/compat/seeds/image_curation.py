# From NeMo Curator's guide "Migration Guide: Dask to Ray", section "Migrating Image Curation Workflows".
# Filled in: the imports, and values for what the guide has from the command line.
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.image.embedders.clip_embedder import ImageEmbeddingStage
from nemo_curator.stages.image.io.image_reader import ImageReaderStage

# New: Read images from webdataset tar files
read_stage = ImageReaderStage(
    task_batch_size=100,
    num_threads=16,
    num_gpus_per_worker=0.25,
)

# New: Generate CLIP embeddings for images
img_embedding_stage = ImageEmbeddingStage(
    model_dir="models",
    num_gpus_per_worker=0.25,
    model_inference_batch_size=32,
    remove_image_data=False,
    verbose=False,
)

# New: Define pipeline
pipeline = Pipeline(
    name="image_curation",
    description="Curate images with embeddings and quality scoring",
    stages=[
        read_stage,
        img_embedding_stage,
    ],
)
