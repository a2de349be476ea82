"""The same names as in :mod:`tamis.stages.text.filters.heuristic`."""

from tamis.stages.text.filters import heuristic
from tamis.stages.text.filters.heuristic import *  # noqa: F403 - what that package offers, whatever it is

__all__ = heuristic.__all__
