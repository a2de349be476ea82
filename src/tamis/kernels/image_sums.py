"""The whole numbers that are counted in a picture, and where the native kernel puts each."""

from __future__ import annotations

from typing import Final

__all__ = ["BORDER_TOLERANCE", "COLORS", "SUMS"]

BORDER_TOLERANCE: Final = 16
"""How far the values of a channel may be apart, of 0 to 255, for lines of pixels to count as uniform."""

COLORS: Final = 4096
"""Colours that are told apart where they are counted: 4 bits per channel."""

SUMS: Final = 13
RED_GREEN, RED_GREEN_SQUARES, YELLOW_BLUE, YELLOW_BLUE_SQUARES = range(4)
LAPLACE, LAPLACE_SQUARES, NOISE = range(4, 7)
RIGHT_EQUAL, BELOW_EQUAL = range(7, 9)
TOP, BOTTOM, LEFT, RIGHT = range(9, SUMS)
