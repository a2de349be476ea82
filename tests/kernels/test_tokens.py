"""The tables of vocabularies, and the kernels that tokenise when called directly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.kernels import native
from tamis.kernels.token_tables import Crossings, HashTable, Trie
from tamis.models.native_tokenizers import native_tokenizer
from tests.support.property_tests import examples
from tests.support.vocabularies import tokenizer_of

MULTIPLIER = 0x9E3779B97F4A7C15


def found(table: HashTable, key: int, low_bits: int) -> int:
    """What the kernels find in a table."""
    bucket = (key * MULTIPLIER & (1 << 64) - 1) >> table.shift
    while True:
        entries = table.slots[8 * bucket : 8 * bucket + 8].tolist()
        numbers = [entry & (1 << low_bits) - 1 for entry in entries if entry and entry >> low_bits == key]
        if numbers or not entries[7]:
            return numbers[0] if numbers else 0
        bucket = (bucket + 1) % (len(table.slots) // 8)


@examples(100)
@given(keys=st.lists(st.integers(0, 1 << 42), max_size=400, unique=True))
def test_every_key_of_a_table_is_found(keys: list[int]) -> None:
    numbers = list(range(1, len(keys) + 1))
    table = HashTable.of(np.array(keys, np.uint64), np.array(numbers, np.uint64), low_bits=20)
    assert [found(table, key, 20) for key in keys] == numbers
    others = {key ^ 1 for key in keys} - set(keys)
    assert not any(found(table, key, 20) for key in others)


def test_full_buckets_spill_into_the_next_one() -> None:
    inverse = pow(MULTIPLIER, -1, 1 << 64)
    # Keys whose products with the multiplier have equal upper bits share a bucket, here the last one.
    products = ((1 << 64) - 1 - number for number in range(1 << 20))
    keys = [key for key in (product * inverse % (1 << 64) for product in products) if key < 1 << 50][:20]
    assert len(keys) == 20
    table = HashTable.of(np.array(keys, np.uint64), np.arange(1, 21, dtype=np.uint64), low_bits=8)
    assert [found(table, key, 8) for key in keys] == list(range(1, 21))
    assert table.slots[:12].all()
    assert not table.slots[12:-8].any()


@examples(50)
@given(tokens=st.lists(st.binary(min_size=1, max_size=12), unique=True, max_size=60))
def test_a_trie_has_every_token(tokens: list[bytes]) -> None:
    trie = Trie.of(tokens, list(range(len(tokens))), [len(token) % 2 for token in tokens])
    for number, token in enumerate(tokens):
        node = len(token) % 2
        for byte in token:
            node = found(trie.edges, node << 8 | byte, 32)
            assert node
        assert trie.tokens[node] == number
    assert sorted(trie.tokens[trie.tokens >= 0].tolist()) == list(range(len(tokens)))


def test_crossings_of_tokens_that_begin_or_end_within_a_character() -> None:
    begins = "日".encode()[1:] + "本".encode()
    ends = "日本".encode()[:5]
    only = [Crossings.of([token]).bits for token in (begins, ends, "日本".encode(), "日a".encode())]
    assert [int(np.count_nonzero(bits)) for bits in only] == [1, 1, 1, 1]
    assert len({np.flatnonzero(bits)[0] for bits in only}) == 4
    assert not Crossings.of([b"ab", "日".encode(), b"\x97\xa5"]).bits.any()


@pytest.mark.parametrize("kind", ["bert {}", "llama3"])
def test_ids_before_and_after_texts_and_texts_left_out(kind: str) -> None:
    made = native_tokenizer(tokenizer_of(kind))
    assert made is not None
    column = pa.array(["one two", "left out", None])
    around = {"before": np.array([7, 8], np.int32), "after": np.array([9], np.int32)}
    whole = made.kernel.tokenise(column, np.array([False, True, False]), **around)
    assert whole.ids[:2].tolist() == whole.ids[-3:-1].tolist() == [7, 8]
    assert (whole.counts[1], whole.counts[2], whole.left_out.tolist()) == (0, 3, [False, True, False])
    assert len(whole.ids) == whole.counts.sum()
    first = made.kernel.tokenise(column, np.zeros(3, np.bool_), limit=1, **around)
    assert first.counts.tolist() == [4, 4, 3]
    assert first.ids[2] == whole.ids[2]


def test_without_a_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    made = native_tokenizer(tokenizer_of("gpt2"))
    assert made is not None
    monkeypatch.setattr(native, "load", lambda name: None)
    assert not made.is_ready()
    with pytest.raises(RuntimeError, match="the kernel byte_pairs is not compiled"):
        made.kernel.tokenise(pa.array(["a"]), np.zeros(1, np.bool_))
