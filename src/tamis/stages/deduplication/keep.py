"""Which document of a group of duplicates stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import ColumnError, PlanError, did_you_mean
from tamis.stages.column_values import holds_order, read_column
from tamis.tasks import TableTask

__all__ = ["LAST", "Keep"]

LAST: Final = np.uint64(2**64 - 1)
"""The rank of a row without a value: any other row of its group stays instead."""

_LONGEST: Final = 2**63
_SIGN: Final = np.uint64(2**63)
_RULES: Final = ("first", "longest", "highest:COLUMN", "lowest:COLUMN")


@dataclass(frozen=True)
class Keep:
    """The rule that says which document of a group of duplicates stays. Ties go to the first one.

    Args:
        rule: ``"first"`` by name or in the order of the input, ``"longest"`` text in bytes of UTF-8, or the
            ``"highest"`` or ``"lowest"`` value of a column. Rows without a value (null, NaN) lose against all others.
        column: The column, for the last two: numbers, truth values, dates or timestamps. Numbers are compared as
            64-bit floats and times by the microsecond, because batches may differ in the type of a column; so integers
            above 2**53 that are closer to each other than that can tell are ties.

    >>> Keep.parse("highest:score")
    Keep(rule='highest', column='score')
    """

    rule: Literal["first", "longest", "highest", "lowest"] = "first"
    column: str = ""

    def __post_init__(self) -> None:
        if self.rule not in ("first", "longest", "highest", "lowest"):
            raise PlanError(f"keep={self.rule!r}: must be one of {', '.join(_RULES)}")
        if bool(self.column) != (self.rule in ("highest", "lowest")):
            needs = f"name the column, as in {self.rule}:score" if not self.column else "this rule takes no column"
            raise PlanError(f"keep={str(self)!r}: {needs}")

    @classmethod
    def parse(cls, text: str | Keep) -> Keep:
        """The rule that a text such as ``"longest"`` or ``"lowest:perplexity"`` stands for.

        >>> Keep.parse("longst")
        Traceback (most recent call last):
        tamis.errors.PlanError: keep='longst': must be one of first, longest, highest:COLUMN, lowest:COLUMN. \
Did you mean 'longest'?
        """
        if isinstance(text, Keep):
            return text
        rule, colon, column = text.partition(":")
        if rule not in ("first", "longest", "highest", "lowest") or (colon and not column):
            guess = did_you_mean(rule, ["first", "longest", "highest", "lowest"])
            raise PlanError(f"keep={text!r}: must be one of {', '.join(_RULES)}.{guess}")
        return cls(rule, column)  # type: ignore[arg-type]  # checked above

    def __str__(self) -> str:
        return f"{self.rule}:{self.column}" if self.column else self.rule

    @property
    def columns(self) -> list[str]:
        """The columns that the rule needs beside the text; their types must have an order."""
        return [self.column] if self.column else []

    def ranks(self, task: TableTask, text_field: str) -> NDArray[np.uint64] | None:
        """A number for each row: of a group, the row with the smallest stays. ``None`` where the order decides alone.

        The numbers of all batches can be compared with each other.

        >>> batch = TableTask({"text": ["a", "bc"], "score": [0.5, None]})
        >>> Keep.parse("longest").ranks(batch, "text").argmin(), Keep.parse("highest:score").ranks(batch, "").argmin()
        (np.int64(1), np.int64(0))
        """
        if self.rule == "first":
            return None
        column = read_column(task.columns([self.column or text_field]), self.column or text_field, "keep")
        if self.rule == "longest":
            return self._filled(np.uint64(_LONGEST) - _lengths(column).astype(np.uint64), column)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not holds_order(kind):
            raise ColumnError(
                f"keep={str(self)!r}: the column {self.column!r} holds {column.type}; only numbers, truth values, "
                "dates and timestamps can be compared"
            )
        column = column.cast(kind)
        rising, missing = _temporal(column) if pa.types.is_temporal(kind) else _numeric(column)
        ranks = rising if self.rule == "lowest" else ~rising
        ranks[missing] = LAST
        return self._filled(ranks, column)

    def _filled(self, ranks: NDArray[np.uint64], column: pa.ChunkedArray) -> NDArray[np.uint64]:
        """Ranks with the last one for nulls."""
        if column.null_count:
            ranks[numpy_array(pc.is_null(column))] = LAST
        return ranks


def _lengths(column: pa.ChunkedArray) -> NDArray[np.int64]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    return numpy_array(pc.fill_null(pc.binary_length(column.cast(kind)), 0).cast(pa.int64()))


def _numeric(column: pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Numbers of the same order as those of a column, and which are NaN."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    numbers = numpy_array(pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)) + 0.0  # -0.0 becomes 0.0
    bits = numbers.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN), np.isnan(numbers)


def _temporal(column: pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Numbers of the same order as the times of a column, in microseconds."""
    per_unit = {"s": 10**6, "ms": 10**3, "us": 1}
    if pa.types.is_date32(column.type):
        counts, factor = column.cast(pa.int32()).cast(pa.int64()), 86_400 * 10**6
    elif pa.types.is_date64(column.type):
        counts, factor = column.cast(pa.int64()), 10**3
    elif column.type.unit == "ns":
        counts = arrow_array(numpy_array(pc.fill_null(column.cast(pa.int64()), 0)) // 1000)
        factor = 1
    else:
        counts, factor = column.cast(pa.int64()), per_unit[column.type.unit]
    times = numpy_array(pc.fill_null(counts, 0))
    most = (2**63 - 1) // factor
    scaled = np.clip(times, -most, most) * factor  # beyond the year 290,000 all times are equal
    return scaled.view(np.uint64) ^ _SIGN, np.zeros(len(times), np.bool_)
