# From NeMo Curator's guide "Pipeline Execution Backends", section "RayDataExecutor".
# Filled in: the pipeline, which the guide has from its section before.
from nemo_curator.backends.experimental.ray_data import RayDataExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.function_definitions import processing_stage
from nemo_curator.tasks import DocumentBatch, EmptyTask


@processing_stage(name="one_batch")
def one_batch(task: EmptyTask) -> DocumentBatch:
    return DocumentBatch(data=[{"text": "some words"}], dataset_name="filled_in")


pipeline = Pipeline(name="example_pipeline", stages=[one_batch])

executor = RayDataExecutor()
results = pipeline.run(executor)
