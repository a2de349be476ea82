"""What the kernel that changes texts can do to them: see :mod:`tamis.kernels.cleaning`."""

from __future__ import annotations

__all__ = ["BLANKS", "CONTROLS", "LABEL", "LINES", "MARKDOWN", "NEWLINES", "QUOTED", "QUOTES", "SLICE", "URLS"]

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
"""A label is put before each text, which is made one line."""
