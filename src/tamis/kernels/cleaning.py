"""Changes the texts of a column: one pass that reads them, and copies them only if one of them changes.

The work is done by the native kernel :mod:`tamis.kernels.sources.cleaning`; see there how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import native, operations
from tamis.kernels.buffers import PADDING, TextBuffers

__all__ = ["Cleaning", "clean", "clean_array", "put_label", "remove_lines", "rows_replaced", "take_slice"]

_NOTHING: NDArray[np.uint8] = np.zeros(8, np.uint8)
_SIZE_SHIFT = 48
_MOST_SIZES = 8
_LARGEST_SIZE = 60


@dataclass(frozen=True)
class Cleaning:
    """An operation on texts, with its parameters.

    Args:
        operation: One of :mod:`tamis.kernels.operations`.
        letters, numbers, words: Its parameters, in the form that the kernel takes.
        growth: How many bytes longer a text may become.
    """

    operation: int
    letters: NDArray[np.uint8] = field(default_factory=lambda: _NOTHING)
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    words: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(1, np.uint64))
    growth: int = 0


def clean(column: pa.ChunkedArray, cleaning: Cleaning) -> pa.ChunkedArray | None:
    """The changed column, or the column itself if nothing changes; ``None`` as long as the kernel is not compiled."""
    chunks, given = [], column.chunks  # each access makes new objects
    for chunk in given:
        changed = clean_array(chunk, cleaning)
        if changed is None:
            return None
        chunks.append(changed)
    if all(new is old for new, old in zip(chunks, given, strict=True)):
        return column
    return pa.chunked_array(chunks, column.type)


def clean_array(array: pa.Array, cleaning: Cleaning) -> pa.Array | None:
    """Like :func:`clean`, for an array."""
    kernel = native.load("cleaning")
    if kernel is None:
        return None
    texts = TextBuffers.of(array)
    buffer = pa.allocate_buffer(texts.nbytes + len(texts) * cleaning.growth + 2 * PADDING)
    made = np.frombuffer(buffer, np.uint8)
    ends = np.empty(len(texts) + 1, np.int64)
    size = kernel(
        *(texts.data, texts.offsets, len(texts), len(texts.data)),
        *(cleaning.operation, cleaning.letters, cleaning.numbers, cleaning.words),
        *(texts.tail(), made, ends),
    )
    return array if size < 0 else _array_of(array, ends, buffer.slice(0, size))


def rows_replaced(array: pa.Array, texts: dict[int, str]) -> pa.Array:
    """An array with other texts in some rows; the array itself if there are none.

    >>> rows_replaced(pa.array(["a", "b", None]), {1: "c"}).to_pylist()
    ['a', 'c', None]
    """
    if not texts:
        return array
    before = TextBuffers.of(array)
    new = {row: text.encode() for row, text in sorted(texts.items())}
    sizes = np.diff(before.offsets)
    sizes[list(new)] = [len(text) for text in new.values()]
    ends = np.zeros(len(before) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    buffer = pa.allocate_buffer(int(ends[-1]))
    data = np.frombuffer(buffer, np.uint8)
    done = 0
    for row, text in new.items():
        data[ends[done] : ends[row]] = before.data[before.offsets[done] : before.offsets[row]]
        data[ends[row] : ends[row + 1]] = np.frombuffer(text, np.uint8)
        done = row + 1
    data[ends[done] :] = before.data[before.offsets[done] : before.offsets[-1]]
    return _array_of(array, ends, buffer)


def remove_lines(lines: Sequence[str]) -> Cleaning:
    """Remove the lines that equal one of these."""
    listed = sorted({line.encode() for line in lines if "\n" not in line}, key=_key)
    sizes = sorted({len(line) for line in listed})
    if len(sizes) > _MOST_SIZES or max(sizes, default=0) > _LARGEST_SIZE:
        sizes = []
    begins = np.cumsum([0, *map(len, listed)]).tolist()
    return Cleaning(
        operations.LINES,
        letters=_letters(*listed),
        numbers=np.array([len(listed), len(sizes), *begins, *sizes], np.int64),
        words=np.array([*map(_key, listed), 0], np.uint64),
    )


def take_slice(
    left: int | str | None, right: int | str | None, include_left: bool, include_right: bool, strip: bool
) -> Cleaning:
    """Keep a part of each text: see :class:`tamis.stages.text.modifiers.Slicer`."""
    needles = [end.encode() for end in (left, right) if isinstance(end, str)]
    numbers = [*_end(left, include_left), *_end(right, include_right), int(strip)]
    return Cleaning(operations.SLICE, letters=_letters(*needles), numbers=np.array(numbers, np.int64))


def put_label(label: str) -> Cleaning:
    """Put a label before each text, and join its lines."""
    encoded = label.encode()
    size = np.array([len(encoded)], np.int64)
    return Cleaning(operations.LABEL, letters=_letters(encoded), numbers=size, growth=len(encoded) + 1)


def _end(given: int | str | None, included: bool) -> tuple[int, int, int]:
    if given is None:
        return 0, 0, 0
    if isinstance(given, str):
        return 2, len(given.encode()), int(included)
    return 1, given, 0


def _letters(*parts: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join([*parts, bytes(8)]), np.uint8).copy()


def _key(line: bytes) -> int:
    """The key that the kernel computes: the first eight bytes, with the size mixed in."""
    return int.from_bytes(line[:8], "little") ^ (len(line) << _SIZE_SHIFT & (1 << 64) - 1)


def _array_of(before: pa.Array, ends: NDArray[np.int64], data: pa.Buffer) -> pa.Array:
    """An array with the nulls of another."""
    validity = None
    if before.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(before.is_valid()), bitorder="little"))
    made = pa.Array.from_buffers(
        pa.large_string(), len(before), [validity, pa.py_buffer(ends), data], before.null_count
    )
    return made.cast(before.type)
