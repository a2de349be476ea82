"""Packages whose names load the module they are from when they are used, so that a start pays for what it needs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["load_when_used"]


def load_when_used(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__``.

    Args:
        package: Its name.
        homes: The module that each of its public names is from.

    >>> find, names = load_when_used("mathematics", {"pi": "math"})
    >>> names(), find("pi")
    (['pi'], 3.141592653589793)
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return find, lambda: sorted(homes)
