"""Choice without chance: the same names always give the same numbers and the same order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

SEED = "tamis-sample-1"


# A hash, not `random`: the same packages must give the same bytes, whatever the order in which files are listed or the
# version of Python.
def unit(*parts: object) -> float:
    """A number in (0, 1) that depends on nothing but the seed and the names given."""
    digest = hashlib.sha256("\x1f".join([SEED, *map(str, parts)]).encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 2)


def by_chance(names: Iterable[str], purpose: str) -> list[str]:
    """The names in an order that is fixed, but has nothing to do with their meaning."""
    return sorted(names, key=lambda name: (unit(purpose, name), name))
