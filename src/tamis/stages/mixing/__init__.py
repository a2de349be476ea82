"""Which rows, how often, in which order: read several sources, sample, blend, shuffle."""

from tamis.stages.mixing.blend import Blend
from tamis.stages.mixing.sample import Sample
from tamis.stages.mixing.shuffle import GlobalShuffle
from tamis.stages.mixing.sources import ReadSources

__all__ = ["Blend", "GlobalShuffle", "ReadSources", "Sample"]
