"""The same names as in :mod:`tamis.stages.text.filters.code`."""

from tamis.stages.text.filters import code
from tamis.stages.text.filters.code import *  # noqa: F403 - what that module offers, whatever it is

__all__ = code.__all__
