"""The parameters of each native kernel. Its compiled code and the check of every call are made from this description.

The parameters are those of the function ``kernel`` in the module of :mod:`tamis.kernels.sources` with the kernel's
name, which explains them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import operations
from tamis.kernels.arguments import Array, Arrays, Number, Signature
from tamis.kernels.measures import MEASURES

__all__ = ["PADDING", "SIGNATURES", "longest_near_end"]

PADDING: Final = 128
"""Bytes after a text that a kernel may read. If there are fewer, it reads a copy."""

_CHARACTER_BLOCKS: Final = 0x1100
"""Unicode in blocks of 256 characters."""

_ALL_ROWS: Final = ("0 <= first_row <= row_count",)


def longest_near_end(offsets: NDArray[np.int64], readable: int) -> int:
    """The size of the longest text that ends less than :data:`PADDING` bytes before the end of a buffer.

    Args:
        offsets: Where each text begins, and where the last one ends.
        readable: The size of the buffer.

    >>> longest_near_end(np.array([0, 100, 130, 140]), 140)
    100
    >>> longest_near_end(np.array([0, 100, 130, 140]), 400)
    0
    """
    first = int(np.searchsorted(offsets[1:], readable - PADDING, side="right"))
    return int(np.diff(offsets[first:]).max(initial=0))


def _bytes(length: str, is_written: bool = False) -> Array:
    return Array("uint8", length, is_written)


def _integers(length: str, is_written: bool = False) -> Array:
    return Array("int64", length, is_written)


def _words(length: str, is_written: bool = False) -> Array:
    return Array("uint64", length, is_written)


def _floats(length: str, is_written: bool = False) -> Array:
    return Array("float64", length, is_written)


_OFFSETS_INSIDE: Final = ("0 <= offsets[0] <= offsets[row_count] <= readable",)

SIGNATURES: Final[dict[str, Signature]] = {
    "heuristics": Signature(
        conditions=(
            "0 <= offsets[0] <= offsets[-1] <= len(texts)",
            "0 <= rows.min(initial=0) and rows.max(initial=-1) < len(offsets) - 1",
            "blocks.max() < len(flags) // 256",
            f"-1 <= operands.min(initial=0) and operands.max(initial=0) < {MEASURES} + 2 * ngram_count",
            *_ALL_ROWS,
        ),
        texts=_bytes("0"),
        offsets=_integers("1"),
        rows=_integers("row_count"),
        row_count=Number(),
        first_row=Number(),
        check_count=Number(),
        operands=_integers("2 * check_count"),
        parameters=_floats("5 * check_count"),
        ngrams=_integers("2 * ngram_count"),
        ngram_count=Number(),
        blocks=_bytes(f"{_CHARACTER_BLOCKS}"),
        flags=_bytes("256"),
        vocabulary=_words("65"),
        phrases=_bytes("phrase_ends[phrase_count - 1]"),
        phrase_ends=_integers("phrase_count"),
        phrase_count=Number(),
        anchor_count=Number(),
        scratch=_bytes("scratch_bytes", is_written=True),
        scratch_bytes=Number(),
        scores=_floats("check_count * row_count", is_written=True),
        failed=_integers("row_count", is_written=True),
        needed=_integers("1", is_written=True),
    ),
    "json_census": Signature(
        data=_bytes("size"),
        size=Number(),
        names=_bytes("name_ends[name_count - 1] if name_count else 0"),
        name_ends=_integers("name_count"),
        name_count=Number(),
        most_levels=Number(),
        tail=_bytes(f"{2 * PADDING}", is_written=True),
        counts=_integers("6", is_written=True),
        seen=_words("1024", is_written=True),
    ),
    "json_rows": Signature(
        conditions=("size == 0 or text[size - 1] == 10", "0 <= first_row <= most_rows", "0 < key_count <= 64"),
        text=_bytes("size + 64"),
        size=Number(),
        first_row=Number(),
        most_rows=Number(),
        keys=_bytes("key_ends[key_count - 1]"),
        key_ends=_integers("key_count"),
        wanted=_bytes("key_count"),
        key_count=Number(),
        values=Arrays("uint8", f"int(used.max()) + size + {PADDING}", is_written=True, count="key_count"),
        used=_integers("key_count", is_written=True),
        offsets=_integers("key_count * (most_rows + 1)", is_written=True),
        validity=_bytes("key_count * most_rows", is_written=True),
        kinds=_integers("key_count", is_written=True),
    ),
    "json_text": Signature(
        conditions=_ALL_ROWS,
        first_row=Number(),
        row_count=Number(),
        column_count=Number(),
        heads=_bytes("head_ends[column_count - 1]"),
        head_ends=_integers("column_count"),
        are_text=_bytes("column_count"),
        data=Arrays("uint8", "0", count="column_count"),
        begins=Arrays("int64", "row_count", count="column_count"),
        ends=Arrays("int64", "row_count", count="column_count"),
        validity=Arrays("uint8", "row_count", count="column_count", is_optional=True),
        readable=_integers("column_count"),
        scratch=_bytes(f"{2 * PADDING}", is_written=True),
        lines=_bytes("capacity", is_written=True),
        capacity=Number(),
        next_row=_integers("1", is_written=True),
    ),
    "line_starts": Signature(
        conditions=("0 <= first <= size",),
        data=_bytes("size"),
        size=Number(),
        first=Number(),
        tail=_bytes(f"{2 * PADDING}", is_written=True),
        starts=_integers("room", is_written=True),
        room=Number(),
        next_byte=_integers("1", is_written=True),
    ),
    "suspects": Signature(
        conditions=(
            *_OFFSETS_INSIDE,
            *_ALL_ROWS,
            "kinds.max() < len(masks) // 2",
            "not marks or blocks.max() < len(values) // 256",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        first_row=Number(),
        readable=Number(),
        kinds=_bytes("0x10001"),
        masks=_words("2"),
        bits=_words("8"),
        context=Number(),
        entities=Number(),
        longest_line=Number(),
        blocks=_bytes(f"{_CHARACTER_BLOCKS} if marks else 1"),
        values=_bytes("256 if marks else 1"),
        marks=Number(),
        scratch=_bytes(f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}", is_written=True),
        found=_integers("4 * room", is_written=True),
        room=Number(),
        next_row=_integers("1", is_written=True),
    ),
    "anchors": Signature(
        conditions=(
            "0 <= offsets[0] <= offsets[row_count] and offsets[row_count] * width <= len(data)",
            "width == 1 or width == 8",
            "1 <= piece <= window",
            "recent_count >= 2 * (window - piece + 1) and recent_count & (recent_count - 1) == 0",
            "1 <= room",
            *_ALL_ROWS,
        ),
        data=_bytes("0"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        width=Number(),
        window=Number(),
        piece=Number(),
        first_row=Number(),
        first_window=Number(),
        secret=_bytes("192"),
        accumulators=_words("8", is_written=True),
        recent=_words("recent_count", is_written=True),
        recent_count=Number(),
        room=Number(),
        keys=_words("room", is_written=True),
        spans=_words("2 * room", is_written=True),
        starts=_integers("room", is_written=True),
        counts=_integers("room", is_written=True),
        next_window=_integers("2", is_written=True),
    ),
    "window_hashes": Signature(
        conditions=(
            "width == 1 or width == 8",
            "1 <= window",
            "0 <= starts[:run_count].min(initial=0) and 0 <= counts[:run_count].min(initial=0)",
            "run_count == 0 or ((starts[:run_count] + counts[:run_count]).max() + window - 1) * width <= len(data)",
        ),
        data=_bytes("0"),
        width=Number(),
        window=Number(),
        starts=_integers("run_count"),
        counts=_integers("run_count"),
        run_count=Number(),
        hashes=_words("2 * int(counts[:run_count].sum())", is_written=True),
    ),
    "hash_order": Signature(
        conditions=("skipped < 64", "not ends.any()"),
        hashes=_words("count"),
        count=Number(),
        skipped=Number(),
        ends=_integers("6144", is_written=True),
        keys=_words("count", is_written=True),
        places=_integers("count", is_written=True),
        other_keys=_words("count", is_written=True),
        other_places=_integers("count", is_written=True),
    ),
    "span_removal": Signature(
        conditions=(
            "0 <= offsets[0] <= offsets[row_count] <= len(texts)",
            "span_count == 0 or offsets[0] <= begins[0] and ends[span_count - 1] <= offsets[row_count]",
            "(begins[:span_count] <= ends[:span_count]).all()",
            "span_count < 2 or (ends[:span_count - 1] <= begins[1:span_count]).all()",
        ),
        texts=_bytes("0"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        begins=_integers("span_count"),
        ends=_integers("span_count"),
        span_count=Number(),
        made=_bytes("int(offsets[row_count] - offsets[0])", is_written=True),
        made_offsets=_integers("row_count + 1", is_written=True),
    ),
    "cleaning": Signature(
        conditions=_OFFSETS_INSIDE,
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        readable=Number(),
        operation=Number(),
        letters=_bytes("8"),
        numbers=_integers("1"),
        words=_words("1"),
        scratch=_bytes(f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}", is_written=True),
        made=_bytes(
            f"int(offsets[row_count] - offsets[0]) + {2 * PADDING}"
            f" + (row_count * (int(numbers[0]) + 1) if operation == {operations.LABEL} else 0)",
            is_written=True,
        ),
        ends=_integers("row_count + 1", is_written=True),
    ),
    "needles": Signature(
        conditions=_OFFSETS_INSIDE,
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        readable=Number(),
        letters=_bytes("4 * sizes[2 * needle_count - 1]"),
        sizes=_integers("2 * needle_count"),
        needle_count=Number(),
        where=Number(),
        scratch=_bytes(f"{3 * PADDING}", is_written=True),
        found=_bytes("row_count", is_written=True),
    ),
    "xxh3": Signature(
        conditions=("0 <= offsets[0] <= offsets[row_count] <= len(data)", "width == 1 or width == 2"),
        data=_bytes("0"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        secret=_bytes("192"),
        accumulators=_words("8", is_written=True),
        width=Number(),
        hashes=_words("width * row_count", is_written=True),
    ),
}
"""All kernels by name."""
