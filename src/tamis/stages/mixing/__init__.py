"""Which rows, how often, in which order: read several sources, sample, blend, shuffle.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.stages.mixing.blend import Blend as Blend
    from tamis.stages.mixing.global_shuffle import GlobalShuffle as GlobalShuffle
    from tamis.stages.mixing.resample import Resample as Resample
    from tamis.stages.mixing.sample import Sample as Sample
    from tamis.stages.mixing.scores import ScoreBuckets as ScoreBuckets
    from tamis.stages.mixing.scores import ScoreEnsemble as ScoreEnsemble
    from tamis.stages.mixing.sources import ReadSources as ReadSources

_HOMES = {
    "Blend": "tamis.stages.mixing.blend",
    "GlobalShuffle": "tamis.stages.mixing.global_shuffle",
    "ReadSources": "tamis.stages.mixing.sources",
    "Resample": "tamis.stages.mixing.resample",
    "Sample": "tamis.stages.mixing.sample",
    "ScoreBuckets": "tamis.stages.mixing.scores",
    "ScoreEnsemble": "tamis.stages.mixing.scores",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
