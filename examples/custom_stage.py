"""Two stages of one's own: a class with parameters, and a function."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tamis import DocumentBatch, Pipeline, ProcessingStage, processing_stage
from tamis.stages.emit import Drop


@dataclass
class CountSentences(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Count the sentences of each text, roughly: the marks that end one.

    Args:
        text_field: The column that is read.
        marks: The characters that end a sentence.
    """

    text_field: str = "text"
    marks: str = ".!?"

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["sentences"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        texts = task.data[self.text_field].to_pylist()
        counts = [sum(text.count(mark) for mark in self.marks) for text in texts]
        return task.with_table(task.data.append_column("sentences", pa.array(counts)))


@processing_stage(name="no_fragments")
def no_fragments(task: DocumentBatch) -> Iterator[DocumentBatch | Drop]:
    """Leave out what has no sentence, and say why."""
    whole = np.asarray(task.data["sentences"]) > 0
    yield Drop(task, np.flatnonzero(~whole), "no sentence")
    yield task.with_table(task.data.filter(pa.array(whole)))


batch = DocumentBatch([{"text": "It rains. It pours."}, {"text": "Menu | Home | About"}])
result = Pipeline(name="sentences", stages=[CountSentences(), no_fragments]).run(initial_tasks=[batch])

for task in result:
    print(*task.data.to_pylist(), sep="\n")
print(result.stage("no_fragments").dropped)
