"""The operations of :mod:`tamis.kernels.cleaning` and :mod:`tamis.kernels.needles`, and the kinds of bytes in texts."""

from __future__ import annotations

__all__ = [
    "ANYWHERE",
    "BLANKS",
    "CONTROLS",
    "IN_LONG_WORDS",
    "JOINED",
    "LABEL",
    "LEAD",
    "LETTER",
    "LINES",
    "LONG_WORD",
    "MARKDOWN",
    "NEAR_DIGITS",
    "NEWLINES",
    "QUOTED",
    "QUOTES",
    "SLICE",
    "SPACE",
    "SYMBOL",
    "URLS",
]

QUOTES = 0
"""Curly quotation marks become straight ones."""
NEWLINES = 1
"""Runs of three or more newlines become two."""
URLS = 2
"""Web addresses are removed."""
CONTROLS = 3
"""Control characters are removed; a carriage return becomes a newline."""
BLANKS = 4
"""Runs of spaces and tabs become one space, or nothing at the end of a line."""
MARKDOWN = 5
"""Marks of bold, italic and underlined text are removed; links become their address."""
LINES = 6
"""Lines that equal one of some texts are removed."""
QUOTED = 7
"""Quotation marks around a whole text are removed."""
SLICE = 8
"""A part of each text is kept."""
LABEL = 9
"""A label is put before each text, and its lines are joined."""

ANYWHERE = 0
"""Needles are looked for everywhere."""
NEAR_DIGITS = 1
"""Needles are found only where a digit is among the next 64 bytes, or further on."""
IN_LONG_WORDS = 2
"""Needles are found only where the next :data:`LONG_WORD` bytes are neither white space nor control characters."""
LONG_WORD = 16

SYMBOL = 0
"""A byte that is a unit of its own, see :mod:`tamis.kernels.text_units`."""
LETTER = 1
"""A byte of a unit of several."""
JOINED = 2
"""The first byte of a character of two, which is a letter."""
LEAD = 3
"""The first byte of a character that is a unit of its own."""
SPACE = 4
"""A byte between units."""
