"""Images on a page: contact sheets of those that were kept, of those that were dropped, and of duplicates."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tamis.errors import TamisError
from tamis.runs import figures
from tamis.runs.dropped_rows import is_duplicate
from tamis.runs.duplicate_images import DuplicateImages, duplicate_images
from tamis.runs.figures import Step
from tamis.runs.html import escaped
from tamis.runs.image_rows import tar_images
from tamis.runs.pages.contact_sheet import SIDE, SheetEntry, contact_sheet, side_by_side
from tamis.runs.pages.drop_query import DropLedgerReader, DroppedRow
from tamis.runs.pages.drop_section import shown_value
from tamis.runs.pages.run_view import RunView
from tamis.runs.source_rows import ReadLimits, SourceRow, format_of
from tamis.runs.thumbnails import Thumbnail
from tamis.stages.io.paths import is_local

__all__ = ["duplicate_images_part", "image_title", "images_sections"]

_KEPT: Final = 24
_KEPT_FILES: Final = 6
_REASONS: Final = 12
_EACH_REASON: Final = 6
_MOST_DROPPED: Final = 48
_GROUPS: Final = 8
_EACH_GROUP: Final = 5
_READING_S: Final = 4.0
_LISTED_MEMBERS: Final = 3_000
_LIMITS: Final = ReadLimits(row_bytes=2**20, scan_bytes=32 * 2**20, value_characters=2_000, group_bytes=256 * 2**20)
_NOTE: Final = "small pictures, made anew; of a sample"


def images_sections(view: RunView, steps: Sequence[Step]) -> list[str]:
    """The sheets of dropped and of kept images; none where rows are no images, or the run still goes on."""
    if view.is_running or not view.path:
        return []
    return [section for section in (_dropped(view, steps), _kept(view)) if section]


def image_title(row: SourceRow) -> str:
    """What a picture is called: its caption, or else its id."""
    for name in ("caption", "text", "image_id", "id"):
        value = row.values.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
    return os.path.basename(row.source)


# --- dropped --------------------------------------------------------------------------------------------------------


def _dropped(view: RunView, steps: Sequence[Step]) -> str:
    counts = {
        (step.stage.name, reason): count
        for step in steps
        for reason, count in step.stage.dropped.items()
        if not is_duplicate(reason)
    }
    pairs = sorted(counts, key=lambda pair: -counts[pair])[:_REASONS]
    ledger = DropLedgerReader(view.path)
    if not pairs or not ledger:
        return ""
    found = ledger.examples(pairs, min(_EACH_REASON, max(_MOST_DROPPED // len(pairs), 2)))
    rows = [row for some in found.values() for row in some]
    if not rows or not view.has_image(rows[0]):
        return ""
    read = dict(zip((row.place for row in rows), view.read_texts(rows, _LIMITS, _READING_S, SIDE), strict=True))
    parts = []
    for stage, reason in pairs:
        some = found[stage, reason]
        if some:
            more = f"{escaped(stage, 120)}, {figures.number(counts[stage, reason])} rows"
            sheet = contact_sheet([_dropped_entry(row, read[row.place]) for row in some])
            parts.append(f'<h3>{escaped(reason, 200)} <small class="soft">{more}</small></h3>{sheet}')
    return f"<h2>Images that were dropped<small>{_NOTE} for each reason</small></h2>{''.join(parts)}"


def _dropped_entry(dropped: DroppedRow, row: SourceRow) -> SheetEntry:
    score = "" if dropped.score is None else f"score {shown_value(dropped.score)}"
    return SheetEntry(picture_of(row), image_title(row), score or os.path.basename(dropped.name), "lost")


def picture_of(row: SourceRow) -> Thumbnail:
    """The picture of a row, or why there is none."""
    return row.picture or Thumbnail(problem=row.problem or "the row has no image")


# --- kept -----------------------------------------------------------------------------------------------------------


def _kept(view: RunView) -> str:
    files = [file for file in view.summary.outputs if _may_hold_images(str(file.get("path", "")))]
    if not files or view.distrust():
        return ""
    chosen = [files[i] for i in np.unique(np.linspace(0, len(files) - 1, _KEPT_FILES).astype(int))]
    entries: list[SheetEntry] = []
    for file in chosen:
        rows = _rows_of_output(view, file, -(-_KEPT // len(chosen)))
        entries += [SheetEntry(picture_of(row), image_title(row), "", "kept") for row in rows]
    if not entries:
        return ""
    return f"<h2>Images that were kept<small>{_NOTE} of the output</small></h2>{contact_sheet(entries[:_KEPT])}"


def _may_hold_images(path: str) -> bool:
    row_format = format_of(path)
    return row_format is not None and row_format.kind in ("tar", "parquet") and is_local(path)


def _rows_of_output(view: RunView, file: Mapping[str, Any], most: int) -> list[SourceRow]:
    """Some rows of an output file that have images, spread over its beginning."""
    path = str(file["path"])
    try:
        if path.endswith(".tar"):
            with open(path, "rb") as handle:  # noqa: PTH123 - a path of the run's records, as text
                positions = [at for at, _ in tar_images(handle, _LISTED_MEMBERS)]
        else:
            positions = list(range(min(int(file.get("rows") or 0), _LISTED_MEMBERS)))
    except (OSError, ValueError, TamisError):
        return []
    if not positions:
        return []
    spread = sorted({positions[i] for i in np.linspace(0, len(positions) - 1, most).astype(int)})
    sought = [view.row_at(path, position) for position in spread]
    if path.endswith(".tar") or view.has_image(sought[0]):
        return [row for row in view.read_texts(sought, _LIMITS, _READING_S, SIDE) if row.picture is not None]
    return []


# --- duplicates -----------------------------------------------------------------------------------------------------


def duplicate_images_part(view: RunView, stage: str) -> str:
    """Groups of duplicate images side by side; nothing where rows are no images."""
    found = duplicate_images(
        view, stage, groups=_GROUPS, each=_EACH_GROUP, side=SIDE, limits=_LIMITS, most_s=_READING_S
    )
    if not found:
        return ""
    note = "the first image of each stays; the others were removed"
    return f'<h3>Groups <small class="soft">{note}</small></h3>{side_by_side([_group(group) for group in found])}'


def _group(group: DuplicateImages) -> str:
    entries = [SheetEntry(picture_of(group.kept), image_title(group.kept), "kept", "kept")]
    for dropped, row in group.removed:
        similarity = f"similarity {dropped.score:.2f}" if isinstance(dropped.score, float) else dropped.reason
        entries.append(SheetEntry(picture_of(row), image_title(row), similarity, "lost"))
    return contact_sheet(entries)
