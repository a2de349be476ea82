"""Which rows, how often, in which order: read several sources, sample, blend, shuffle.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tamis.stages.mixing.blend import Blend
    from tamis.stages.mixing.sample import Sample
    from tamis.stages.mixing.shuffle import GlobalShuffle
    from tamis.stages.mixing.sources import ReadSources

_HOMES = {
    "Blend": "tamis.stages.mixing.blend",
    "GlobalShuffle": "tamis.stages.mixing.shuffle",
    "ReadSources": "tamis.stages.mixing.sources",
    "Sample": "tamis.stages.mixing.sample",
}

__all__ = ["Blend", "GlobalShuffle", "ReadSources", "Sample"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tamis.stages.mixing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
