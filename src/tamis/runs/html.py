"""Pages: one HTML file that needs nothing else. All text that comes from data goes through :func:`escaped`."""

from __future__ import annotations

import base64
import hashlib
import html
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from tamis.printable import printable

_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Page:
    """The parts of a page.

    Args:
        kind: What it is, above its title: ``"Run report"``.
        title: Its title, as plain text.
        head: The part below the title, as HTML.
        sections: The rest, as HTML.
        version: The version of tamis that made it.
        badge: A word beside ``kind``, and the class of its style; none when empty.
    """

    kind: str
    title: str
    head: str
    sections: Iterable[str]
    version: str
    badge: str = ""


@dataclass(frozen=True)
class Tile:
    """A figure at the top of a page: its name, its value, and a remark."""

    name: str
    value: str
    more: str = ""


def render_page(page: Page) -> str:
    """A page as HTML: no requests, no need for JavaScript, light and dark.

    >>> shown = render_page(Page("Report", "<a>", "", [], "1.0"))
    >>> "&lt;a&gt;" in shown, "<a>" in shown
    (True, False)
    """
    template = resources.files("tamis.runs").joinpath("report.html").read_text(encoding="utf-8")
    script = template.partition("<script>")[2].partition("</script>")[0]
    badge = f'<span class="state {escaped(page.badge)}">{escaped(page.badge)}</span>' if page.badge else ""
    return string.Template(template).substitute(
        kind=escaped(page.kind),
        badge=badge,
        name=escaped(page.title),
        head=page.head,
        sections="\n".join(f"<section>{section}</section>" for section in page.sections if section),
        version=escaped(page.version),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def tiles_of(tiles: Sequence[Tile]) -> str:
    """Figures side by side."""
    parts = (
        f"<div><dt>{tile.name}</dt><dd>{escaped(tile.value)}<small>{escaped(tile.more)}</small></dd></div>"
        for tile in tiles
    )
    return f'<dl class="tiles">{"".join(parts)}</dl>'


def html_table(heads: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    """A table that can be scrolled where it is too wide; ``heads`` and ``rows`` are HTML."""
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell(shown: str, value: float | None = None, kind: str = "") -> str:
    """A cell of a table; ``value`` is what it is sorted by."""
    value_attribute = "" if value is None else f' data-value="{value}"'
    class_attribute = f' class="{kind}"' if kind else ""
    return f"<td{value_attribute}{class_attribute}>{escaped(shown)}</td>"


def fixed(shown: str) -> str:
    """A text in a box of fixed width."""
    return f'<span class="fixed">{escaped(shown)}</span>'


def fill(share: float, kind: str = "") -> str:
    """The filled part of a bar."""
    return f'<span class="fill {kind}" style="width:{100 * min(max(share, 0), 1):.2f}%"></span>'


def escaped(value: Any, limit: int | None = None) -> str:
    """Any text as HTML that shows the text and does nothing else."""
    text = str(value)
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}{_ELLIPSIS}"
    return html.escape(printable(text), quote=True)
