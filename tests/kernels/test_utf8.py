"""Characters, words, lines and paragraphs are what Python's ``str`` says they are, for any Unicode text."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels import pieces, utf8
from tamis.kernels.utf8 import Utf8

TEXTS = st.lists(
    st.one_of(
        st.text(),
        st.text(alphabet=" \n\t\r\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000ab.éд日😀\u200d\u0301\0"),
    ),
    max_size=6,
)


def block_of(texts: list[str]) -> Utf8:
    return Utf8.from_arrow(pa.array(texts, pa.string()))


def strings(block: Utf8, parts: pieces.Pieces) -> list[list[str]]:
    """Pieces as Python strings, per text."""
    data = block.data.tobytes()
    found = [data[s:e].decode() for s, e in zip(parts.starts.tolist(), parts.ends.tolist(), strict=True)]
    bounds = [0, *np.cumsum(parts.counts).tolist()]
    return [found[bounds[i] : bounds[i + 1]] for i in range(len(parts.counts))]


def test_white_space_is_what_str_isspace_says_for_every_character() -> None:
    everything = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]
    block = block_of(everything)
    is_space = utf8.spaces(block)[block.offsets[:-1]]
    assert is_space.tolist() == [c.isspace() for c in everything]


def test_digits_are_what_str_isdecimal_says_for_every_character() -> None:
    everything = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]
    counts = utf8.decimal_digits().counts(block_of(everything))
    assert counts.tolist() == [int(c.isdecimal()) for c in everything]


@given(TEXTS)
def test_characters(texts: list[str]) -> None:
    assert utf8.character_counts(block_of(texts)).tolist() == [len(t) for t in texts]


@given(TEXTS)
def test_words(texts: list[str]) -> None:
    block = block_of(texts)
    assert strings(block, pieces.words(block)) == [t.split() for t in texts]
    assert utf8.word_counts(block).tolist() == [len(t.split()) for t in texts]


@given(TEXTS)
def test_lengths_of_words(texts: list[str]) -> None:
    block = block_of(texts)
    assert pieces.words(block).lengths(block).tolist() == [len(w) for t in texts for w in t.split()]
    assert utf8.word_character_counts(block).tolist() == [sum(map(len, t.split())) for t in texts]


@given(TEXTS)
def test_lines_that_are_not_blank(texts: list[str]) -> None:
    block = block_of(texts)
    expected = [[line for line in t.split("\n") if line.strip()] for t in texts]
    assert strings(block, pieces.lines(block)) == expected
    assert strings(block, pieces.stripped_lines(block)) == [[line.strip() for line in e] for e in expected]


@given(st.lists(st.text(alphabet="\nab"), max_size=6))
def test_paragraphs(texts: list[str]) -> None:
    block = block_of(texts)
    assert strings(block, pieces.paragraphs(block)) == [t.split("\n\n") for t in texts]


@given(st.lists(st.text(alphabet="ab\0 ", max_size=60), max_size=4))
def test_pieces_that_occurred_before(texts: list[str]) -> None:
    block = block_of(texts)
    expected = []
    for text in texts:
        words = text.split()
        expected += [word not in words[:i] for i, word in enumerate(words)]
    assert pieces.first_in_text(block, pieces.words(block)).tolist() == expected


def test_long_pieces_that_differ_in_one_byte_are_told_apart() -> None:
    # The fingerprint looks at the beginning, the middle and the end: a difference elsewhere must be found, too.
    one, other = "x" * 100, "x" * 20 + "y" + "x" * 79
    block = block_of([f"{one} {other} {one} {other}"])
    assert pieces.first_in_text(block, pieces.words(block)).tolist() == [True, True, False, False]


@given(TEXTS, st.integers(1, 40))
def test_blocks_are_the_same_texts_in_order(texts: list[str], block_bytes: int) -> None:
    whole = block_of(texts)
    blocks = [block.to_arrow().to_pylist() for block in whole.blocks(block_bytes)]
    assert [text for block in blocks for text in block] == texts
    assert all(blocks)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_slices_chunks_and_nulls_are_read_from_any_text_type(kind: pa.DataType) -> None:
    first = pa.array(["not seen", "né", None, ""], kind).slice(1)
    column = pa.chunked_array([first, pa.array([], kind), pa.array(["d"], kind)])
    assert Utf8.from_arrow(column).to_arrow().to_pylist() == ["né", "", "", "d"]


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["...", "[…]", "…", "..", "a...", "-»", "...\0", "\0"]), max_size=8))
def test_pieces_equal_to_some_texts(words: list[str]) -> None:
    block = block_of([" ".join(words)])
    wanted = ["...", "[…]", "…", "-»"]
    assert pieces.equal_to_any(block, pieces.words(block), wanted).tolist() == [w in wanted for w in words]
