"""Where the command writes: results to stdout, messages to stderr."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tamis.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def write(text: str) -> None:
    """Write text and a line end to stdout. Control characters in the text are spelled out."""
    write_styled(printable(text))


def write_styled(text: str) -> None:
    """Write text that may hold the colours of a table, which are control characters."""
    sys.stdout.write(f"{text}\n")


def complain(text: str, notes: Iterable[str] = ()) -> None:
    """Write an error to stderr."""
    sys.stderr.write("".join(f"{printable(line)}\n" for line in (f"tamis: {text}", *notes)))


def print_json(value: Any) -> None:
    """Write a value to stdout as JSON. Characters that could control a terminal are escaped, objects are their repr."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=repr)
    write_styled(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 140))


def show(*parts: RenderableType) -> None:
    """Write tables and texts of ``rich`` to stdout; colours only on a terminal."""
    from tamis.runs.terminal import rendered

    sys.stdout.write(rendered(*parts, width=terminal_width(), color=sys.stdout.isatty()))
