"""Filters that need no model: they measure the characters, words and lines of a text."""

from tamis.stages.text.filters import characters, lines, words
from tamis.stages.text.filters.characters import *  # noqa: F403 - what that module offers, whatever it is
from tamis.stages.text.filters.lines import *  # noqa: F403
from tamis.stages.text.filters.words import *  # noqa: F403

__all__ = [*characters.__all__, *lines.__all__, *words.__all__]
