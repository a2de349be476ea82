# From NeMo Curator's guide "Pipeline Execution Backends", section "Minimal End-to-End example".
# Filled in: the two stages that are commented out there.
from nemo_curator.backends.xenna import XennaExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.function_definitions import processing_stage
from nemo_curator.tasks import DocumentBatch, EmptyTask


@processing_stage(name="stage1")
def stage1(task: EmptyTask) -> list[DocumentBatch]:
    return [DocumentBatch(data=[{"text": text}], dataset_name="filled_in") for text in ("one", "two")]


@processing_stage(name="stage2")
def stage2(task: DocumentBatch) -> DocumentBatch:
    return task


# Build your pipeline
pipeline = Pipeline(name="curator_pipeline")
pipeline.add_stage(stage1)
pipeline.add_stage(stage2)

# Run with Xenna (recommended)
executor = XennaExecutor(config={"execution_mode": "streaming"})
results = pipeline.run(executor)

print(f"Completed with {len(results) if results else 0} output tasks")  # noqa: T201 - the guide's own line
