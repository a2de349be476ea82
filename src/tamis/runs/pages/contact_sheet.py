"""A contact sheet: small pictures side by side, each with a few words below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tamis.runs.html import escaped
from tamis.runs.source_rows import SourceRow
from tamis.runs.thumbnails import Thumbnail

__all__ = ["SIDE", "SheetEntry", "contact_sheet", "shown_picture", "side_by_side"]

SIDE: Final = 160
"""The longer side of a picture, in pixels."""


@dataclass(frozen=True)
class SheetEntry:
    """One picture of a sheet.

    Args:
        picture: The picture, or why there is none.
        title: What it is, in a few words.
        note: More of it, in smaller letters: a score, a place.
        kind: ``"kept"`` or ``"lost"``, for the colour of its frame; empty for none.
    """

    picture: Thumbnail
    title: str = ""
    note: str = ""
    kind: str = ""


def contact_sheet(entries: Sequence[SheetEntry]) -> str:
    """The sheet as HTML; nothing if it is empty.

    >>> contact_sheet([SheetEntry(Thumbnail(problem="the image is gone"), "<b>")])
    '<ul class="sheet"><li><span class="none">the image is gone</span><p>&lt;b&gt;</p></li></ul>'
    """
    if not entries:
        return ""
    return f'<ul class="sheet">{"".join(map(_shown, entries))}</ul>'


def side_by_side(sheets: Sequence[str]) -> str:
    """Small sheets beside each other, as many as there is room for.

    >>> side_by_side(["<ul></ul>"])
    '<div class="sheets"><div><ul></ul></div></div>'
    """
    return f'<div class="sheets">{"".join(f"<div>{sheet}</div>" for sheet in sheets)}</div>' if sheets else ""


def shown_picture(row: SourceRow, title: str = "") -> str:
    """The picture of a row as it is shown alone; nothing if the row is no image."""
    if row.picture is None:
        return ""
    return f'<p class="picture">{_image(row.picture, title)}</p>'


def _shown(entry: SheetEntry) -> str:
    kind = f' class="{entry.kind}"' if entry.kind else ""
    title = f"<p>{escaped(entry.title, 120)}</p>" if entry.title else ""
    note = f'<p class="soft">{escaped(entry.note, 200)}</p>' if entry.note else ""
    return f"<li{kind}>{_image(entry.picture, entry.title)}{title}{note}</li>"


def _image(picture: Thumbnail, title: str) -> str:
    if not picture.uri:
        return f'<span class="none">{escaped(picture.problem or "there is no picture", 200)}</span>'
    size = f'width="{picture.width}" height="{picture.height}"'
    return f'<img src="{escaped(picture.uri)}" alt="{escaped(title, 120)}" {size}>'
