"""Anchors and hashes of windows follow from the content of windows alone, and kernels do what the plain code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels import native
from tamis.kernels.hash_groups import HashGroups
from tamis.kernels.spans import Anchors, Units, find_anchors, hash_windows, remove_spans

ROWS = st.lists(
    st.one_of(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 255), max_size=40)), max_size=5
)
WIDE = ROWS.map(lambda rows: [[value * 0x9E3779B97F4A7C15 % 2**64 for value in row] for row in rows])


def units_of(rows: list[list[int]]) -> Units:
    is_wide = any(value > 255 for row in rows for value in row)
    values = np.array([value for row in rows for value in row], np.uint64 if is_wide else np.uint8)
    return Units(values, np.cumsum([0, *map(len, rows)]))


def windows_of(units: Units, window: int) -> tuple[Any, Any]:
    counts = np.diff(units.offsets) - window + 1
    return units.offsets[:-1][counts > 0], counts[counts > 0]


def plainly(run: Callable[[], Any]) -> Any:
    with patch.object(native, "load", lambda name: None):
        return run()


def parts(found: list[Anchors]) -> list[Any]:
    return [[part.tolist() for part in (a.keys, a.spans, a.starts, a.counts)] for a in found]


@settings(deadline=None)
@given(st.one_of(ROWS, WIDE), st.integers(1, 12), st.sampled_from([1, 3, 1000]))
def test_kernels_find_what_the_plain_code_finds(rows: list[list[int]], window: int, room: int) -> None:
    units = units_of(rows)
    found = list(find_anchors(units, window, room))
    assert parts(found) == parts(plainly(lambda: list(find_anchors(units, window, room))))
    assert all(len(lot.keys) <= room for lot in found)
    starts, counts = windows_of(units, window)
    hashes = hash_windows(units, window, starts, counts)
    assert hashes.tolist() == plainly(lambda: hash_windows(units, window, starts, counts)).tolist()


@settings(deadline=None)
@given(ROWS, st.integers(1, 12))
def test_equal_windows_have_equal_anchors_and_hashes_and_no_others_do(rows: list[list[int]], window: int) -> None:
    units = units_of(rows)
    anchor_of = {}
    for number, lot in enumerate(find_anchors(units, window, 3)):
        for place, (start, count) in enumerate(zip(lot.starts.tolist(), lot.counts.tolist(), strict=True)):
            for at in range(start, start + count):
                assert at not in anchor_of
                anchor_of[at] = (int(lot.keys[place]), (number, place))
    starts, counts = windows_of(units, window)
    hashes = hash_windows(units, window, starts, counts).tolist()
    places = [
        at for start, count in zip(starts.tolist(), counts.tolist(), strict=True) for at in range(start, start + count)
    ]
    assert sorted(anchor_of) == places
    seen: dict[bytes, list[int]] = {}
    for at in places:
        seen.setdefault(units.values[at : at + window].tobytes(), []).append(at)
    hash_of = dict(zip(places, map(tuple, hashes), strict=True))
    assert len({hash_of[at] for at in places}) == len(seen)
    for equal in seen.values():
        assert len({hash_of[at] for at in equal}) == len({anchor_of[at][0] for at in equal}) == 1
        assert len({anchor_of[at][1] for at in equal}) == len(equal)  # no two of them share one anchor


def test_there_are_few_anchors() -> None:
    values = np.random.default_rng(1).integers(0, 256, 100_000).astype(np.uint8)
    (found,) = find_anchors(Units(values, np.array([0, len(values)])), 200, len(values))
    assert 0.015 < len(found.keys) / len(values) < 0.025
    assert int(found.counts.sum()) == len(values) - 199


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 1)), max_size=40), st.sampled_from([1, 30, 63]))
def test_groups_are_what_sorting_gives(entries: list[tuple[int, int]], shift: int) -> None:
    first = np.array([entry[0] >> shift for entry in entries], np.uint64)
    second = np.array([entry[1] for entry in entries], np.uint64)
    groups = HashGroups.of((first, second))
    assert groups.order.tolist() == np.lexsort((second, first)).tolist()
    pairs = [(int(first[at]), int(second[at])) for at in groups.order]
    changes = [
        (i == 0 or pairs[i][0] != pairs[i - 1][0], i == 0 or pairs[i] != pairs[i - 1]) for i in range(len(pairs))
    ]
    assert list(zip(*groups.is_new.tolist(), strict=True)) == changes


def test_groups_of_many_entries_with_equal_upper_bits() -> None:
    chance = np.random.default_rng(2)
    hashes = chance.integers(0, 1000, 20_000).astype(np.uint64) << np.uint64(50) | chance.integers(0, 3, 20_000).astype(
        np.uint64
    )
    assert HashGroups.of((hashes,)).order.tolist() == np.argsort(hashes, kind="stable").tolist()


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.binary(max_size=9), st.booleans()), max_size=4), max_size=4))
def test_texts_without_spans(rows: list[list[tuple[bytes, bool]]]) -> None:
    data = np.frombuffer(b"".join(piece for row in rows for piece, _ in row) or b"-", np.uint8)
    offsets = np.cumsum([0, *(sum(len(piece) for piece, _ in row) for row in rows)])
    ends = np.cumsum([len(piece) for row in rows for piece, _ in row], dtype=np.int64)
    is_cut = np.array([cut for row in rows for _, cut in row], np.bool_)
    begins = (ends - np.array([len(piece) for row in rows for piece, _ in row], np.int64))[is_cut]
    expected = [b"".join(piece for piece, cut in row if not cut) for row in rows]
    for run in (lambda work: work(), plainly):
        left, places = run(lambda: remove_spans(data, offsets, begins, ends[is_cut]))
        assert left.tobytes() == b"".join(expected)
        assert np.diff(places).tolist() == [len(row) for row in expected]


def test_wrong_runs_and_spans_are_refused() -> None:
    units = units_of([[1, 2, 3]])
    with pytest.raises(ValueError, match="window_hashes"):
        hash_windows(units, 2, np.array([0]), np.array([3]))
    with pytest.raises(ValueError, match="span_removal"):
        remove_spans(units.data, units.offsets, np.array([2]), np.array([1]))
