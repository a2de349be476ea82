"""Characters and words are what Python's ``str`` says they are, for any Unicode text."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
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


@given(TEXTS)
def test_characters(texts: list[str]) -> None:
    assert utf8.character_counts(block_of(texts)).tolist() == [len(t) for t in texts]


@given(TEXTS)
def test_words(texts: list[str]) -> None:
    block = block_of(texts)
    assert strings(block, pieces.words(block)) == [t.split() for t in texts]


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
