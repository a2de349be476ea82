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
from tamis.kernels.hashed_words_definition import COUNTED, SIZES, TOTAL_BUCKETS
from tamis.kernels.image_sums import COLORS, SUMS
from tamis.kernels.measures import MEASURES

__all__ = ["PADDING", "SIGNATURES", "longest_near_end", "most_shingles"]

PADDING: Final = 128
"""Bytes after a text that a kernel may read. If there are fewer, it reads a copy."""

_CHARACTER_BLOCKS: Final = 0x1100
"""Unicode in blocks of 256 characters."""

_CHARACTERS: Final = 0x110000
"""Unicode, character by character."""

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


def _halves(length: str, is_written: bool = False) -> Array:
    return Array("uint32", length, is_written)


def _floats(length: str, is_written: bool = False) -> Array:
    return Array("float64", length, is_written)


def _short_floats(length: str, is_written: bool = False) -> Array:
    return Array("float32", length, is_written)


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


def most_shingles(offsets: NDArray[np.int64], by_words: int, ngram: int) -> NDArray[np.int64]:
    """How many n-grams of characters or words each text can have, given its bytes; at least one.

    Args:
        offsets: Where each text begins, and where the last one ends.
        by_words: Whether n-grams are of words.
        ngram: How many.

    >>> most_shingles(np.array([0, 9, 9]), by_words=1, ngram=2).tolist()
    [4, 1]
    """
    items: NDArray[np.int64] = np.diff(offsets)
    most: NDArray[np.int64] = np.maximum(((items + 1) // 2 if by_words else items) - ngram + 1, 1)
    return most


def weights_inside(begins: NDArray[np.int64], counts: NDArray[np.int64], count: int, taps: int, size: int) -> bool:
    """Whether weights are for pixels that are there.

    Args:
        begins, counts: From which pixel on, and for how many.
        count: How many sums there are.
        taps: How many weights a sum has at most.
        size: How many pixels there are.

    >>> begins, counts = np.array([0, 1]), np.array([2, 2])
    >>> weights_inside(begins, counts, 2, 2, 3), weights_inside(begins, counts, 2, 2, 2)
    (True, False)
    """
    first, many = begins[:count], counts[:count]
    return bool((first >= 0).all() and (many >= 0).all() and (many <= taps).all() and (first + many <= size).all())


def longest_text(offsets: NDArray[np.int64]) -> int:
    """The size of the longest text.

    Args:
        offsets: Where each text begins, and where the last one ends.

    >>> longest_text(np.array([0, 9, 12]))
    9
    """
    return int(np.diff(offsets).max(initial=0))


_OFFSETS_INSIDE: Final = ("0 <= offsets[0] <= offsets[row_count] <= readable",)

_TAIL: Final = f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}"
_SHINGLES: Final = ("room >= 64", "ngram > 0")
_SHINGLE_PARAMETERS: Final[dict[str, Array | Number]] = {
    "by_words": Number(),
    "ngram": Number(),
    "mixing": _words("2"),
    "room": Number(),
}

_TOKEN_CONDITIONS: Final = (
    *_OFFSETS_INSIDE,
    "0 <= first_row <= row_count",
    "0 < cache_shift < 64 and len(cache) == 64 << (64 - cache_shift)",
    "0 < trie_shift < 64 and len(trie) == 8 << (64 - trie_shift)",
    "bitmap_words >= longest_text(offsets[:row_count + 1]) // 64 + 2",
    "limit < 1 << 62",
)


def _token_parameters(bitmaps: int) -> dict[str, Array | Number]:
    """The parameters that the kernels that tokenise have in common."""
    return {
        "texts": _bytes("readable"),
        "offsets": _integers("row_count + 1"),
        "row_count": Number(),
        "readable": Number(),
        "first_row": Number(),
        "scratch": _bytes(_TAIL, is_written=True),
        "bitmaps": _words(f"{bitmaps} * bitmap_words", is_written=True),
        "bitmap_words": Number(),
        "pieces": _integers("96", is_written=True),
        "cache": _bytes("64", is_written=True),
        "cache_shift": Number(),
        "before": _short_integers("before_count"),
        "before_count": Number(),
        "after": _short_integers("after_count"),
        "after_count": Number(),
        "limit": Number(),
        "is_kept": Number(),
        "left_out": _bytes("row_count", is_written=True),
        "counts": _integers("row_count", is_written=True),
        "ids": _short_integers("room", is_written=True),
        "room": Number(),
        "trie": _words("8"),
        "trie_shift": Number(),
        "tokens": _short_integers("node_count"),
        "node_count": Number(),
        "kinds": _bytes(f"{_CHARACTERS}"),
    }


_UNITS_INSIDE: Final = "0 <= counts[:row_count].min(initial=0) and counts[:row_count].sum() <= len(hashes)"
_VECTORS_INSIDE: Final = (
    "0 <= ends[0] <= ends[vector_count] <= min(len(slots), len(values))",
    "0 <= rows[:row_count].min(initial=0) and rows[:row_count].max(initial=-1) < vector_count",
    "slot_count > 0 and slot_count & (slot_count - 1) == 0",
)
_VECTORS: Final[dict[str, Array | Number]] = {
    "slots": _halves("0"),
    "values": _short_floats("0"),
    "ends": _integers("vector_count + 1"),
    "vector_count": Number(),
    "rows": _integers("row_count"),
    "row_count": Number(),
}

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
    "fasttext": Signature(
        conditions=(
            *_OFFSETS_INSIDE,
            "(offsets[:row_count] <= ends[:row_count]).all() and (ends[:row_count] <= offsets[1:row_count + 1]).all()",
            "int((ends[:row_count] - offsets[:row_count]).max(initial=0)) <= longest",
            "slot_count & (slot_count - 1) == 0 and entry_count < slot_count",
            "line_end <= word_count <= entry_count and word_count <= vector_count and dim % 8 == 0",
            "buckets > 0 or (most == 0 and word_ngrams <= 1)",
            "is_pruned or word_count + buckets <= vector_count",
            "not is_pruned or word_count + int(kept[:buckets].max(initial=-1)) < vector_count",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        ends=_integers("row_count"),
        row_count=Number(),
        readable=Number(),
        longest=Number(),
        slots=_words("2 * slot_count"),
        slot_count=Number(),
        words=_bytes("(word_ends[entry_count - 1] if entry_count else 0) + 8"),
        word_ends=_integers("entry_count"),
        entry_count=Number(),
        word_count=Number(),
        hashes=_halves("word_count"),
        sizes=_short_integers("word_count"),
        is_summed=Number(),
        line_end=Number(),
        least=Number(),
        most=Number(),
        word_ngrams=Number(),
        buckets=Number(),
        kept=_short_integers("buckets if is_pruned else 0"),
        is_pruned=Number(),
        vectors=_short_floats("vector_count * dim"),
        vector_count=Number(),
        dim=Number(),
        weights=_short_floats("dim * output_count"),
        scales=_short_floats("output_count"),
        output_count=Number(),
        scratch=_bytes(f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}", is_written=True),
        word=_bytes(f"longest + 2 + {PADDING}", is_written=True),
        text_hashes=_halves("longest // 2 + 2 if word_ngrams > 1 else 0", is_written=True),
        queue=_words("256", is_written=True),
        rows=_integers("1024 + most", is_written=True),
        sums=_short_floats("2049 * dim", is_written=True),
        sum_keys=_words("4 * 2048", is_written=True),
        hidden=_short_floats("dim", is_written=True),
        outputs=_short_floats("row_count * output_count", is_written=True),
        counts=_integers("row_count", is_written=True),
    ),
    "fasttext_words": Signature(
        conditions=("slot_count & (slot_count - 1) == 0 and word_count < slot_count", "not slots.any()"),
        words=_bytes("(word_ends[word_count - 1] if word_count else 0) + 8"),
        word_ends=_integers("word_count"),
        word_count=Number(),
        slots=_words("2 * slot_count", is_written=True),
        slot_count=Number(),
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
    "languages": Signature(
        conditions=(
            *_OFFSETS_INSIDE,
            "(offsets[:row_count] <= ends[:row_count]).all() and (ends[:row_count] <= offsets[1:row_count + 1]).all()",
            "0 < pieces <= sample",
            "4 <= unknown < 4096 and 0 <= int(languages.min()) and int(languages.max()) <= unknown",
            "int((characters >> 20).max()) <= unknown and int((characters >> 16 & 15).max()) <= 8",
            "len(slots) == 4 * (bucket_mask + 1) and bucket_mask & (bucket_mask + 1) == 0",
            "(0xFFFFFFFF ^ key_mask) < value_count",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        ends=_integers("row_count"),
        row_count=Number(),
        readable=Number(),
        pieces=Number(),
        sample=Number(),
        sample_percent=Number(),
        percent=Number(),
        least_letters=Number(),
        characters=_halves("0x10000"),
        vowels=_bytes("256"),
        slots=_halves("4"),
        bucket_mask=Number(),
        key_mask=Number(),
        values=_halves("value_count"),
        value_count=Number(),
        weights=_bytes("768"),
        languages=_short_integers("512"),
        unknown=Number(),
        scratch=_bytes(f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}", is_written=True),
        word=_bytes("320", is_written=True),
        pending=_integers("768", is_written=True),
        tote=_integers("512", is_written=True),
        touched=_integers("520", is_written=True),
        counts=_integers("24", is_written=True),
        found=_integers("2 * unknown + 2", is_written=True),
        results=_integers("6 * row_count", is_written=True),
    ),
    "image_measures": Signature(
        conditions=("0 < width and 0 < height",),
        pixels=_bytes("3 * width * height"),
        height=Number(),
        width=Number(),
        luma=_bytes("width * height", is_written=True),
        luma_counts=_integers("256", is_written=True),
        spread_counts=_integers("256", is_written=True),
        color_counts=_integers(f"{COLORS}", is_written=True),
        sums=_integers(f"{SUMS}", is_written=True),
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
    "shingles": Signature(
        conditions=(*_OFFSETS_INSIDE, *_SHINGLES),
        helpers={"longest_near_end": longest_near_end, "most_shingles": most_shingles},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        readable=Number(),
        **_SHINGLE_PARAMETERS,
        scratch=_bytes(_TAIL, is_written=True),
        items=_words("room + ngram", is_written=True),
        state=_integers("8", is_written=True),
        hashes=_words("most_shingles(offsets[:row_count + 1], by_words, ngram).sum()", is_written=True),
        counts=_integers("row_count", is_written=True),
    ),
    "minhash": Signature(
        conditions=(
            *_OFFSETS_INSIDE,
            *_SHINGLES,
            "bits == 32 or bits == 64",
            "0 < num_hashes <= width and width % 16 == 0",
            "value_bits == 0 or 32 <= value_bits <= bits",
            "value_bits == 0 or slots >= 64 and slots & (slots - 1) == 0",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        readable=Number(),
        by_words=Number(),
        ngram=Number(),
        mixing=_words("2"),
        num_hashes=Number(),
        bits=Number(),
        value_bits=Number(),
        factors=_halves("width"),
        terms=_halves("width"),
        width=Number(),
        factors_64=_words("num_hashes if bits == 64 and not value_bits else 0"),
        terms_64=_words("num_hashes if bits == 64 and not value_bits else 0"),
        room=Number(),
        scratch=_bytes(_TAIL, is_written=True),
        items=_words("room + ngram", is_written=True),
        state=_integers("8", is_written=True),
        hashes=_words("room", is_written=True),
        seen=_words("2 * slots if value_bits else 0", is_written=True),
        slots=Number(),
        halves=_halves("room", is_written=True),
        values=_halves("width", is_written=True),
        sketch=_words("num_hashes", is_written=True),
        narrow=_halves("row_count * num_hashes if bits == 32 else 0", is_written=True),
        wide=_words("row_count * num_hashes if bits == 64 else 0", is_written=True),
    ),
    "bands": Signature(
        narrow=_halves("0 if is_wide else row_count * band_count * band_size"),
        wide=_words("row_count * band_count * band_size if is_wide else 0"),
        is_wide=Number(),
        row_count=Number(),
        band_count=Number(),
        band_size=Number(),
        hashes=_words("row_count * band_count", is_written=True),
    ),
    "jaccard": Signature(
        conditions=(
            *_SHINGLES,
            "0 <= offsets[0] <= offsets[row_count] <= readable",
            "0 <= other_offsets[0] <= other_offsets[row_count] <= other_readable",
            "slots & (slots - 1) == 0",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        readable=Number(),
        scratch=_bytes(_TAIL, is_written=True),
        other_texts=_bytes("other_readable"),
        other_offsets=_integers("row_count + 1"),
        other_readable=Number(),
        other_scratch=_bytes(
            f"longest_near_end(other_offsets[:row_count + 1], other_readable) + {2 * PADDING}", is_written=True
        ),
        row_count=Number(),
        **_SHINGLE_PARAMETERS,
        items=_words("room + ngram", is_written=True),
        state=_integers("8", is_written=True),
        hashes=_words("room", is_written=True),
        table=_words("slots", is_written=True),
        marks=_bytes("slots", is_written=True),
        slots=Number(),
        results=_floats("row_count", is_written=True),
    ),
    "hashed_words": Signature(
        conditions=(
            *_OFFSETS_INSIDE,
            "blocks.max() < len(folds) // 256",
            "1 <= dim <= 65536",
            "((table >> 1) & 0xFFFF).max() < dim",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=_bytes("readable"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        readable=Number(),
        scratch=_bytes(_TAIL, is_written=True),
        blocks=_bytes(f"{_CHARACTER_BLOCKS}"),
        folds=_halves("256"),
        folded=_bytes(
            "2 * int((offsets[1:row_count + 1] - offsets[:row_count]).max(initial=0)) + 256", is_written=True
        ),
        counts=_halves(f"{TOTAL_BUCKETS}", is_written=True),
        touched=_integers(f"{TOTAL_BUCKETS + 1}", is_written=True),
        roots=_integers(f"{COUNTED}"),
        sizes=_integers(f"{len(SIZES)}"),
        table=_halves(f"{TOTAL_BUCKETS}"),
        dim=Number(),
        sums=_integers("dim", is_written=True),
        vectors=_short_floats("0 if counting else row_count * dim", is_written=True),
        frequencies=_halves(f"{TOTAL_BUCKETS} if counting else 0", is_written=True),
        counting=Number(),
    ),
    "token_means": Signature(
        conditions=("0 <= offsets[0] <= offsets[row_count] <= len(ids)", "token_count > 0"),
        ids=_short_integers("0"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        most_tokens=Number(),
        table=_short_floats("token_count * dim"),
        counted=_bytes("token_count"),
        token_count=Number(),
        dim=Number(),
        normalize=Number(),
        sums=_short_floats("dim", is_written=True),
        vectors=_short_floats("row_count * dim", is_written=True),
        tokens_used=_integers("row_count", is_written=True),
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
    "byte_pairs": Signature(
        conditions=(
            *_TOKEN_CONDITIONS,
            "0 < pair_shift < 64 and len(pairs) == 8 << (64 - pair_shift)",
            "0 < crossing_shift <= 58 and len(crossings) == 1 << (58 - crossing_shift)",
            "0 < most < 1 << 24 and most % 256 == 0",
        ),
        helpers={"longest_near_end": longest_near_end, "longest_text": longest_text},
        **_token_parameters(bitmaps=4),
        crossings=_words("1"),
        crossing_shift=Number(),
        orders=_bytes(f"{_CHARACTERS}"),
        style=Number(),
        digits=Number(),
        takes_whole=Number(),
        byte_ids=_short_integers("256"),
        two_byte_ids=_short_integers("65536"),
        byte_ranks=_halves("65536"),
        pairs=_words("8"),
        pair_shift=Number(),
        merged=_short_integers("merge_count"),
        merge_count=Number(),
        links=_short_integers("3 * most", is_written=True),
        ranks=_halves("most + most // 16 + 32", is_written=True),
        most=Number(),
    ),
    "word_pieces": Signature(
        conditions=(*_TOKEN_CONDITIONS, "most < 1 << 24"),
        helpers={"longest_near_end": longest_near_end, "longest_text": longest_text},
        **_token_parameters(bitmaps=2),
        forms=_halves(f"{_CHARACTERS}"),
        pool=_bytes("pool_bytes"),
        pool_bytes=Number(),
        mark_ids=_short_integers(f"{_CHARACTERS}"),
        unknown=Number(),
        most=Number(),
        word=_bytes("4 * most + 16", is_written=True),
    ),
    "text_units": Signature(
        conditions=("0 <= offsets[0] <= offsets[row_count] <= len(texts)", "kinds.max() <= 4"),
        texts=_bytes("0"),
        offsets=_integers("row_count + 1"),
        row_count=Number(),
        kinds=_bytes("256"),
        folded=_bytes("256"),
        marks=Number(),
        line_end=_words("1"),
        hashes=_words("int(offsets[row_count] - offsets[0]) + row_count", is_written=True),
        counts=_integers("row_count", is_written=True),
    ),
    "ngram_features": Signature(
        conditions=(
            _UNITS_INSIDE,
            "1 <= longest and 1 <= bits <= 32",
            "room >= 64 and room >= 4 * longest * counts[:row_count].max(initial=0)",
        ),
        hashes=_words("0"),
        counts=_integers("row_count"),
        row_count=Number(),
        longest=Number(),
        bits=Number(),
        table=_words("room", is_written=True),
        room=Number(),
        slots=_halves("longest * int(counts[:row_count].sum())", is_written=True),
        values=_short_floats("longest * int(counts[:row_count].sum())", is_written=True),
        ends=_integers("row_count + 1", is_written=True),
    ),
    "sparse_product": Signature(
        conditions=_VECTORS_INSIDE,
        **_VECTORS,  # type: ignore[arg-type]  # parameters all
        weights=_short_floats("slot_count * width"),
        slot_count=Number(),
        width=Number(),
        scores=_floats("row_count * width", is_written=True),
    ),
    "sparse_step": Signature(
        conditions=_VECTORS_INSIDE,
        **_VECTORS,  # type: ignore[arg-type]  # parameters all
        gradients=_floats("row_count * width"),
        weights=_short_floats("slot_count * width", is_written=True),
        squares=_short_floats("slot_count * width", is_written=True),
        slot_count=Number(),
        width=Number(),
        rates=_floats("2"),
    ),
    "ngram_scores": Signature(
        conditions=(
            _UNITS_INSIDE,
            "order >= 1 and width in (1, 2) and 0 < slots < 2**32",
            "likely_count > 0 and likely_count & (likely_count - 1) == 0",
            "backoff_count > 0 and backoff_count & (backoff_count - 1) == 0",
        ),
        hashes=_words("0"),
        counts=_integers("row_count"),
        row_count=Number(),
        marks=_words("3"),
        order=Number(),
        table=_words("slots * width"),
        slots=Number(),
        width=Number(),
        is_closed=Number(),
        likely=_floats("likely_count"),
        likely_count=Number(),
        backoffs=_floats("backoff_count"),
        backoff_count=Number(),
        context=_words("order", is_written=True),
        state=_floats("2 * order + 1", is_written=True),
        logs=_floats("row_count", is_written=True),
        units=_integers("row_count", is_written=True),
        unknown=_integers("row_count", is_written=True),
    ),
    "resize": Signature(
        conditions=(
            "width > 0 and height > 0 and new_width > 0 and new_height > 0",
            *(
                f"({a}_begins[:{new}] >= 0).all() and ({a}_counts[:{new}] >= 0).all() and "
                f"({a}_counts[:{new}] <= {a}_taps).all() and "
                f"({a}_begins[:{new}] >= {a}_begins[0]).all() and "
                f"({a}_begins[:{new}] + {a}_counts[:{new}] <= {a}_begins[{new} - 1] + {a}_counts[{new} - 1]).all() and "
                f"{a}_begins[{new} - 1] + {a}_counts[{new} - 1] <= {old}"
                for a, new, old in (("x", "new_width", "width"), ("y", "new_height", "height"))
            ),
        ),
        pixels=_bytes("3 * width * height"),
        height=Number(),
        width=Number(),
        x_begins=_integers("new_width"),
        x_counts=_integers("new_width"),
        x_weights=_short_integers("x_taps * new_width"),
        x_taps=Number(),
        new_width=Number(),
        y_begins=_integers("new_height"),
        y_counts=_integers("new_height"),
        y_weights=_short_integers("y_taps * new_height"),
        y_taps=Number(),
        new_height=Number(),
        turned=_bytes(
            "48 * max(16, int(x_begins[new_width - 1] + x_counts[new_width - 1] - x_begins[0]))", is_written=True
        ),
        narrow=_bytes("48 * new_width", is_written=True),
        between=_bytes(
            "int(y_begins[new_height - 1] + y_counts[new_height - 1] - y_begins[0])"
            " * ((3 * new_width + 63) // 64 * 64) + 64",
            is_written=True,
        ),
        line=_bytes("(3 * new_width + 63) // 64 * 64", is_written=True),
        resized=_bytes("3 * new_width * new_height", is_written=True),
    ),
    "grey_thumbnail": Signature(
        conditions=(
            "0 < width < 1 << 31 and 0 < height < 1 << 31 and columns > 0 and rows > 0",
            "weights_inside(x_begins, x_counts, columns, x_taps, width)",
            "weights_inside(y_begins, y_counts, rows, y_taps, height)",
        ),
        helpers={"weights_inside": weights_inside},
        pixels=_bytes("3 * height * width"),
        height=Number(),
        width=Number(),
        x_begins=_integers("columns"),
        x_counts=_integers("columns"),
        x_weights=_short_integers("columns * x_taps"),
        x_taps=Number(),
        columns=Number(),
        y_begins=_integers("rows"),
        y_counts=_integers("rows"),
        y_weights=_short_integers("rows * y_taps"),
        y_taps=Number(),
        rows=Number(),
        height_first=Number(),
        grey=_bytes("height * width", is_written=True),
        half=_bytes("rows * width if height_first else columns * height", is_written=True),
        sums=_short_integers("width", is_written=True),
        thumbnail=_bytes("rows * columns", is_written=True),
    ),
    "dct_hash": Signature(
        thumbnail=_bytes("1024"),
        first_waves=_floats("14"),
        second_waves=_floats("9"),
        turns=_floats("32"),
        low=_floats("256", is_written=True),
        line=_floats("32", is_written=True),
        room=_floats("64", is_written=True),
        hashes=_words("1", is_written=True),
    ),
    "hamming_order": Signature(
        conditions=("0 < passes <= 5", "count < 1 << 31", "not ends[: 2048 * passes].any()"),
        hashes=_words("count"),
        count=Number(),
        mask=_words("1"),
        passes=Number(),
        ends=_integers("2048 * passes", is_written=True),
        sorted_hashes=_words("count", is_written=True),
        places=_short_integers("count", is_written=True),
        other_hashes=_words("count", is_written=True),
        other_places=_short_integers("count", is_written=True),
    ),
    "hamming_pairs": Signature(
        conditions=(
            "0 < used_bits < 64 and block_count <= 62 and room > 0 and large_room > 0",
            "0 <= state[0] <= count and 0 <= state[1] and 0 <= state[2] <= count",
        ),
        hashes=_words("count"),
        places=_short_integers("count"),
        count=Number(),
        mask=_words("1"),
        used_bits=Number(),
        blocks=_words("block_count"),
        block_count=Number(),
        chosen=Number(),
        chosen_count=Number(),
        max_distance=Number(),
        most=Number(),
        state=_integers("4", is_written=True),
        left=_short_integers("room", is_written=True),
        right=_short_integers("room", is_written=True),
        distances=_short_integers("room", is_written=True),
        room=Number(),
        begins=_integers("large_room", is_written=True),
        ends=_integers("large_room", is_written=True),
        large_room=Number(),
    ),
}
"""All kernels by name."""
