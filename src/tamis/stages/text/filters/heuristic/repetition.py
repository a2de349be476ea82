"""The same names as in :mod:`tamis.stages.text.filters.repetition`."""

from tamis.stages.text.filters import repetition
from tamis.stages.text.filters.repetition import *  # noqa: F403 - what that module offers, whatever it is

__all__ = repetition.__all__
