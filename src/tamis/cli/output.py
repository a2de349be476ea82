"""Where the command writes: results to stdout, everything for people to stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["complain", "print_json", "show", "terminal_width", "write"]


def write(text: str) -> None:
    """Write text and a line end to stdout."""
    sys.stdout.write(f"{text}\n")


def complain(text: str, notes: Iterable[str] = ()) -> None:
    """Write an error to stderr."""
    sys.stderr.write("".join(f"{line}\n" for line in (f"tamis: {text}", *notes)))


def print_json(value: Any) -> None:
    """Write a value to stdout as JSON."""
    write(json.dumps(value, indent=2, ensure_ascii=False))


def terminal_width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, 140))


def show(*parts: RenderableType) -> None:
    """Write tables and texts of ``rich`` to stdout; colours only on a terminal."""
    from tamis.runs.terminal import rendered

    sys.stdout.write(rendered(*parts, width=terminal_width(), color=sys.stdout.isatty()))
