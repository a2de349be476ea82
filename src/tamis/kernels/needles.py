"""Finds the texts of a column that contain one of some short strings, at about the speed of reading them.

The work is done by the native kernel :mod:`tamis.kernels.sources.needles`; see there how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import native, operations
from tamis.kernels.buffers import PADDING, TextBuffers

__all__ = ["Needles", "any_case", "digits", "exactly", "rows_with"]

Letter: TypeAlias = tuple[int, int, int]
"""Bits that are first set in a byte, then the lowest and the highest byte that match."""

_LONGEST = 64
_PER_MILLE: dict[int, int] = dict(zip(b" etaoinshrdlucmfwygpbvkxjqz", (170, 100, *range(72, 0, -3)), strict=False))
"""How often bytes occur in text, roughly; others are rarer."""


@dataclass(frozen=True)
class Needles:
    """The strings to find, in the form that the kernel takes."""

    letters: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    where: int

    @classmethod
    def of(cls, *needles: list[Letter], where: int = operations.ANYWHERE) -> Needles:
        """Needles, each given by its letters (at most 64), and where to look for them."""
        letters: list[tuple[int, int, int, int]] = []
        sizes: list[int] = []
        for needle in needles:
            if not 0 < len(needle) <= _LONGEST:
                raise ValueError(f"a needle has 1 to {_LONGEST} bytes, not {len(needle)}")
            placed = [(place, bits, low, high - low) for place, (bits, low, high) in enumerate(needle)]
            letters += sorted(placed, key=_rarity) if len(placed) > 1 else placed * 2
            sizes += [len(needle), len(letters)]
        return cls(np.array(letters, np.uint8).reshape(-1), np.array(sizes, np.int64), where)


def exactly(text: str) -> list[Letter]:
    """The letters of a text."""
    return [(0, byte, byte) for byte in text.encode()]


def any_case(text: str) -> list[Letter]:
    """The letters of a text, ASCII letters in either case (some marks match others, too)."""
    return [(32, byte | 32, byte | 32) if byte < 0x80 else (0, byte, byte) for byte in text.encode()]


def digits(count: int) -> list[Letter]:
    """This many ASCII digits."""
    return [(0, ord("0"), ord("9"))] * count


def rows_with(array: pa.Array, needles: Needles) -> NDArray[np.int64] | None:
    """The rows whose text contains one of the needles; ``None`` as long as the kernel is not compiled."""
    kernel = native.load("needles")
    if kernel is None:
        return None
    texts = TextBuffers.of(array)
    found = np.zeros(len(texts), np.uint8)
    count = kernel(
        *(texts.data, texts.offsets, len(texts), len(texts.data)),
        *(needles.letters, needles.sizes, len(needles.sizes) // 2, needles.where),
        *(np.empty(3 * PADDING, np.uint8), found),
    )
    if count and array.null_count:
        found &= np.asarray(array.is_valid())
    return np.flatnonzero(found)


def _rarity(letter: tuple[int, int, int, int]) -> float:
    """A sort key: higher for bytes that occur more often."""
    _, bits, low, span = letter
    return sum(_PER_MILLE.get(byte, 2 if bits else 1) for byte in range(low, low + span + 1))
