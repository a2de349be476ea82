"""How good a classifier is on texts it has not seen: precision and recall, confusion, calibration, doubtful texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.models.text_classifier import softmax

__all__ = [
    "Doubtful",
    "Evaluation",
    "LabelFigures",
    "ReliabilityBin",
    "ThresholdFigures",
    "evaluate",
    "fit_temperature",
]

BINS: Final = 10
DOUBTFUL: Final = 20
"""How many of the least certain texts are shown."""

EXCERPT: Final = 200
"""How many characters of a text are shown."""

THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_MOST_LABELS: Final = 10
"""For how many labels thresholds are tried."""

_WIDEST: Final = 3.0
_STEPS: Final = 60


@dataclass(frozen=True)
class LabelFigures:
    """How well one label is found.

    Args:
        label: The label.
        rows: Texts that have it.
        predicted: Texts that were given it.
        precision: The share of those given it that have it; ``None`` if it was given to none.
        recall: The share of those that have it that were given it; ``None`` if none has it.
        f1: The harmonic mean of both; ``None`` if one is missing.
    """

    label: str
    rows: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class ReliabilityBin:
    """Texts whose likeliest label has a probability from ``low`` up to ``high``.

    Args:
        low, high: The bounds.
        rows: How many there are.
        confidence: The mean of their probabilities; ``None`` without texts.
        accuracy: The share that was right.
    """

    low: float
    high: float
    rows: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class ThresholdFigures:
    """What keeping the texts with at least some probability of a label does.

    Args:
        label: The label.
        min_score: The lowest probability that is kept.
        kept: The share of all texts that is kept.
        precision: The share of those kept that have the label; ``None`` if none is kept.
        recall: The share of those that have the label that is kept; ``None`` if none has it.
    """

    label: str
    min_score: float
    kept: float
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class Doubtful:
    """A text that the classifier is not sure of.

    Args:
        text: Its beginning.
        label: Its label.
        predicted: The likeliest label.
        score: The probability of that.
    """

    text: str
    label: str
    predicted: str
    score: float


@dataclass(frozen=True)
class Evaluation:
    """The figures of a classifier.

    Args:
        rows: Texts it was tested on.
        accuracy: The share that was given its label; ``None`` without texts.
        macro_f1: The mean of the F1 of the labels that have one.
        by_label: Figures of each label.
        confusion: For each label, in their order, how many texts were given each label.
        reliability: Texts by the probability of their likeliest label.
        calibration_error: The expected calibration error: the mean distance of probability and accuracy in these bins.
        thresholds: What thresholds would do, if there are not too many labels.
        doubtful: The texts that it is least sure of.
        unseen: Labels that the model does not have, with the number of their texts, which were left out.
    """

    rows: int
    accuracy: float | None
    macro_f1: float | None
    by_label: list[LabelFigures]
    confusion: list[list[int]]
    reliability: list[ReliabilityBin]
    calibration_error: float | None
    thresholds: list[ThresholdFigures]
    doubtful: list[Doubtful]
    unseen: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def evaluate(
    labels: Sequence[str],
    probabilities: NDArray[np.float64],
    truth: NDArray[np.int32],
    texts: pa.Array,
    unseen: dict[str, int] | None = None,
) -> Evaluation:
    """Compare predictions with labels.

    Args:
        labels: The labels of the classifier.
        probabilities: A row for each text, a column for each label.
        truth: The number of each text's label.
        texts: The texts.
        unseen: Labels of texts that were left out, because the classifier does not have them.

    >>> found = evaluate(["a", "b"], np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]), pa.array(["x", "y"]))
    >>> found.accuracy, found.confusion, found.by_label[0].precision, round(found.calibration_error, 3)
    (0.5, [[1, 0], [1, 0]], 0.5, 0.35)
    """
    count, width = len(truth), len(labels)
    guess = probabilities.argmax(axis=1) if count else np.zeros(0, np.int64)
    sure = probabilities.max(axis=1) if count else np.zeros(0)
    confusion = np.bincount(truth * width + guess, minlength=width * width).reshape(width, width)
    by_label = [_of_label(label, confusion, number) for number, label in enumerate(labels)]
    f1s = [found.f1 for found in by_label if found.f1 is not None]
    bins = _reliability(sure, guess == truth)
    error = sum(b.rows * abs((b.confidence or 0) - (b.accuracy or 0)) for b in bins) / count if count else None
    order = np.argsort(sure, kind="stable")[:DOUBTFUL]
    doubtful = [
        Doubtful(_excerpt(texts[i].as_py()), labels[truth[i]], labels[guess[i]], float(sure[i])) for i in order.tolist()
    ]
    return Evaluation(
        rows=count,
        accuracy=float((guess == truth).mean()) if count else None,
        macro_f1=sum(f1s) / len(f1s) if f1s else None,
        by_label=by_label,
        confusion=confusion.tolist(),
        reliability=bins,
        calibration_error=error,
        thresholds=_thresholds(labels, probabilities, truth) if count and width <= _MOST_LABELS else [],
        doubtful=doubtful,
        unseen=dict(unseen or {}),
    )


def fit_temperature(scores: NDArray[np.float64], truth: NDArray[np.int32]) -> float:
    """The number by which to divide scores so that the labels are as likely as possible (Guo et al., 2017).

    Args:
        scores: Logarithms of probabilities, up to a constant: a row for each text.
        truth: The number of each text's label.

    >>> scores = np.array([[4.0, 0.0]] * 4)  # always sure of the first label, and right in three cases of four
    >>> round(fit_temperature(scores, np.array([0, 0, 0, 1])), 2)
    3.64
    """
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        shares = softmax(scores / math.exp(log_temperature))[rows, truth]
        return float(-np.log(np.maximum(shares, 1e-300)).mean())

    low, high = -_WIDEST, _WIDEST
    ratio = (math.sqrt(5) - 1) / 2  # golden-section search: the loss has one minimum
    for _ in range(_STEPS):
        one, other = high - ratio * (high - low), low + ratio * (high - low)
        if loss(one) <= loss(other):
            high = other
        else:
            low = one
    return float(f"{math.exp((low + high) / 2):.6g}")


def _of_label(label: str, confusion: NDArray[np.int64], number: int) -> LabelFigures:
    rows, predicted = int(confusion[number].sum()), int(confusion[:, number].sum())
    right = int(confusion[number, number])
    precision = right / predicted if predicted else None
    recall = right / rows if rows else None
    f1 = 2 * right / (rows + predicted) if rows else None  # 0, and not unknown, for a label that is never predicted
    return LabelFigures(label, rows, predicted, precision, recall, f1)


def _reliability(sure: NDArray[np.float64], right: NDArray[np.bool_]) -> list[ReliabilityBin]:
    places = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    found = []
    for number in range(BINS):
        here = places == number
        rows = int(here.sum())
        means = (float(sure[here].mean()), float(right[here].mean())) if rows else (None, None)
        found.append(ReliabilityBin(number / BINS, (number + 1) / BINS, rows, *means))
    return found


def _thresholds(
    labels: Sequence[str], probabilities: NDArray[np.float64], truth: NDArray[np.int32]
) -> list[ThresholdFigures]:
    found = []
    for number, label in enumerate(labels):
        has = truth == number
        for threshold in THRESHOLDS:
            kept = probabilities[:, number] >= threshold
            both = int((kept & has).sum())
            precision = both / int(kept.sum()) if kept.any() else None
            recall = both / int(has.sum()) if has.any() else None
            found.append(ThresholdFigures(label, threshold, float(kept.mean()), precision, recall))
    return found


def _excerpt(text: str) -> str:
    short = " ".join(text[: 4 * EXCERPT].split())
    return short if len(short) <= EXCERPT else f"{short[:EXCERPT]}…"
