"""Groups of duplicate images that a run found, with small pictures of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tamis.runs.dropped_rows import DroppedRow, described_rows, duplicates_of, ledger_of, sample_where
from tamis.runs.pages.drop_query import Cursor
from tamis.runs.pages.drop_query import DroppedRow as LedgerRow
from tamis.runs.pages.run_view import RunView
from tamis.runs.row_lookup import parse_name
from tamis.runs.source_rows import ReadLimits, SourceRow

__all__ = ["DuplicateImages", "duplicate_images"]

_MOST_ROWS: Final = 1_000_000


@dataclass(frozen=True)
class DuplicateImages:
    """An image that stays, and those that were removed because of it.

    Args:
        kept_name: The name of the row that stays.
        kept: That row, with its picture.
        removed: The removed rows: what the ledger says of each, and the row with its picture.
    """

    kept_name: str
    kept: SourceRow
    removed: list[tuple[DroppedRow, SourceRow]]


def duplicate_images(
    view: RunView, stage: str, *, groups: int, each: int, side: int, limits: ReadLimits, most_s: float
) -> list[DuplicateImages]:
    """Some groups of duplicate images; none if the rows are no images.

    Args:
        view: The run.
        stage: The stage that removed them.
        groups: How many groups.
        each: How many removed images of a group.
        side: The longer side of the pictures, in pixels.
        limits: How much is read.
        most_s: No more sources are opened after this many seconds.
    """
    import pyarrow.compute as pc

    ledger = ledger_of(view.path, _MOST_ROWS)
    seeds = [row for row in sample_where(ledger, 4 * groups, duplicates_of(stage)) if row.original]
    if ledger is None or not seeds or not view.has_image(_place(seeds[0])):
        return []
    originals = list(dict.fromkeys(row.original for row in seeds))[:groups]
    found: dict[str, list[DroppedRow]] = {name: [] for name in originals}
    wanted = duplicates_of(stage) & pc.field("score_text").isin(originals)
    for batch in ledger.to_batches(filter=wanted):
        for row in described_rows(batch, None):
            if len(found[row.original]) < each:
                found[row.original].append(row)
    removed = [row for rows in found.values() for row in rows]
    sought = [*map(_named, originals), *map(_place, removed)]
    read = view.read_texts(sought, limits, most_s, side)
    pictures = dict(zip(((row.stage, row.name) for row in removed), read[len(originals) :], strict=True))
    return [
        DuplicateImages(name, kept, [(row, pictures[row.stage, row.name]) for row in found[name]])
        for name, kept in zip(originals, read, strict=False)
    ]


def _place(row: DroppedRow) -> LedgerRow:
    return LedgerRow(Cursor(0, 0), row.stage, row.reason, row.source, row.position, row.part, row.score)


def _named(name: str) -> LedgerRow:
    found = parse_name(name)
    return LedgerRow(Cursor(0, 0), "", "", found.source, found.position, found.part, None)
