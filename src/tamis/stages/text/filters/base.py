"""Filters: a score for each document, and a decision that follows from the score."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.stages.text.forms import TextOperation

if TYPE_CHECKING:
    import polars as pl

__all__ = ["NOT_NEGATIVE", "SHARE", "DocumentFilter", "ScoreValue", "ThresholdFilter", "text_series"]

SHARE = (0.0, 1.0)
"""The range of a score that is a share of something."""

NOT_NEGATIVE = (0.0, math.inf)
"""The range of a score that is a count, or one count divided by another."""

ScoreValue: TypeAlias = float | int | bool | str
"""What a document's score may be."""


class DocumentFilter(TextOperation):
    """Scores documents and says which to keep.

    A filter of your own needs :meth:`score_document` and :meth:`keep_document`. It may have a column form beside
    them, :meth:`score_column` and :meth:`keep_scores`, which is used instead and must give the same results.

    A filter that works with a model may have the methods ``model_check_or_download()``, called once on each machine,
    ``load_model()`` and ``load_tokenizer()``, called once in each worker.

    >>> class Shouting(DocumentFilter):
    ...     def score_document(self, text: str) -> float:
    ...         return sum(c.isupper() for c in text) / max(len(text), 1)
    ...     def keep_document(self, score: float) -> bool:
    ...         return score < 0.5
    >>> Shouting().score_document("STOP it"), Shouting().vectorised
    (0.5714285714285714, False)
    """

    def score_document(self, text: str) -> ScoreValue:
        """The score of one document."""
        raise NotImplementedError(f"{type(self).__name__} has no score_document()")

    def keep_document(self, score: Any) -> bool:
        """Whether to keep a document with this score."""
        raise NotImplementedError(f"{type(self).__name__} has no keep_document()")

    def score_column(self, column: pa.ChunkedArray) -> pa.Array | NDArray[Any]:
        """The scores of a column of documents. A null counts as an empty document."""
        raise NotImplementedError(f"{type(self).__name__} has no score_column()")

    def keep_scores(self, scores: pa.Array | NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these scores to keep. A null is not kept."""
        raise NotImplementedError(f"{type(self).__name__} has no keep_scores()")

    def check_parameters(self) -> None:
        """Refuse parameters that cannot work, with a :class:`ValueError`. Called when a stage is made."""

    def _require(self, parameter: str, allowed: tuple[float, float]) -> None:
        """Refuse a parameter outside a range."""
        value, (lowest, highest) = getattr(self, parameter), allowed
        if not lowest <= value <= highest:
            words = f"at least {lowest:g}" if math.isinf(highest) else f"between {lowest:g} and {highest:g}"
            raise ValueError(f"{type(self).__name__}({parameter}={value}): must be {words}")

    def reason(self) -> str:
        """Why the filter drops a document, in a few words that are the same for each."""
        return f"rejected by {self.name}"

    @property
    def scores_columns(self) -> bool:
        """Whether :meth:`score_column` can be used."""
        return self._has_column_form("score_document", "score_column", DocumentFilter)

    @property
    def keeps_columns(self) -> bool:
        """Whether :meth:`keep_scores` can be used."""
        return self._has_column_form("keep_document", "keep_scores", DocumentFilter)

    @property
    def vectorised(self) -> bool:
        """Whether the filter has a column form throughout, and so runs outside Python's lock."""
        return self.scores_columns and self.keeps_columns


class ThresholdFilter(DocumentFilter):
    """A filter that keeps the scores between two bounds, which it includes.

    The bounds are its parameters whose names begin with ``min_`` and ``max_``, the first of each, unless it has
    a method :meth:`bounds` of its own.

    Attributes:
        score_range: The lowest and the highest score there can be. Bounds outside are refused.

    >>> class Length(ThresholdFilter):
    ...     name = "length"
    ...     def bounds(self):
    ...         return 3, None
    ...     def score_document(self, text):
    ...         return len(text)
    >>> Length().keep_document(3), Length().reason()
    (True, 'length < 3')
    """

    score_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    def bounds(self) -> tuple[float | None, float | None]:
        """The lowest and the highest score that are kept; ``None`` where there is no bound."""
        names = [_parameter(type(self), prefix) for prefix in ("min_", "max_")]  # type: ignore[arg-type]  # hashable
        if names == [None, None]:
            raise NotImplementedError(f"{type(self).__name__} has no bounds()")
        low, high = (None if name is None else getattr(self, name) for name in names)
        return low, high

    def check_parameters(self) -> None:
        low, high = self.bounds()
        fields: list[str] = [f.name for f in dataclasses.fields(self)] if dataclasses.is_dataclass(self) else []
        limits = [name for name in fields if name.startswith(("min_", "max_")) and getattr(self, name) in (low, high)]
        for name in limits:
            if getattr(self, name) is not None:
                self._require(name, self.score_range)
        if low is not None and high is not None and low > high:
            given = ", ".join(f"{name}={getattr(self, name)}" for name in limits)
            raise ValueError(f"{type(self).__name__}({given}): no score is at least {low} and at most {high}")

    def keep_document(self, score: Any) -> bool:
        low, high = self.bounds()
        return (low is None or bool(score >= low)) and (high is None or bool(score <= high))

    def keep_scores(self, scores: pa.Array | NDArray[Any]) -> NDArray[np.bool_]:
        values = numpy_array(scores)
        low, high = self.bounds()
        kept = np.ones(len(values), np.bool_)
        if low is not None:
            kept &= values >= low
        if high is not None:
            kept &= values <= high
        return kept

    def reason(self) -> str:
        low, high = self.bounds()
        if low is not None and high is not None:
            return f"{self.name} outside {low}..{high}"
        return f"{self.name} > {high}" if low is None else f"{self.name} < {low}"


@functools.cache
def _parameter(cls: type, prefix: str) -> str | None:
    """The first parameter of a class whose name begins so."""
    names = (field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()
    return next((name for name in names if name.startswith(prefix)), None)


def text_series(column: pa.ChunkedArray) -> pl.Series:
    """The texts of a column. A null is an empty text."""
    import polars as pl

    return pl.Series(pl.from_arrow(column)).fill_null("")
