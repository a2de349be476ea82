"""All pairs of similar hashes are found, and no others: held to comparing all with all."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tamis.kernels import hamming, native
from tamis.kernels.hamming import Choices, hamming_distances, similar_pairs

Hashes = NDArray[np.uint64]


@pytest.fixture(params=["kernel", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled form, and the plain definition."""
    if request.param == "plain":
        monkeypatch.setattr(native, "load", lambda name: None)
    else:
        monkeypatch.setenv("TAMIS_KERNELS", "wait")
    return request.param


def pairs_by_definition(hashes: Hashes, max_distance: int) -> list[tuple[int, int, int]]:
    found = []
    for row in range(len(hashes)):
        bits = hamming_distances(np.full(len(hashes) - row - 1, hashes[row]), hashes[row + 1 :])
        found += [(row, row + 1 + int(at), int(bits[at])) for at in np.flatnonzero(bits <= max_distance)]
    return found


def found(hashes: Hashes, max_distance: int, threads: int = 1) -> list[tuple[int, int, int]]:
    return list(zip(*(part.tolist() for part in similar_pairs(hashes, max_distance, threads)), strict=True))


def near_each_other(seed: int, count: int, free_bits: int = 64) -> Hashes:
    """Groups of hashes that differ from each other in up to eight of some bits."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2**64, count // 10 + 1, np.uint64)
    hashes = centres[rng.integers(0, len(centres), count)]
    for _ in range(4):
        hashes ^= np.uint64(1) << rng.integers(0, free_bits, count, np.uint64)
    return hashes


@pytest.mark.parametrize("max_distance", [0, 1, 2, 4, 7, 12, 16])
def test_pairs_are_those_of_the_definition(form: str, max_distance: int) -> None:
    for hashes in (near_each_other(1, 700), near_each_other(2, 700, free_bits=14)):
        assert found(hashes, max_distance) == pairs_by_definition(hashes, max_distance)


def test_few_hashes_and_none(form: str) -> None:
    assert found(np.zeros(0, np.uint64), 4) == []
    assert found(np.array([5], np.uint64), 4) == []
    assert found(np.array([5, 5, 2**64 - 1], np.uint64), 4) == [(0, 1, 0)]


def test_hashes_that_agree_in_most_blocks(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long runs of hashes with the same blocks are compared by their other bits."""
    monkeypatch.setattr(hamming, "_MOST_IN_RUN", 20)
    hashes = np.unique(np.random.default_rng(5).integers(0, 2**24, 600 if form == "plain" else 1500, np.uint64))
    hashes = np.append(hashes, near_each_other(3, 300))
    assert found(hashes, 4) == pairs_by_definition(hashes, 4)


def test_more_pairs_and_long_runs_than_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMIS_KERNELS", "wait")
    hashes = np.append(near_each_other(4, 800, free_bits=10), near_each_other(4, 50))
    expected = pairs_by_definition(hashes, 3)
    for name, value in (("_ROOM", 7), ("_LARGE_ROOM", 1), ("_MOST_IN_RUN", 5)):
        monkeypatch.setattr(hamming, name, value)
        assert found(hashes, 3) == expected


def test_the_number_of_threads_changes_nothing() -> None:
    hashes = near_each_other(6, 3000)
    assert found(hashes, 4) == found(hashes, 4, threads=4)


def test_each_pair_belongs_to_one_choice_of_blocks() -> None:
    differences = near_each_other(7, 500) & near_each_other(8, 500)  # few bits are set
    for count in (10**3, 10**5, 10**7, 10**9):
        choices = Choices.of(count, 4).all
        few = differences[hamming_distances(differences, np.zeros_like(differences)) <= 4]
        belongs = np.stack([choice.is_of(few) for choice in choices])
        assert (belongs.sum(axis=0) == 1).all()
        assert np.bitwise_or.reduce(np.array(choices[0].blocks, np.uint64)) in (0, 2**64 - 1)


@pytest.mark.parametrize("max_distance", [-1, 17])
def test_other_distances_are_refused(max_distance: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 16 bits"):
        similar_pairs(np.zeros(2, np.uint64), max_distance)
