"""The recipes that come with tamis."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shipped_recipes"]


def shipped_recipes() -> dict[str, Path]:
    """The recipes that can be named without having a file, and the files they are in.

    >>> sorted(shipped_recipes())
    ['c4', 'dclm', 'english', 'fineweb', 'gopher', 'non-english']
    """
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.yaml"))}
