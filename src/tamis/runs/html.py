"""Pages: one HTML file that needs nothing else. All text that comes from data goes through :func:`escaped`."""

from __future__ import annotations

import base64
import functools
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
        navigation: Links above everything, as HTML.
        nonce: For a page that is served: the nonce of its security policy, which is in a header then.
        scripts: The names of its scripts, in ``runs/pages``.
    """

    kind: str
    title: str
    head: str
    sections: Iterable[str]
    version: str
    badge: str = ""
    navigation: str = ""
    nonce: str = ""
    scripts: tuple[str, ...] = ("page.js",)


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
    style, script = _resource("page.css"), "".join(map(_resource, page.scripts))
    complete = "" if page.nonce else " This page is complete in itself: it loads nothing from anywhere."
    return string.Template(_resource("page.html")).substitute(
        policy="" if page.nonce else _policy(style, script),
        nonce=f' nonce="{escaped(page.nonce)}"' if page.nonce else "",
        style=style,
        script=script,
        navigation=page.navigation,
        kind=escaped(page.kind),
        badge=state_badge(page.badge),
        name=escaped(page.title),
        head=page.head,
        sections="\n".join(f"<section>{section}</section>" for section in page.sections if section),
        footer=f"Written by tamis {escaped(page.version)}.{complete}",
    )


def _policy(style: str, script: str) -> str:
    """What a page that is a file may do: use its own style and its own script, and nothing else."""
    style_hash, script_hash = (f"'sha256-{_digest(chr(10) + text)}'" for text in (style, script))
    rules = f"default-src 'none'; img-src data:; style-src {style_hash}; script-src {script_hash}; "
    rules += "base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _resource(name: str) -> str:
    return resources.files("tamis.runs.pages").joinpath(name).read_text(encoding="utf-8")


def state_badge(state: str) -> str:
    """The state of a run as a badge; nothing for an empty one."""
    return f'<span class="state {escaped(state)}">{escaped(state)}</span>' if state else ""


def tiles_of(tiles: Sequence[Tile]) -> str:
    """Figures side by side."""
    parts = (
        f"<div><dt>{tile.name}</dt><dd>{escaped(tile.value)}<small>{escaped(tile.more)}</small></dd></div>"
        for tile in tiles
    )
    return f'<dl class="tiles">{"".join(parts)}</dl>'


def html_table(heads: Sequence[str], rows: Sequence[str], kind: str = "", words: Sequence[str] = ()) -> str:
    """A table that can be scrolled where it is too wide.

    Args:
        heads: The heads of the columns, as HTML.
        rows: The rows, as HTML.
        kind: The class of its style.
        words: Those of the heads whose columns hold words, not figures.
    """
    left = ' class="words"'
    head = "".join(f'<th scope="col"{left if name in words else ""}>{name}</th>' for name in heads)
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
    # An attribute of a picture, not a style: the security policy allows no styles but those of the style sheet.
    width = 100 * min(max(share, 0), 1)
    return (
        f'<svg class="fill {kind}" aria-hidden="true"><rect width="{max(width, 0.8) if share else 0:.2f}%" '
        'height="100%" rx="2"/></svg>'
    )


def escaped(value: Any, limit: int | None = None) -> str:
    """Any text as HTML that shows the text and does nothing else."""
    text = str(value)
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}{_ELLIPSIS}"
    return html.escape(printable(text), quote=True)
