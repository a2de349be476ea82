"""How educational texts are: the family of FineWeb-Edu, whose models have one output, a score from 0 to 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from tamis.stages.base import ProcessingStage
from tamis.stages.text.classifiers.base import OUTPUTS, ClassifierStage, labels_at, outputs_of
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.models.classification import Scorer

__all__ = [
    "FineWebEduClassifier",
    "FineWebMixtralEduClassifier",
    "FineWebNemotronEduClassifier",
    "score_columns",
    "scorer_with_one_output",
]

_LABELS: Final = ("low_quality", "high_quality")
_LEAST_HIGH: Final = 2.5
_HIGHEST: Final = 5.0


@dataclass(kw_only=True, repr=False)
class _FineWebBaseClassifier(ClassifierStage):
    """Score how educational texts are, from 0 to 5.

    Args:
        label_field: The column that gets ``"high_quality"`` where the model's output is 2.5 or more, else
            ``"low_quality"``.
        float_score_field: The column that gets the output, limited to 0 to 5.
        int_score_field: The column that gets that score rounded, halves to the even number.
        filter_by: Labels. Rows with another one are dropped, with their score.
    """

    label_field: str = "preds"
    float_score_field: str = "float_score"
    int_score_field: str = "int_score"
    filter_by: list[str] | None = None
    max_seq_length: int | None = 512

    labels: ClassVar[tuple[str, ...]] = _LABELS

    def adds_columns(self) -> list[str]:
        return [self.float_score_field, self.int_score_field, self.label_field]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        self.check_labels(self.filter_by, _LABELS)
        return super().decompose()

    def make_scorer(self, device: str) -> Scorer:
        return scorer_with_one_output(self, device)

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        present, outputs = outputs_of(columns[OUTPUTS])
        is_high = outputs[:, 0] >= _LEAST_HIGH
        labels = labels_at(_LABELS, is_high.astype(np.int64), present)
        scores = score_columns(columns[OUTPUTS], self.float_score_field, self.int_score_field)
        scored = self.without_tokens(batch).with_columns({**scores, self.label_field: labels})
        if self.filter_by is None:
            return scored
        kept = np.zeros(len(present), np.bool_)
        kept[present] = np.isin(np.where(is_high, *reversed(_LABELS)), self.filter_by)
        reason = f"{self.label_field} is not {' or '.join(self.filter_by)}"
        return scored.keep(kept, reason, scores[self.float_score_field])


@dataclass(kw_only=True, repr=False)
class FineWebEduClassifier(_FineWebBaseClassifier):
    """Score how educational English texts are, from 0 to 5, as FineWeb-Edu was chosen: it kept 3 and more.

    The other arguments are those of every :class:`~tamis.stages.text.classifiers.base.ClassifierStage`.

    Args:
        label_field: The column that gets ``"high_quality"`` where the model's output is 2.5 or more, else
            ``"low_quality"``.
        float_score_field: The column that gets the output, limited to 0 to 5.
        int_score_field: The column that gets that score rounded, halves to the even number.
        filter_by: Labels. Rows with another one are dropped, with their score.

    >>> FineWebEduClassifier().outputs()[1]
    ['fineweb-edu-score-float', 'fineweb-edu-score-int', 'fineweb-edu-score-label']
    """

    model_identifier: str = "HuggingFaceFW/fineweb-edu-classifier"
    label_field: str = "fineweb-edu-score-label"
    float_score_field: str = "fineweb-edu-score-float"
    int_score_field: str = "fineweb-edu-score-int"


@dataclass(kw_only=True, repr=False)
class FineWebMixtralEduClassifier(_FineWebBaseClassifier):
    """Score how educational English texts are, from 0 to 5, with the model that learned from Mixtral 8x22B.

    Arguments are those of :class:`FineWebEduClassifier`.

    >>> FineWebMixtralEduClassifier().outputs()[1]
    ['fineweb-mixtral-edu-score-float', 'fineweb-mixtral-edu-score-int', 'fineweb-mixtral-edu-score-label']
    """

    model_identifier: str = "nvidia/nemocurator-fineweb-mixtral-edu-classifier"
    label_field: str = "fineweb-mixtral-edu-score-label"
    float_score_field: str = "fineweb-mixtral-edu-score-float"
    int_score_field: str = "fineweb-mixtral-edu-score-int"


@dataclass(kw_only=True, repr=False)
class FineWebNemotronEduClassifier(_FineWebBaseClassifier):
    """Score how educational English texts are, from 0 to 5, with the model that learned from Nemotron-4 340B.

    Arguments are those of :class:`FineWebEduClassifier`.

    >>> FineWebNemotronEduClassifier().outputs()[1]
    ['fineweb-nemotron-edu-score-float', 'fineweb-nemotron-edu-score-int', 'fineweb-nemotron-edu-score-label']
    """

    model_identifier: str = "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier"
    label_field: str = "fineweb-nemotron-edu-score-label"
    float_score_field: str = "fineweb-nemotron-edu-score-float"
    int_score_field: str = "fineweb-nemotron-edu-score-int"


def scorer_with_one_output(stage: ClassifierStage, device: str) -> Scorer:
    """The model of a stage, which must have one output."""
    from tamis.models.classification import load_sequence_classifier

    return load_sequence_classifier(stage.source, device, stage.number_type, outputs=1, compile=stage.compile)


def score_columns(outputs: pa.Array, float_field: str, int_field: str) -> dict[str, pa.Array]:
    """A score from 0 to 5 for each row, and the same as a whole number; null for rows without outputs.

    >>> outputs = pa.array([[-1.0], [2.5], [3.5]], pa.list_(pa.float32(), 1))
    >>> score_columns(outputs, "score", "whole")["whole"].to_pylist()
    [0, 2, 4]
    """
    present, found = outputs_of(outputs)
    scores = np.zeros(len(present), np.float32)
    scores[present] = found[:, 0].clip(0.0, _HIGHEST)
    return {
        float_field: pa.array(scores, mask=~present),
        int_field: pa.array(np.rint(scores).astype(np.int64), mask=~present),
    }
