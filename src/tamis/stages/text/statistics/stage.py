"""A stage that sums up documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_128
from tamis.kernels.scripts import dominant_scripts
from tamis.models.language import built_in_languages, load_language_model
from tamis.stages.base import WorkerMetadata
from tamis.stages.column_values import TextStage, holds_text, read_column, text_values
from tamis.stages.mixing.row_keys import as_shares, name_keys, scrambled
from tamis.stages.text.filters.measured import Criterion, Measured, MeasuredFilter, measure
from tamis.stages.text.statistics.measures import BYTES, bin_of, default_filters, is_share, length_filters
from tamis.stages.text.statistics.summary import MAX_COLUMNS, TextSummary
from tamis.stages.text.statistics.websites import linked_sites, site_of
from tamis.tasks import DocumentBatch, RowNames
from tamis.tasks.storage import format_order

__all__ = ["EXCERPT_CHARACTERS", "TextStatistics"]

EXCERPT_CHARACTERS = 400
"""How much of the beginning of a document is kept as an example, in characters."""

_LOOKED_AT_CHARACTERS = 1000
"""How many characters of a document its language and script are identified by: more hardly change the result."""


@dataclass(repr=False)
class TextStatistics(TextStage):
    """Sum up documents: lengths, filter scores, duplicates, languages, scripts, sites.

    Each batch becomes a small table, which :meth:`TextSummary.from_table` reads; ``merge_summaries`` puts several of
    them together. Lengths, scores and what filters drop are counted for all documents; percentiles, languages, scripts
    and sites come from a bounded sample of them.

    Args:
        text_field: The column with the text. A null counts as an empty text.
        url_field: The column with the document's address, if there is one.
        filters: The filters whose scores are wanted; the heuristic ones by default.
        fraction: The share of the documents to look at, chosen at random; the others are only counted.
        languages: Whether to identify languages, which needs ``tamis[language]``.
        max_sample: How many documents are kept as a sample.
        sampled: The share of the documents that may be in the sample. Less than 1 saves time where it is known that
            there are many.
        max_hashes: How many hashes of texts are kept to estimate how many texts are different.

    >>> stage = TextStatistics(languages=False)
    >>> summary = TextSummary.from_table(stage.process(DocumentBatch({"text": ["one two", "", "one two"]})).data)
    >>> summary.total("documents"), summary.total("words"), summary.distinct().texts
    (3, 4, 2)
    """

    text_field: str = "text"
    url_field: str | None = None
    filters: Sequence[MeasuredFilter] | None = None
    fraction: float = 1.0
    languages: bool = True
    max_sample: int = 100_000
    sampled: float = 1.0
    max_hashes: int = 65_536

    releases_gil: ClassVar[bool] = True
    makes_rows = "new"

    # The smallest numbers that this worker has seen: a document with a larger one is left out of the summary of all
    # documents anyway. So that summary is the same however the documents are spread over workers.
    _keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64), init=False, compare=False)
    _hashes: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64), init=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("fraction", "sampled"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"TextStatistics({name}={getattr(self, name)}): must be above 0, and 1 at most")
        for name, least in (("max_sample", 1), ("max_hashes", 3)):
            if getattr(self, name) < least:
                raise ValueError(f"TextStatistics({name}={getattr(self, name)}): must be at least {least}")
        chosen = self.chosen_filters
        for one in chosen:
            is_measured = isinstance(one, MeasuredFilter) and one.scores_columns and one.ratio() is not None
            if not is_measured or not one.decides_by_bounds:
                raise ValueError(f"TextStatistics(filters=...): the kernel cannot score {one!r}")
        names = [one.name for one in chosen]
        if len(set(names)) < len(names):
            raise ValueError(f"TextStatistics(filters=...): two filters have the same name: {', '.join(names)}")
        if self.languages:
            built_in_languages()  # says which package is missing before anything runs

    @property
    def chosen_filters(self) -> list[MeasuredFilter]:
        """The filters whose scores are found."""
        return default_filters() if self.filters is None else list(self.filters)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(("part", "data", "max_hashes", "max_sample"))

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._keys, self._hashes = np.zeros(0, np.uint64), np.zeros(0, np.uint64)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        summary = self.summarize(task).to_table()
        return task.with_table(summary).named(
            RowNames.numbered(f"{self.name} {format_order(task.order)}", len(summary))
        )

    def summarize(self, batch: DocumentBatch) -> TextSummary:
        """The summary of one batch."""
        names = batch.names or RowNames.numbered(format_order(batch.order), batch.num_items)
        given = read_column(batch.data, self.text_field, self.name)
        if not holds_text(given.type) and not pa.types.is_null(given.type):
            raise DataError(
                f"the column {self.text_field!r} holds {given.type}, not text",
                path=names.sources[0],
                hint=f"Columns with text: {', '.join(_text_columns(batch.data)) or 'none'}.",
            )
        texts = text_values(given, self.text_field, self.name)
        hashes = hash_text_128(pc.fill_null(texts, ""))[:, 0].copy()
        # By these, documents are chosen at random: they follow from the texts and from the names of the rows.
        keys, table = scrambled(hashes ^ name_keys(names, "TextStatistics", 0)), batch.data
        columns = _columns(table)
        read = table.num_rows
        if self.fraction < 1:
            chosen = as_shares(keys) < self.fraction
            table, texts = table.filter(pa.array(chosen)), texts.filter(pa.array(chosen))
            hashes, keys, names = hashes[chosen], keys[chosen], names.take(np.flatnonzero(chosen))
        filters = [*length_filters(), *self.chosen_filters]
        measured = measure(texts, [Criterion(one, decides=False) for one in filters])
        nbytes = np.asarray(pc.fill_null(pc.binary_length(texts), 0)).astype(np.int64)
        totals = {
            "read": read,
            "documents": len(texts),
            "null": texts.null_count,
            "empty": int((measured.scores[1] == 0).sum()),
            BYTES: int(nbytes.sum()),
            **{one.name: int(measured.scores[i].sum()) for i, one in enumerate(length_filters())},
        }
        return TextSummary(
            totals=pl.DataFrame({"name": list(totals), "sum": list(totals.values())}).sort("name"),
            columns=columns,
            histogram=_histogram(measured, nbytes),
            decisions=self._decisions(measured),
            hashes=self._smallest_hashes(hashes),
            sample=self._sample(table, texts, names, keys, nbytes, measured),
            max_hashes=self.max_hashes,
            max_sample=self.max_sample,
        )

    def _decisions(self, measured: Measured) -> pl.DataFrame:
        """For each filter, how many documents it drops, and how many that no other one drops."""
        first = len(length_filters())
        chosen = self.chosen_filters
        dropped = np.array([~one.keep_scores(measured.scores[first + i]) for i, one in enumerate(chosen)], np.bool_)
        dropped = dropped.reshape(len(chosen), -1)
        alone = dropped & (dropped.sum(axis=0) == 1)
        counts = {"dropped": dropped.sum(axis=1), "dropped_alone": alone.sum(axis=1)}
        return pl.DataFrame({"filter": [one.name for one in chosen], **counts}).sort("filter")

    def _smallest_hashes(self, hashes: NDArray[np.uint64]) -> pl.DataFrame:
        found, counts = np.unique(hashes, return_counts=True)
        self._hashes = np.unique(np.concatenate([self._hashes, found[: self.max_hashes]]))[: self.max_hashes]
        if len(self._hashes) == self.max_hashes:
            wanted = found <= self._hashes[-1]
            found, counts = found[wanted], counts[wanted]
        return pl.DataFrame({"hash": found, "documents": counts.astype(np.int64)})

    def _sample(
        self,
        table: pa.Table,
        texts: pa.ChunkedArray,
        names: RowNames,
        keys: NDArray[np.uint64],
        nbytes: NDArray[np.int64],
        measured: Measured,
    ) -> pl.DataFrame:
        self._keys = np.sort(np.concatenate([self._keys, keys]))[: self.max_sample]
        wanted = as_shares(keys) < self.fraction * self.sampled
        if len(self._keys) == self.max_sample:
            wanted &= keys <= self._keys[-1]
        rows = np.flatnonzero(wanted)
        rows = rows[np.argsort(keys[rows], kind="stable")][: self.max_sample]
        chosen = pa.array(rows)
        some = pc.fill_null(texts.take(chosen), "")
        beginnings = pc.utf8_slice_codeunits(some, 0, _LOOKED_AT_CHARACTERS)
        columns: dict[str, Any] = {"key": keys[rows], **_name_columns(names.take(rows)), BYTES: nbytes[rows]}
        for number, criterion in enumerate(measured.criteria):
            columns[criterion.filter.name] = measured.scores[number][rows]
        columns["language"] = self._language(beginnings)
        columns["script"] = pl.Series(dominant_scripts(beginnings)[0].to_pylist(), dtype=pl.String)
        columns["site"] = self._site(table, chosen)
        columns["links"] = linked_sites(some).cast(pl.List(pl.String))
        columns["excerpt"] = pl.Series(pl.from_arrow(pc.utf8_slice_codeunits(some, 0, EXCERPT_CHARACTERS)))
        return pl.DataFrame(columns)

    def _language(self, texts: pa.ChunkedArray) -> pl.Series:
        if not self.languages:
            return pl.Series([None] * len(texts), dtype=pl.String)
        codes, _ = load_language_model().identify(texts)
        return pl.Series(pl.from_arrow(codes)).cast(pl.String)

    def _site(self, table: pa.Table, chosen: pa.Array) -> pl.Series:
        has_address = self.url_field in table.column_names and holds_text(table.schema.field(self.url_field).type)
        if not has_address:
            return pl.Series([None] * len(chosen), dtype=pl.String)
        return site_of(table.column(self.url_field).take(chosen))


def _histogram(measured: Measured, nbytes: NDArray[np.int64]) -> pl.DataFrame:
    scores = [(BYTES, nbytes.astype(np.float64), False)]
    for number, criterion in enumerate(measured.criteria):
        name = criterion.filter.name
        scores.append((name, measured.scores[number], is_share(criterion.filter)))
    parts = []
    for name, values, share in scores:
        bins, counts = np.unique(bin_of(values, share), return_counts=True)
        parts.append(
            pl.DataFrame(
                {"measure": [name] * len(bins), "bin": bins, "documents": counts.astype(np.int64)}, schema=_BINS
            )
        )
    return pl.concat(parts).sort("measure", "bin")


_BINS: dict[str, Any] = {"measure": pl.String, "bin": pl.Int64, "documents": pl.Int64}


def _columns(table: pa.Table) -> pl.DataFrame:
    seen = [(f.name, str(f.type), table.num_rows, table.column(i).null_count) for i, f in enumerate(table.schema)]
    schema: dict[str, Any] = {"name": pl.String, "type": pl.String, "rows": pl.Int64, "nulls": pl.Int64}
    return pl.DataFrame(seen, schema=schema, orient="row").sort("name", "type").head(MAX_COLUMNS)


def _name_columns(names: RowNames) -> dict[str, pl.Series]:
    """The names of rows as columns of the sample."""
    parts = pa.nulls(len(names), pa.string()) if names.parts is None else names.parts
    return {
        "source": pl.Series(pl.from_arrow(names.source_column())).cast(pl.String),
        "position": pl.Series(names.positions, dtype=pl.Int64),
        "part": pl.Series(pl.from_arrow(parts)).cast(pl.String),
    }


def _text_columns(table: pa.Table) -> list[str]:
    return [f.name for f in table.schema if holds_text(f.type)]
