# From NeMo Curator's guide "Streaming vs. Batch Processing", section "Configuring Batch Size".
# Filled in: WordCountStage, which the guide takes from elsewhere, and a run of it.
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.resources import Resources
from nemo_curator.tasks import DocumentBatch


class WordCountStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    name: str = "word_count"
    resources: Resources = Resources(cpus=1.0)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return self.process_batch([task])[0]

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        counted = []
        for task in tasks:
            frame = task.to_pandas()
            frame["words"] = frame["text"].str.split().str.len()
            frame["at_once"] = len(tasks)
            counted.append(DocumentBatch(data=frame, dataset_name=task.dataset_name))
        return counted


# Configure batch size on a stage
word_count_stage = WordCountStage().with_(batch_size=128)

tasks = [DocumentBatch(data=[{"text": "a word " * n}], dataset_name="filled_in") for n in range(1, 4)]
results = Pipeline(name="word_count", stages=[word_count_stage]).run(initial_tasks=tasks)
