"""The parameters of each native kernel. Its compiled code and the check of every call are made from this description.

The parameters are those of the function ``kernel`` in the module of :mod:`tamis.kernels.sources` with the kernel's
name, which explains them.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _short_integers(length: str, is_written: bool = False) -> Array:
    return Array("int32", length, is_written)


def _words(length: str, is_written: bool = False) -> Array:
    return Array("uint64", length, is_written)


def _floats(length: str, is_written: bool = False) -> Array:
    return Array("float64", length, is_written)


def _joining(nodes: Callable[..., Array]) -> Signature:
    """Nodes of one of two widths, joined along edges."""
    return Signature(
        left=nodes("edge_count"),
        right=nodes("edge_count"),
        edge_count=Number(),
        parents=nodes("node_count", is_written=True),
        node_count=Number(),
        joined=_bytes("edge_count if marks else 0", is_written=True),
        marks=Number(),
        flatten=Number(),
    )


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
    "bloom": Signature(
        conditions=("0 < bits <= 64 * len(words)",),
        hashes=_words("count"),
        count=Number(),
        words=_words("1", is_written=True),
        bits=Number(),
        probes=Number(),
        found=_bytes("count", is_written=True),
    ),
    "components": _joining(_integers),
    "components_32": _joining(_short_integers),
    "node_index": Signature(
        conditions=(
            "0 <= first <= id_count",
            "places == 1 << (64 - shift) and 0 < shift < 64",
            "node_count[0] <= room < places",
        ),
        ids=_words("id_count"),
        id_count=Number(),
        first=Number(),
        table=_short_integers("places", is_written=True),
        places=Number(),
        shift=Number(),
        nodes=_words("room", is_written=True),
        node_count=_integers("1", is_written=True),
        room=Number(),
        numbers=_short_integers("id_count", is_written=True),
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
