"""Finds lines that may need repair, at the speed of reading if there are none.

The work is done by the native kernel :mod:`tamis.kernels.sources.suspects`; see there how.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.buffers import TextBuffers

__all__ = ["KINDS", "CharacterMask", "Marks", "NormalForm", "Patterns", "find_lines", "marks_of"]

NormalForm: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]

CharacterMask: TypeAlias = "NDArray[np.bool_]"
"""Some characters: one value for each of the first 65,536, and one for all others together."""

KINDS = 0x10001
"""The length of a :data:`CharacterMask`."""

_MOST_PLACES = 128
_OUT_OF_ORDER = 255


@dataclass(frozen=True)
class Patterns:
    """Sequences of characters to find, in the form that the kernel takes."""

    kinds: NDArray[np.uint8]
    masks: NDArray[np.uint64]
    bits: NDArray[np.uint64]
    context: int

    @classmethod
    def none(cls) -> Patterns:
        """No patterns at all."""
        return cls(np.zeros(KINDS, np.uint8), np.zeros(2, np.uint64), np.zeros(8, np.uint64), 0)

    @classmethod
    def of(cls, sequences: Sequence[Sequence[CharacterMask]], at_beginning: Sequence[bool]) -> Patterns | None:
        """Patterns, each a sequence of sets of characters; ``None`` if there are too many.

        Args:
            sequences: For each pattern, the characters of each place.
            at_beginning: For each pattern, whether it counts only at the beginning of a line.
        """
        places = [place for sequence in sequences for place in sequence]
        if len(places) > _MOST_PLACES:
            return None
        members = np.zeros((KINDS, _MOST_PLACES), np.bool_)
        for number, place in enumerate(places):
            members[:, number] = place
        packed = np.packbits(members, axis=1, bitorder="little")
        distinct, kinds = np.unique(packed.view("V16").reshape(-1), return_inverse=True)
        if len(distinct) > 256:
            return None
        flags = np.zeros((4, _MOST_PLACES), np.bool_)  # the order of the kernel's argument "bits"
        context = number = 0
        for sequence, anchored in zip(sequences, at_beginning, strict=True):
            prefix = next((i for i, place in enumerate(sequence) if not place[:0x80].any()), len(sequence))
            flags[1 if anchored else 0, number] = True
            flags[2, number + len(sequence) - 1] = True
            flags[3, number : number + prefix] = True
            context = max(context, min(prefix, len(sequence) - 1))
            number += len(sequence)
        bits = np.packbits(flags, axis=1, bitorder="little").view(np.uint64).reshape(-1)
        return cls(kinds.astype(np.uint8).reshape(-1), distinct.view(np.uint64).copy(), bits.copy(), context)


@dataclass(frozen=True)
class Marks:
    """For each character its canonical combining class, or 255 if a normal form may not contain it."""

    blocks: NDArray[np.uint8]
    values: NDArray[np.uint8]


_ANY_LINE = 1 << 62
_NO_MARKS = Marks(np.zeros(1, np.uint8), np.zeros(1, np.uint8))


def find_lines(
    array: pa.Array,
    patterns: Patterns,
    marks: Marks | None = None,
    entities: int = 0,
    longest_line: int = _ANY_LINE,
) -> NDArray[np.int64] | None:
    """The lines with a pattern, an entity, or marks that are not in the order of a normal form.

    Returns four numbers for each line: its row, where in the text it begins and ends (with its newline), in bytes, and
    whether the text before that end contains a "<" (only if entities depend on it). ``None`` as long as the kernel is
    not compiled.

    Args:
        array: Texts.
        patterns: The patterns to find.
        marks: The marks of a normal form, if one is wanted.
        entities: 1 if HTML entities count, 2 if they count up to the first line with a "<", 0 if they do not.
        longest_line: In bytes. A text with a longer line is returned as a whole, with the end -1, if anything is found
            in it or it is not all ASCII.
    """
    kernel = native.load("suspects")
    if kernel is None:
        return None
    texts = TextBuffers.of(array)
    scratch = texts.tail()
    found = np.empty((1024, 4), np.int64)
    next_row = np.zeros(1, np.int64)
    parts = []
    while True:
        row = int(next_row[0])
        count = kernel(
            *(texts.data, texts.offsets, len(texts), row, len(texts.data)),
            *(patterns.kinds, patterns.masks, patterns.bits, patterns.context, entities, longest_line),
            *((marks or _NO_MARKS).blocks, (marks or _NO_MARKS).values, int(marks is not None)),
            *(scratch, found, len(found), next_row),
        )
        parts.append(found[:count].copy())
        if next_row[0] == len(texts):
            lines = np.concatenate(parts)
            if array.null_count:
                lines = lines[np.asarray(array.is_valid())[lines[:, 0]]]
            return lines
        if next_row[0] == row:
            found = np.empty((len(found) * 8, 4), np.int64)


@functools.cache
def marks_of(form: NormalForm) -> Marks:
    """The marks of a normal form: ``NFC``, ``NFD``, ``NFKC`` or ``NFKD``.

    This is the quick check of Unicode Standard Annex 15, made from Python's own tables.
    """
    values = np.zeros(0x110000, np.uint8)
    later: set[int] = set()
    for first, last in _WITH_DECOMPOSITIONS:
        for code_point in range(first, last + 1):
            character = chr(code_point)
            values[code_point] = unicodedata.combining(character)
            if unicodedata.normalize(form, character) != character:
                values[code_point] = _OUT_OF_ORDER
            parts = unicodedata.decomposition(character)
            if parts and not parts.startswith("<"):
                later.update(int(part, 16) for part in parts.split()[1:])
    if form in ("NFD", "NFKD"):
        values[0xAC00:0xD7A4] = _OUT_OF_ORDER  # Hangul syllables
    else:
        values[list(later)] = _OUT_OF_ORDER  # may combine with the character before it
        values[0x1161:0x1176] = values[0x11A8:0x11C3] = _OUT_OF_ORDER  # vowels and consonants of Hangul syllables
    every = values.tobytes()
    numbers: dict[bytes, int] = {}
    blocks = [numbers.setdefault(every[at : at + 256], len(numbers)) for at in range(0, len(every), 256)]
    return Marks(np.array(blocks, np.uint8), np.frombuffer(b"".join(numbers), np.uint8).copy())


# Ideographs, Hangul syllables, surrogates, private use and planes without characters are left out.
_WITH_DECOMPOSITIONS = ((0x80, 0x33FF), (0xA000, 0xABFF), (0xF900, 0x1FFFF), (0x2F800, 0x2FA1F), (0xE0000, 0xE01FF))
