# From NeMo Curator's guide "Migration Guide: Dask to Ray", section "New Approach: Ray-Based Modular Pipelines".
# Filled in: the three stages, which have no code there, and the executor.
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages import base
from nemo_curator.tasks import DocumentBatch, EmptyTask, FileGroupTask


class ReaderStage(base.ProcessingStage[EmptyTask, DocumentBatch]):
    def process(self, task: EmptyTask) -> DocumentBatch:
        return DocumentBatch(data=[{"text": "some words"}], dataset_name="filled_in")


class ProcessingStage(base.ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class WriterStage(base.ProcessingStage[DocumentBatch, FileGroupTask]):
    is_sink_stage = True

    def process(self, task: DocumentBatch) -> FileGroupTask:
        task.to_pandas().to_json("output.jsonl", orient="records", lines=True)
        return FileGroupTask(data=["output.jsonl"], dataset_name=task.dataset_name)


executor = None

# New workflow: Modular, Ray-based pipeline
pipeline = Pipeline(name="my_pipeline")
pipeline.add_stage(ReaderStage())
pipeline.add_stage(ProcessingStage())
pipeline.add_stage(WriterStage())
results = pipeline.run(executor)
