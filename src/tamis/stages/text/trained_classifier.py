"""Stages that use a classifier that ``tamis train-classifier`` has trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, text_array
from tamis.errors import PlanError
from tamis.kernels.unit_vectors import unit_rows
from tamis.models.text_classifier import TextClassifier, load_text_classifier
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.column_values import TextStage, read_column
from tamis.stages.text.filters.base import SHARE, ThresholdFilter
from tamis.stages.text.forms import well_formed
from tamis.stages.vectors import vectors_of
from tamis.tasks import DocumentBatch

__all__ = ["TrainedClassifier", "TrainedClassifierFilter"]

_NO_TEXT = "no text to classify"


@dataclass(repr=False)
class TrainedClassifier(TextStage):
    """Add the likeliest label of each document, and how likely it is; keep only documents with some labels, if asked.

    A document without a single n-gram (null, or nothing but white space) gets no label and no probability.

    Args:
        model: The folder that ``tamis train-classifier`` wrote.
        filter_by: Labels whose documents are kept; all documents when not given.
        text_field: The column with the text.
        embedding_field: Instead, the column with the vectors, for a model that was trained on embeddings. A document
            without a vector gets no label.
        label_field: The column for the label.
        score_field: The column for the probability of that label; none when ``None``.
        probability_fields: Columns for the probabilities of single labels: ``{"good": "good_score"}``.
        min_score: For single labels, how likely the label must be, 0 to 1: a document whose likeliest label is less
            likely than that is dropped. Needs no ``filter_by``.

    >>> TrainedClassifier("model", filter_by=["good"], min_score={"good": 0.9}).outputs()[1]
    ['label', 'label_score']
    """

    model: str
    filter_by: list[str] | None = None
    text_field: str = "text"
    label_field: str = "label"
    score_field: str | None = "label_score"
    probability_fields: dict[str, str] = field(default_factory=dict)
    min_score: dict[str, float] = field(default_factory=dict)
    embedding_field: str | None = None

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.model:
            raise PlanError("TrainedClassifier: give model, the folder that tamis train-classifier wrote")
        if isinstance(self.filter_by, str):
            raise TypeError(f"TrainedClassifier(filter_by={self.filter_by!r}): give a list, [{self.filter_by!r}]")
        if self.filter_by is not None and not self.filter_by:
            raise PlanError("TrainedClassifier(filter_by=[]): this keeps nothing; name labels, or leave it out")
        for label, threshold in self.min_score.items():
            if not 0 <= threshold <= 1:
                raise PlanError(f"TrainedClassifier(min_score={{{label!r}: {threshold}}}): must be between 0 and 1")
            if self.filter_by is not None and label not in self.filter_by:
                raise PlanError(f"TrainedClassifier: min_score has {label!r}, whose documents filter_by drops")
        written = self.outputs()[1]
        if len(set(written)) < len(written) or self._read in written:
            raise PlanError(f"TrainedClassifier: columns get in each other's way: {', '.join([self._read, *written])}")

    @property
    def _read(self) -> str:
        """The column that the model looks at."""
        return self.text_field if self.embedding_field is None else self.embedding_field

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self._read]

    def text_columns(self) -> list[str]:
        return [self.text_field] if self.embedding_field is None else []

    def outputs(self) -> tuple[list[str], list[str]]:
        fields = [self.label_field, *([] if self.score_field is None else [self.score_field])]
        return ["data"], [*fields, *self.probability_fields.values()]

    def adds_columns(self) -> list[str]:
        return self.outputs()[1]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._model()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        model = self._model()
        for label in (*(self.filter_by or ()), *self.min_score, *self.probability_fields):
            model.number_of(label, self.name)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        model = self._model()
        shares, is_empty = self._shares(task, model)
        best = shares.argmax(axis=1) if len(shares) else np.zeros(0, np.int64)
        sure = shares[np.arange(len(best)), best]
        labels = text_array(model.labels).take(arrow_array(best, missing=is_empty))
        found: dict[str, pa.Array] = {self.label_field: labels}
        if self.score_field is not None:
            found[self.score_field] = arrow_array(sure, missing=is_empty)
        for label, name in self.probability_fields.items():
            found[name] = arrow_array(shares[:, model.number_of(label, self.name)].copy(), missing=is_empty)
        made = task.with_columns(found)
        if self.filter_by is None and not self.min_score:
            return made
        return self._kept(made, model, best, sure, is_empty)

    def _shares(self, task: DocumentBatch, model: TextClassifier) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The probabilities of the labels of each document, and which have nothing to be classified by."""
        if self.embedding_field is None:
            texts = self.texts(task)
            return model.probabilities(texts), _are_empty(texts)
        column = read_column(task.columns([self.embedding_field]), self.embedding_field, self.name)
        vectors, missing = vectors_of(column, self.embedding_field)
        missing = missing | ~unit_rows(vectors)[1]
        if missing.all():
            return np.zeros((len(missing), len(model.labels))), missing
        return model.probabilities_of_vectors(vectors, self.name), missing

    def _kept(
        self,
        batch: DocumentBatch,
        model: TextClassifier,
        best: NDArray[np.int64],
        sure: NDArray[np.float64],
        is_empty: NDArray[np.bool_],
    ) -> DocumentBatch:
        """The documents with the labels that are wanted, and likely enough."""
        wanted = set(model.labels if self.filter_by is None else self.filter_by)
        is_wanted = np.array([label in wanted for label in model.labels], np.bool_)
        least = np.array([self.min_score.get(label, 0.0) for label in model.labels])
        nothing = _NO_TEXT if self.embedding_field is None else "no vector to classify"
        made = batch.keep(~is_empty, nothing) if is_empty.any() else batch
        best, sure = best[~is_empty], sure[~is_empty]
        if self.filter_by is not None:
            kept = is_wanted[best]
            made = made.keep(kept, f"{self.label_field} is none of {', '.join(self.filter_by)}", sure)
            best, sure = best[kept], sure[kept]
        for label, threshold in self.min_score.items():
            number = model.number_of(label, self.name)
            kept = (best != number) | (sure >= least[number])
            if not kept.all():
                made = made.keep(kept, f"{label} < {threshold:g}", sure)
                best, sure = best[kept], sure[kept]
        return made

    def _model(self) -> TextClassifier:
        return load_text_classifier(self.model, self.name)


@dataclass
class TrainedClassifierFilter(ThresholdFilter):
    """Keep documents for which a trained classifier finds a label likely enough.

    Score: the probability of the label, 0 to 1; 0 for a document without a single n-gram. In a
    :class:`~tamis.stages.text.filters.ScoreFilter`, thresholds can be changed after a run (``tamis rethreshold``).

    Args:
        model: The folder that ``tamis train-classifier`` wrote.
        label: The label.
        min_score: The lowest probability that is kept.
        max_score: The highest one; no limit when not given.

    >>> TrainedClassifierFilter("model", "good", min_score=0.8).keep_document(0.9)
    True
    """

    model: str
    label: str
    min_score: float | None = 0.5
    max_score: float | None = None
    name = "trained_classifier"
    score_range = SHARE

    def __post_init__(self) -> None:
        if not self.model or not self.label:
            raise ValueError("TrainedClassifierFilter: give model, a model's folder, and one of its labels")

    def model_check_or_download(self) -> None:
        """Refuse a folder that holds no such model on this machine."""
        load_text_classifier(self.model, type(self).__name__).number_of(self.label, type(self).__name__)

    def load_model(self) -> None:
        """Load the model; once in each process."""
        self.model_check_or_download()

    def score_document(self, text: str) -> float:
        return float(self.score_column(pa.chunked_array([[well_formed(text)]], pa.string()))[0])

    def score_column(self, column: pa.ChunkedArray) -> NDArray[np.float64]:
        model = load_text_classifier(self.model, type(self).__name__)
        number = model.number_of(self.label, type(self).__name__)
        shares = model.probabilities(column)[:, number]
        return np.where(_are_empty(column), 0.0, shares)

    def reason(self) -> str:
        return f"{self.label}: {super().reason()}"


def _are_empty(texts: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Which texts have nothing but ASCII white space."""
    blank = pc.equal(pc.ascii_trim_whitespace(pc.fill_null(texts, "")), "")
    return np.asarray(numpy_array(blank), np.bool_)
