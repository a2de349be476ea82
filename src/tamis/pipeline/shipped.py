"""The recipes that come with tamis."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shipped_recipes"]


def shipped_recipes() -> dict[str, Path]:
    """The names and files of the recipes that come with tamis.

    >>> sorted(shipped_recipes())
    ['c4', 'dclm', 'english', 'fineweb', 'gopher', 'non-english']
    """
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").glob("*.yaml"))}
