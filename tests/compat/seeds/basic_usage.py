# From NeMo Curator's guide "Pipeline Execution Backends", section "Basic Usage Pattern".
# Filled in: a stage and its input for `add_stage(...)`, and an executor ("choose an executor below").
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.function_definitions import processing_stage
from nemo_curator.tasks import DocumentBatch, EmptyTask


@processing_stage(name="one_batch")
def one_batch(task: EmptyTask) -> DocumentBatch:
    return DocumentBatch(data=[{"text": "some words"}], dataset_name="filled_in")


executor = None

pipeline = Pipeline(name="example_pipeline", description="Curator pipeline")
pipeline.add_stage(one_batch)

# Choose an executor below and run
results = pipeline.run(executor)
