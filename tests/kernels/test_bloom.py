"""A Bloom filter forgets nothing, and takes new hashes for old ones as seldom as it says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.kernels import native
from tamis.kernels.bloom import BloomFilter

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=60)


@given(HASHES)
def test_a_hash_that_was_added_is_found(hashes: list[int]) -> None:
    given_hashes = np.array(hashes, np.uint64)
    seen = BloomFilter(len(hashes))
    first = seen.add(given_hashes)
    for number, value in enumerate(hashes):
        assert first[number] or value not in hashes[:number]
    assert seen.add(given_hashes).all()


@given(HASHES)
def test_without_the_kernel_the_result_is_the_same(hashes: list[int]) -> None:
    given_hashes = np.array([*hashes, *hashes[:5]], np.uint64)
    ours, plain = BloomFilter(20, 0.05), BloomFilter(20, 0.05)
    expected = ours.add(given_hashes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        assert plain.add(given_hashes).tolist() == expected.tolist()
    assert np.array_equal(ours._words, plain._words)


@pytest.mark.parametrize(
    ("rate", "kind"), [(0.1, "random"), (0.01, "random"), (1e-3, "random"), (1e-3, "counted"), (1e-6, "random")]
)
def test_a_full_filter_is_wrong_as_often_as_it_says(rate: float, kind: str) -> None:
    """Two million new hashes: the number of errors is within five standard deviations of the expected one."""
    chance = np.random.default_rng(11)
    size, tries = 200_000, 2_000_000
    hashes = chance.integers(0, 2**64, size + tries, np.uint64)
    if kind == "counted":  # so even without a good hash before
        hashes = np.arange(size + tries, dtype=np.uint64) << np.uint64(5)
    full = BloomFilter(size, rate)
    full.add(hashes[:size])
    wrong = 0
    for part in np.array_split(hashes[size:], 100):  # a copy each time, as a test puts hashes in
        filled = BloomFilter(size, rate)
        filled._words[:] = full._words
        wrong += int(filled.add(part[:20_000]).sum())
    # The hashes of a part fill the filter by another tenth, which raises the rate by this factor on average at most.
    expected = tries * rate
    most = expected * 1.1 ** (-np.log2(rate))
    assert 0.95 * expected - 5 * np.sqrt(expected) <= wrong <= most + 5 * np.sqrt(most)


def test_the_memory_is_as_announced() -> None:
    assert BloomFilter(12_345, 1e-4).nbytes == BloomFilter.size_of(12_345, 1e-4)
    assert BloomFilter.size_of(10**9, 1e-6) / 10**9 == pytest.approx(28.76 / 8, rel=1e-3)


@pytest.mark.parametrize("rate", [0, 1, -1.0])
def test_a_rate_that_is_not_one_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="false_positive_rate"):
        BloomFilter(10, rate)
