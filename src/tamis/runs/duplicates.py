"""The duplicates that a run removed: ``result.duplicates()``.

All of it is read from the drop ledger, in a stream. Memory holds hashes of the removed rows, eight bytes for each, and
never their texts; only :meth:`Duplicates.rows` and :meth:`Duplicates.sample` hold names or texts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_64
from tamis.runs import figures
from tamis.runs.drop_samples import stage_named
from tamis.runs.dropped_rows import DroppedRow, duplicates_of, is_duplicate, ledger_of, mixed, sample_where
from tamis.runs.duplicate_sources import (
    By,
    SourceCounts,
    SourcePair,
    SourceRate,
    counted_alone,
    rows_of_file,
    rows_read,
    sources_of,
)
from tamis.runs.html import escaped
from tamis.runs.pages.drop_query import Cursor
from tamis.runs.pages.drop_query import DroppedRow as LedgerRow
from tamis.runs.pages.run_view import RunView, load_view
from tamis.runs.row_lookup import parse_name
from tamis.runs.source_rows import ReadLimits, SourceRow

if TYPE_CHECKING:
    from tamis.runs.duplicate_pairs import Rethresholded

__all__ = ["DuplicatePair", "DuplicateTotals", "Duplicates", "deduplication_stages"]

_LIMITS: Final = ReadLimits(value_characters=20_000)
_LISTED: Final = 20


@dataclass(frozen=True)
class DuplicateTotals:
    """Duplicates in numbers.

    Args:
        rows: Rows that entered the stages; of several stages, the first one. If no stage removed duplicates: all rows
            that the run read.
        removed: Rows that were removed.
        groups: Groups of duplicates, each with one row that stays.
        largest: The size of the largest group, with the row that stays; 0 if there is none.
    """

    rows: int
    removed: int
    groups: int
    largest: int

    @property
    def share(self) -> float | None:
        """The share of the rows that was removed, 0 to 1; ``None`` if there were no rows."""
        return self.removed / self.rows if self.rows else None


@dataclass(frozen=True)
class DuplicatePair:
    """A removed row beside the one that is kept in its place.

    Args:
        removed, kept: Their names; ``kept`` is empty where the stage does not know which row it was.
        similarity: How similar the texts are, 0 to 1; ``None`` if the stage compares for equality.
        stage: The stage that removed it.
        removed_text, kept_text: Their texts, as they are in the sources: stages before may have changed them.
        problem: Why texts are missing, in words; empty if both are here.
    """

    removed: str
    kept: str
    similarity: float | None
    stage: str
    removed_text: str = ""
    kept_text: str = ""
    problem: str = ""


@dataclass
class _Counted:
    """What one pass over the ledger gives."""

    removed: int = 0
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sources: SourceCounts = field(default_factory=SourceCounts)


class Duplicates:
    """The duplicates that a run removed, of one stage or of all.

    Args:
        run_dir: The run's directory.
        stage: The stage; the last part of its name is enough if only one has it. All of them when empty: then a row
            that one stage keeps and a later one removes is in a group of each.
        most_rows: Read about so many rows of a larger ledger, spread over it; all of it when not given.

    Raises:
        DataError: The run has no such stage, or no drop ledger although it dropped rows.
    """

    def __init__(self, run_dir: str, stage: str = "", most_rows: int | None = None) -> None:
        self._view = load_view(run_dir)
        self._run_dir = run_dir
        self._stage = stage_named(self._view, stage) if stage else ""
        self._ledger_rows = ledger_of(run_dir, most_rows)
        if self._ledger_rows is None and any(self._reported().values()):
            raise DataError(
                "the run has no drop ledger, so its duplicates are not known",
                path=run_dir,
                hint="It was run with --no-drop-ledger, run(drop_ledger=False).",
            )

    @property
    def stages(self) -> list[str]:
        """The stages that removed duplicates."""
        return [self._stage] if self._stage else list(self._reported())

    @property
    def is_partial(self) -> bool:
        """Whether only a part of the ledger was read: then there are more rows, and larger groups."""
        return sum(self._reported().values()) > self._counted.removed

    @property
    def removed(self) -> int:
        """How many rows were removed."""
        return self._counted.removed

    @property
    def groups(self) -> int:
        """How many groups of duplicates there are. Of each, one row stays."""
        return len(self._counted.groups)

    @property
    def sizes(self) -> dict[int, int]:
        """The sizes of the groups, with the row that stays, and how many groups have that size."""
        sizes, counts = np.unique(self._counted.groups, return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    @property
    def totals(self) -> DuplicateTotals:
        """The figures in one."""
        stages = self._view.summary.stages
        entered = [s.before for s in figures.steps(stages) if s.stage.name in self.stages]
        groups = self._counted.groups
        largest = int(groups.max()) if len(groups) else 0
        return DuplicateTotals(entered[0] if entered else figures.rows_read(stages), self.removed, len(groups), largest)

    def rows(self) -> pa.Table:
        """All removed rows: ``removed`` and ``kept`` (names), ``similarity``, ``stage``; sorted by name.

        All of it is in memory; for a large run, read :meth:`batches`.
        """
        schema = pa.schema(
            {"removed": pa.string(), "kept": pa.string(), "similarity": pa.float64(), "stage": pa.string()}
        )
        found = [schema.empty_table(), *(pa.Table.from_batches([batch]) for batch in self._ledger())]
        table = pa.concat_tables([_pairs(table) if table.num_columns > 4 else table for table in found])
        return table.sort_by([(name, "ascending") for name in ("removed", "stage")]).combine_chunks()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """As :meth:`rows`, some at a time, in the order of the ledger."""
        for batch in self._ledger():
            yield from _pairs(pa.Table.from_batches([batch])).to_batches()

    def by_source(self, by: By = "file", most: int = _LISTED) -> list[SourceRate]:
        """How many rows of each source were removed, those with the most first; the rest is in one, ``"others"``.

        Args:
            by: ``"file"`` or ``"folder"``.
            most: How many to list.
        """
        return self._counted.sources.rates(by, most, self._read)

    def between_sources(self, by: By = "file", most: int = _LISTED) -> list[SourcePair]:
        """From which source rows were removed because of rows of which; the rest is in one, ``"others"``.

        Args:
            by: ``"file"`` or ``"folder"``.
            most: How many pairs of sources to list.
        """
        return self._counted.sources.between(by, most)

    @property
    def folders(self) -> set[str]:
        """The folders that removed rows, and those kept in their place, are from."""
        return self._counted.sources.folders

    def sample(
        self, n: int = 5, seed: int = 0, *, limits: ReadLimits = _LIMITS, most_s: float = 60.0
    ) -> list[DuplicatePair]:
        """Some pairs, with both texts, read back from their sources. The same ones however the run went.

        Args:
            n: How many.
            seed: Another seed chooses other pairs.
            limits: How much of a text is read.
            most_s: No more sources are opened after this many seconds.
        """
        return self._with_texts(self._chosen(n, seed), limits, most_s)

    def spread_sample(self, n: int, *, limits: ReadLimits = _LIMITS, most_s: float = 60.0) -> list[DuplicatePair]:
        """As :meth:`sample`, but spread over the similarities: from the least similar pair to the most similar one.

        Args:
            n: How many.
            limits: How much of a text is read.
            most_s: No more sources are opened after this many seconds.
        """
        found = self._chosen(20 * n, 0)
        if all(isinstance(row.score, float) for row in found):
            found.sort(key=lambda row: (row.score, row.name))
            found = [found[place] for place in np.unique(np.linspace(0, len(found) - 1, n).astype(int)) if found]
        return self._with_texts(found[:n], limits, most_s)

    def _chosen(self, n: int, seed: int) -> list[DroppedRow]:
        return sample_where(self._ledger_rows, n, duplicates_of(self._stage), seed)

    def _with_texts(self, found: list[DroppedRow], limits: ReadLimits, most_s: float) -> list[DuplicatePair]:
        removed = [_place(d.source, d.position, d.part) for d in found]
        kept = [_place_named(d.original) for d in found]
        texts = self._view.read_texts([*removed, *kept], limits, most_s)
        return [
            DuplicatePair(
                d.name,
                d.original,
                d.score if isinstance(d.score, float) else None,
                d.stage,
                _text(self._view, own),
                _text(self._view, other),
                _problem(own, other, d.original),
            )
            for d, own, other in zip(found, texts[: len(found)], texts[len(found) :], strict=True)
        ]

    def rethreshold(self, threshold: float, pairs: str = "") -> Rethresholded:
        """What would be removed with another threshold, from the similarities of the pairs that the run compared.

        Args:
            threshold: The least similarity of a pair: the Jaccard index of texts, or the cosine of embeddings.
            pairs: The folder with the pairs, ``pairs_path`` of the stage; found in the run's plan when not given.
        """
        from tamis.runs.duplicate_pairs import recorded_pairs, rethresholded

        folder, compare_with = recorded_pairs(self._view, self.stages, threshold, pairs)
        return rethresholded(folder, threshold, (names for names, _ in self._names()), compare_with)

    # -- the ledger ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _counted(self) -> _Counted:
        counted, kept = _Counted(), [np.zeros(0, np.uint64)]
        for batch in self._ledger():
            counted.removed += batch.num_rows
            originals, stages = batch.column("score_text"), batch.column("stage")
            counted.sources.add(batch.column("source"), sources_of(originals))
            known = numpy_array(pc.is_valid(originals))
            hashes = hash_text_64(originals.fill_null("")) ^ hash_text_64(stages.fill_null(""))
            kept.append(mixed(hashes)[known])
        counted.groups = _run_lengths(kept) + 1
        return counted

    @functools.cached_property
    def _read(self) -> list[tuple[frozenset[str], int]]:
        view = self._view
        return counted_alone(
            rows_read(self._run_dir),
            lambda path: None if view.distrust() else rows_of_file(path, view.row_format(path)),
        )

    def _ledger(self) -> Iterator[pa.RecordBatch]:
        if self._ledger_rows is not None:
            wanted = duplicates_of(self._stage)
            # Batches that are read ahead would take more memory than what is kept of them.
            batches = self._ledger_rows.to_batches(
                filter=wanted, batch_readahead=1, fragment_readahead=1, use_threads=False
            )
            yield from (batch for batch in batches if batch.num_rows)

    def _names(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The names of removed rows and of those kept in their place, some at a time."""
        for batch in self._ledger():
            yield _names(batch), batch.column("score_text")

    def _reported(self) -> dict[str, int]:
        """The rows that each stage removed, as the summary says it."""
        return deduplication_stages(self._view, self._stage)

    # -- shown ---------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Duplicates({self._words()})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        sizes = "".join(
            f'<tr><td style="text-align:right">{size:,}</td><td style="text-align:right">{count:,}</td></tr>'
            for size, count in list(self.sizes.items())[:_LISTED]
        )
        table = f"<table><thead><tr><th>Rows in a group</th><th>Groups</th></tr></thead><tbody>{sizes}</tbody></table>"
        return f"<div><p>{escaped(self._words())}</p>{table if sizes else ''}</div>"

    def _words(self) -> str:
        totals = self.totals
        share = f" ({figures.percent(totals.share)})" if totals.rows else ""
        by = f" by {', '.join(self.stages)}" if self.stages else ""
        return (
            f"{figures.number(totals.removed)} of {figures.number(totals.rows)} rows removed{share}{by}, "
            f"{figures.number(totals.groups)} groups, the largest of {figures.number(totals.largest)} rows"
        )


def deduplication_stages(view: RunView, stage: str = "") -> dict[str, int]:
    """The stages of a run that removed duplicates, and how many rows each removed.

    Args:
        view: The run.
        stage: Only this one.
    """
    found = {
        stats.name: sum(rows for reason, rows in stats.dropped.items() if is_duplicate(reason))
        for stats in view.summary.stages
        if stage in ("", stats.name)
    }
    return {name: rows for name, rows in found.items() if rows}


def _run_lengths(parts: list[NDArray[np.uint64]]) -> NDArray[np.int64]:
    """How often each value occurs. The parts are used up, so that memory holds the values twice at most."""
    values = np.concatenate(parts)
    parts.clear()
    values.sort()
    firsts = np.flatnonzero(np.concatenate([np.ones(min(1, len(values)), np.bool_), values[1:] != values[:-1]]))
    return np.diff(firsts, append=len(values))


def _names(batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """The names of the rows of the ledger."""
    positions, parts = batch.column("position").cast(pa.string()), batch.column("part").fill_null("")
    return pc.binary_join_element_wise(batch.column("source"), ":", positions, parts, "")


def _pairs(ledger: pa.Table) -> pa.Table:
    columns = [_names(ledger), *(ledger.column(name) for name in ("score_text", "score", "stage"))]
    return pa.table(columns, ["removed", "kept", "similarity", "stage"])


def _place(source: str, position: int | None, part: str = "") -> LedgerRow:
    return LedgerRow(Cursor(0, 0), "", "", source, position, part, None)


def _place_named(name: str) -> LedgerRow:
    try:
        found = parse_name(name)
    except DataError:
        return _place(name, None)
    return _place(found.source, found.position, found.part)


def _text(view: RunView, row: SourceRow) -> str:
    return view.text_of(row) if row.values else ""


def _problem(removed: SourceRow, kept: SourceRow, original: str) -> str:
    if not original:
        return "the stage does not record which row is kept"
    problems = (("removed", removed.problem), ("kept", kept.problem))
    return "; ".join(f"the {which} row: {problem}" for which, problem in problems if problem)
