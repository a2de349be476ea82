"""Stages say what they need; the plan shows what follows from it. Nothing is run, so no GPU is needed here."""

from tamis import DocumentBatch, Pipeline, ProcessingStage, Resources, processing_stage


class TokenizerStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Works on a CPU, which is the default."""

    name = "tokenizer"
    resources = Resources(cpus=1.0)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class ModelStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Works on a GPU, with several batches at once."""

    name = "model"
    resources = Resources(gpus=1)
    batch_size = 8

    def __init__(self, model_path: str) -> None:
        self.model_path = model_path

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        return tasks


@processing_stage(name="custom_filter", resources=Resources(cpus=1))
def custom_filter(task: DocumentBatch) -> DocumentBatch:
    return task


model = ModelStage(model_path="path/to/model")
needs = [
    Resources(gpus=1),  # a whole GPU for each worker
    Resources(gpus=0.25),  # four workers share a GPU
    Resources(gpu_memory_gb=10),  # as many workers on a GPU as it has 10 GB for
]
for need in needs:
    stages = [TokenizerStage(), custom_filter, model.with_(resources=need)]
    print(Pipeline(name="model", stages=stages).plan(initial=DocumentBatch), end="\n\n")
