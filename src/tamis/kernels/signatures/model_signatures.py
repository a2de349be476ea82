"""Kernels of models and tokenizers."""

from __future__ import annotations

from typing import Final

from tamis.kernels.arguments import Array, Number, Signature
from tamis.kernels.hashed_words_definition import COUNTED, SIZES, TOTAL_BUCKETS
from tamis.kernels.signatures.parameter_kinds import (
    CHARACTER_BLOCKS,
    OFFSETS_INSIDE,
    PADDING,
    TAIL,
    byte_array,
    floats,
    halves,
    integers,
    longest_near_end,
    longest_text,
    short_integers,
    words,
)

_CHARACTERS: Final = 0x110000
"""Unicode, character by character."""


def _short_floats(length: str, is_written: bool = False) -> Array:
    return Array("float32", length, is_written)


_TOKEN_CONDITIONS: Final = (
    *OFFSETS_INSIDE,
    "0 <= first_row <= row_count",
    "0 < cache_shift < 64 and len(cache) == 64 << (64 - cache_shift)",
    "0 < trie_shift < 64 and len(trie) == 8 << (64 - trie_shift)",
    "bitmap_words >= longest_text(offsets[:row_count + 1]) // 64 + 2",
    "limit < 1 << 62",
)


def _token_parameters(bitmaps: int) -> dict[str, Array | Number]:
    """The parameters that the kernels that tokenise have in common."""
    return {
        "texts": byte_array("readable"),
        "offsets": integers("row_count + 1"),
        "row_count": Number(),
        "readable": Number(),
        "first_row": Number(),
        "scratch": byte_array(TAIL, is_written=True),
        "bitmaps": words(f"{bitmaps} * bitmap_words", is_written=True),
        "bitmap_words": Number(),
        "pieces": integers("96", is_written=True),
        "cache": byte_array("64", is_written=True),
        "cache_shift": Number(),
        "before": short_integers("before_count"),
        "before_count": Number(),
        "after": short_integers("after_count"),
        "after_count": Number(),
        "limit": Number(),
        "is_kept": Number(),
        "left_out": byte_array("row_count", is_written=True),
        "counts": integers("row_count", is_written=True),
        "ids": short_integers("room", is_written=True),
        "room": Number(),
        "trie": words("8"),
        "trie_shift": Number(),
        "tokens": short_integers("node_count"),
        "node_count": Number(),
        "kinds": byte_array(f"{_CHARACTERS}"),
    }


_UNITS_INSIDE: Final = "0 <= counts[:row_count].min(initial=0) and counts[:row_count].sum() <= len(hashes)"

_VECTORS_INSIDE: Final = (
    "0 <= ends[0] <= ends[vector_count] <= min(len(slots), len(values))",
    "0 <= rows[:row_count].min(initial=0) and rows[:row_count].max(initial=-1) < vector_count",
    "slot_count > 0 and slot_count & (slot_count - 1) == 0",
)

_VECTORS: Final[dict[str, Array | Number]] = {
    "slots": halves("0"),
    "values": _short_floats("0"),
    "ends": integers("vector_count + 1"),
    "vector_count": Number(),
    "rows": integers("row_count"),
    "row_count": Number(),
}

MODEL_SIGNATURES: Final[dict[str, Signature]] = {
    "fasttext": Signature(
        conditions=(
            *OFFSETS_INSIDE,
            "(offsets[:row_count] <= ends[:row_count]).all() and (ends[:row_count] <= offsets[1:row_count + 1]).all()",
            "int((ends[:row_count] - offsets[:row_count]).max(initial=0)) <= longest",
            "slot_count & (slot_count - 1) == 0 and entry_count < slot_count",
            "line_end <= word_count <= entry_count and word_count <= vector_count and dim % 8 == 0",
            "buckets > 0 or (most == 0 and word_ngrams <= 1)",
            "is_pruned or word_count + buckets <= vector_count",
            "not is_pruned or word_count + int(kept[:buckets].max(initial=-1)) < vector_count",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=byte_array("readable"),
        offsets=integers("row_count + 1"),
        ends=integers("row_count"),
        row_count=Number(),
        readable=Number(),
        longest=Number(),
        slots=words("2 * slot_count"),
        slot_count=Number(),
        words=byte_array("(word_ends[entry_count - 1] if entry_count else 0) + 8"),
        word_ends=integers("entry_count"),
        entry_count=Number(),
        word_count=Number(),
        hashes=halves("word_count"),
        sizes=short_integers("word_count"),
        is_summed=Number(),
        line_end=Number(),
        least=Number(),
        most=Number(),
        word_ngrams=Number(),
        buckets=Number(),
        kept=short_integers("buckets if is_pruned else 0"),
        is_pruned=Number(),
        vectors=_short_floats("vector_count * dim"),
        vector_count=Number(),
        dim=Number(),
        weights=_short_floats("dim * output_count"),
        scales=_short_floats("output_count"),
        output_count=Number(),
        scratch=byte_array(f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}", is_written=True),
        word=byte_array(f"longest + 2 + {PADDING}", is_written=True),
        text_hashes=halves("longest // 2 + 2 if word_ngrams > 1 else 0", is_written=True),
        queue=words("256", is_written=True),
        rows=integers("1024 + most", is_written=True),
        sums=_short_floats("2049 * dim", is_written=True),
        sum_keys=words("4 * 2048", is_written=True),
        hidden=_short_floats("dim", is_written=True),
        outputs=_short_floats("row_count * output_count", is_written=True),
        counts=integers("row_count", is_written=True),
    ),
    "fasttext_words": Signature(
        conditions=("slot_count & (slot_count - 1) == 0 and word_count < slot_count", "not slots.any()"),
        words=byte_array("(word_ends[word_count - 1] if word_count else 0) + 8"),
        word_ends=integers("word_count"),
        word_count=Number(),
        slots=words("2 * slot_count", is_written=True),
        slot_count=Number(),
    ),
    "hashed_words": Signature(
        conditions=(
            *OFFSETS_INSIDE,
            "blocks.max() < len(folds) // 256",
            "1 <= dim <= 65536",
            "((table >> 1) & 0xFFFF).max() < dim",
        ),
        helpers={"longest_near_end": longest_near_end},
        texts=byte_array("readable"),
        offsets=integers("row_count + 1"),
        row_count=Number(),
        readable=Number(),
        scratch=byte_array(TAIL, is_written=True),
        blocks=byte_array(f"{CHARACTER_BLOCKS}"),
        folds=halves("256"),
        folded=byte_array(
            "2 * int((offsets[1:row_count + 1] - offsets[:row_count]).max(initial=0)) + 256", is_written=True
        ),
        counts=halves(f"{TOTAL_BUCKETS}", is_written=True),
        touched=integers(f"{TOTAL_BUCKETS + 1}", is_written=True),
        roots=integers(f"{COUNTED}"),
        sizes=integers(f"{len(SIZES)}"),
        table=halves(f"{TOTAL_BUCKETS}"),
        dim=Number(),
        sums=integers("dim", is_written=True),
        vectors=_short_floats("0 if counting else row_count * dim", is_written=True),
        frequencies=halves(f"{TOTAL_BUCKETS} if counting else 0", is_written=True),
        counting=Number(),
    ),
    "token_means": Signature(
        conditions=("0 <= offsets[0] <= offsets[row_count] <= len(ids)", "token_count > 0"),
        ids=short_integers("0"),
        offsets=integers("row_count + 1"),
        row_count=Number(),
        most_tokens=Number(),
        table=_short_floats("token_count * dim"),
        counted=byte_array("token_count"),
        token_count=Number(),
        dim=Number(),
        normalize=Number(),
        sums=_short_floats("dim", is_written=True),
        vectors=_short_floats("row_count * dim", is_written=True),
        tokens_used=integers("row_count", is_written=True),
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
        crossings=words("1"),
        crossing_shift=Number(),
        orders=byte_array(f"{_CHARACTERS}"),
        style=Number(),
        digits=Number(),
        takes_whole=Number(),
        byte_ids=short_integers("256"),
        two_byte_ids=short_integers("65536"),
        byte_ranks=halves("65536"),
        pairs=words("8"),
        pair_shift=Number(),
        merged=short_integers("merge_count"),
        merge_count=Number(),
        links=short_integers("3 * most", is_written=True),
        ranks=halves("most + most // 16 + 32", is_written=True),
        most=Number(),
    ),
    "word_pieces": Signature(
        conditions=(*_TOKEN_CONDITIONS, "most < 1 << 24"),
        helpers={"longest_near_end": longest_near_end, "longest_text": longest_text},
        **_token_parameters(bitmaps=2),
        forms=halves(f"{_CHARACTERS}"),
        pool=byte_array("pool_bytes"),
        pool_bytes=Number(),
        mark_ids=short_integers(f"{_CHARACTERS}"),
        unknown=Number(),
        most=Number(),
        word=byte_array("4 * most + 16", is_written=True),
    ),
    "ngram_features": Signature(
        conditions=(
            _UNITS_INSIDE,
            "1 <= longest and 1 <= bits <= 32",
            "room >= 64 and room >= 4 * longest * counts[:row_count].max(initial=0)",
        ),
        hashes=words("0"),
        counts=integers("row_count"),
        row_count=Number(),
        longest=Number(),
        bits=Number(),
        table=words("room", is_written=True),
        room=Number(),
        slots=halves("longest * int(counts[:row_count].sum())", is_written=True),
        values=_short_floats("longest * int(counts[:row_count].sum())", is_written=True),
        ends=integers("row_count + 1", is_written=True),
    ),
    "sparse_product": Signature(
        conditions=_VECTORS_INSIDE,
        **_VECTORS,  # type: ignore[arg-type]  # parameters all
        weights=_short_floats("slot_count * width"),
        slot_count=Number(),
        width=Number(),
        scores=floats("row_count * width", is_written=True),
    ),
    "sparse_step": Signature(
        conditions=_VECTORS_INSIDE,
        **_VECTORS,  # type: ignore[arg-type]  # parameters all
        gradients=floats("row_count * width"),
        weights=_short_floats("slot_count * width", is_written=True),
        squares=_short_floats("slot_count * width", is_written=True),
        slot_count=Number(),
        width=Number(),
        rates=floats("2"),
    ),
    "ngram_scores": Signature(
        conditions=(
            _UNITS_INSIDE,
            "order >= 1 and width in (1, 2) and 0 < slots < 2**32",
            "likely_count > 0 and likely_count & (likely_count - 1) == 0",
            "backoff_count > 0 and backoff_count & (backoff_count - 1) == 0",
        ),
        hashes=words("0"),
        counts=integers("row_count"),
        row_count=Number(),
        marks=words("3"),
        order=Number(),
        table=words("slots * width"),
        slots=Number(),
        width=Number(),
        is_closed=Number(),
        likely=floats("likely_count"),
        likely_count=Number(),
        backoffs=floats("backoff_count"),
        backoff_count=Number(),
        context=words("order", is_written=True),
        state=floats("2 * order + 1", is_written=True),
        logs=floats("row_count", is_written=True),
        units=integers("row_count", is_written=True),
        unknown=integers("row_count", is_written=True),
    ),
}
"""By the names of kernels."""
