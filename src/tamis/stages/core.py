"""The same names as :mod:`tamis.stages.base`."""

from tamis.stages.base import *  # noqa: F403 - an alias module
from tamis.stages.base import __all__ as __all__
