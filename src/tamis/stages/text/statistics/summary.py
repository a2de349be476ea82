"""A summary of documents: small tables that do not grow with their number, and that can be put together.

Counts are added. Of what could grow (the documents themselves, the hashes of their texts) those with the smallest
numbers are kept, and which these are follows from the documents alone. So it does not matter in which parts documents
are summed up, nor in which order the parts are put together.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa

__all__ = ["MAX_COLUMNS", "Distinct", "TextSummary", "merge_summaries"]

MAX_COLUMNS: Final = 1000
"""How many columns are listed, by name; those that come later in the alphabet are left out."""

_PARTS: Final = {
    "totals": ["name"],
    "columns": ["name", "type"],
    "histogram": ["measure", "bin"],
    "decisions": ["filter"],
    "hashes": ["hash"],
    "sample": ["key", "source", "position", "part"],
}
"""The tables, and the columns that identify their rows; the others are counts, except in the sample."""


@dataclass(frozen=True)
class Distinct:
    """How many different texts there are among some documents, and the standard error of that: 0 if it is exact."""

    documents: int
    texts: float
    error: float

    @property
    def duplicate_share(self) -> float:
        """The share of documents that go when of equal ones just one stays."""
        return max(1 - self.texts / self.documents, 0.0) if self.documents else 0.0

    @property
    def share_error(self) -> float:
        """The standard error of :attr:`duplicate_share`; 0 where that is exact."""
        return self.error / self.documents if self.documents else 0.0


@dataclass(frozen=True)
class TextSummary:
    """What is known of some documents.

    Args:
        totals: Sums: ``name``, ``sum``.
        columns: Columns that were seen: ``name``, ``type``, ``rows``, ``nulls``.
        histogram: Documents by measure and bin: ``measure``, ``bin``, ``documents``.
        decisions: What each filter drops: ``filter``, ``dropped``, and ``dropped_alone`` (that no other drops).
        hashes: The smallest hashes of texts: ``hash``, and ``documents`` that have it.
        sample: The documents with the smallest keys, and their scores.
        max_hashes: How many hashes are kept.
        max_sample: How many documents are kept.
    """

    totals: pl.DataFrame
    columns: pl.DataFrame
    histogram: pl.DataFrame
    decisions: pl.DataFrame
    hashes: pl.DataFrame
    sample: pl.DataFrame
    max_hashes: int
    max_sample: int

    def total(self, name: str) -> int:
        """One of the sums; 0 where nothing was counted.

        Args:
            name: ``"read"`` (documents seen, also those left out by chance), ``"documents"``, ``"null"``, ``"empty"``
                (without a word), ``"bytes"``, ``"characters"``, ``"words"`` or ``"lines"`` (that hold one).
        """
        return int(self.totals.filter(pl.col("name") == name)["sum"].sum())

    def distinct(self) -> Distinct:
        """How many different texts there are: exact, or estimated from the smallest hashes.

        The estimate is that of Bar-Yossef et al. (2002): the k-th smallest of hashes that are spread evenly.
        """
        documents, found = self.total("documents"), self.hashes["hash"]
        if len(found) < self.max_hashes:
            return Distinct(documents, len(found), 0.0)
        texts = min((len(found) - 1) / (int(found[-1]) / 2**64), float(documents))
        return Distinct(documents, texts, texts / (len(found) - 2) ** 0.5)

    def to_table(self) -> pa.Table:
        """The summary as an Arrow table, for its way to another place: a row for each of its tables."""
        data = [_written(getattr(self, part)) for part in _PARTS]
        limits = {"max_hashes": [self.max_hashes] * len(data), "max_sample": [self.max_sample] * len(data)}
        return pa.table({"part": list(_PARTS), "data": pa.array(data, pa.large_binary()), **limits})

    @classmethod
    def from_table(cls, table: pa.Table) -> TextSummary:
        """The summary that :meth:`to_table` made a table of."""
        rows = table.to_pylist()
        parts = {row["part"]: pl.read_ipc(io.BytesIO(row["data"])) for row in rows}
        return cls(**parts, max_hashes=rows[0]["max_hashes"], max_sample=rows[0]["max_sample"])


def merge_summaries(summaries: Iterable[TextSummary]) -> TextSummary | None:
    """Put summaries together; ``None`` if there are none.

    They are taken one after the other, and what is held of them is bounded.
    """
    held: list[TextSummary] = []
    rows = 0
    for summary in summaries:
        held.append(summary)
        rows += len(summary.sample) + len(summary.hashes)
        if rows > 2 * (summary.max_sample + summary.max_hashes):
            held = [_merged(held)]
            rows = len(held[0].sample) + len(held[0].hashes)
    return _merged(held) if held else None


def _merged(summaries: list[TextSummary]) -> TextSummary:
    max_hashes, max_sample = summaries[0].max_hashes, summaries[0].max_sample
    if any((summary.max_hashes, summary.max_sample) != (max_hashes, max_sample) for summary in summaries):
        raise ValueError("summaries with different limits cannot be put together")
    limits = {"columns": MAX_COLUMNS, "hashes": max_hashes, "sample": max_sample}
    parts = {}
    for part, keys in _PARTS.items():
        table = pl.concat([getattr(summary, part) for summary in summaries], how="vertical_relaxed")
        if part != "sample":
            table = table.group_by(keys).agg(pl.all().sum())
        parts[part] = table.sort(keys).head(limits.get(part, len(table)))
    return TextSummary(**parts, max_hashes=max_hashes, max_sample=max_sample)


def _written(table: pl.DataFrame) -> bytes:
    written = io.BytesIO()
    table.write_ipc(written, compression="lz4")
    return written.getvalue()
