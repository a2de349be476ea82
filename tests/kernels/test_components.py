"""Connected components: the same for any order of the edges, with and without kernels, in memory and on disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.kernels import native, union_find
from tamis.kernels.components import Components, components_of, connected_components, spanning_forest

TINY = 256 * 64
"""The least memory that there can be: 256 nodes."""

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
IDS = st.one_of(st.integers(0, 9), st.integers(2**63 - 2, 2**63 + 2), st.integers(2**64 - 4, 2**64 - 1))


def plain(left: Any, right: Any) -> dict[int, int]:
    """The smallest node that can be reached from each node."""
    reached: dict[int, set[int]] = {}
    for one, other in zip(left, right, strict=True):
        together = reached.get(one, {one}) | reached.get(other, {other})
        reached.update(dict.fromkeys(together, together))
    return {node: min(group) for node, group in reached.items()}


def labels_of(left: Any, right: Any) -> dict[int, int]:
    nodes, labels = connected_components(np.array(left, np.uint64), np.array(right, np.uint64))
    assert (nodes[1:] > nodes[:-1]).all()
    return dict(zip(nodes.tolist(), labels.tolist(), strict=True))


def external(left: Any, right: Any, folder: str, memory_bytes: int = TINY, batches: int = 3) -> dict[int, int]:
    left, right = np.array(left, np.uint64), np.array(right, np.uint64)
    with Components(memory_bytes, folder) as components:
        for some, others in zip(np.array_split(left, batches), np.array_split(right, batches), strict=True):
            components.add(some, others)
        parts = list(components.members(100))
    nodes, labels = (np.concatenate([np.zeros(0, np.uint64), *(part[i] for part in parts)]) for i in (0, 1))
    assert (nodes[1:] > nodes[:-1]).all()
    assert max((len(part[0]) for part in parts), default=0) <= 100
    assert os.listdir(folder) == []
    return dict(zip(nodes.tolist(), labels.tolist(), strict=True))


def graphs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Graphs of some thousand nodes with large and with sparse ids."""
    chance = np.random.default_rng(5)
    ids = np.unique(chance.integers(0, 2**64, 6000, np.uint64))
    chain = chance.permutation(ids)
    few, many = chance.integers(0, 6000, (2, 3000)), chance.integers(0, 2000, (2, 8000))
    shuffled = chance.permutation(5999)
    in_groups = chance.integers(0, 600, 12_000) * 10
    return {
        "chain": (chain[:-1], chain[1:]),
        "chain in any order": (chain[:-1][shuffled], chain[1:][shuffled]),
        "sorted chain": (ids[:-1].copy(), ids[1:].copy()),
        "star": (np.full(5999, ids[3000]), np.delete(ids, 3000)),
        "star around the last": (np.full(5999, ids[-1]), ids[:-1].copy()),
        "sparse": (ids[:5900][few[0] % 5900], ids[:5900][few[1] % 5900]),
        "dense": (many[0].astype(np.uint64), many[1].astype(np.uint64)),
        "self loops": (ids.copy(), ids.copy()),
        "small groups": tuple(ids[(in_groups + chance.integers(0, 9, 12_000)) % len(ids)] for _ in range(2)),
    }


@examples(200)
@given(EDGES)
def test_labels_are_the_smallest_nodes_that_can_be_reached(edges: list[tuple[int, int]]) -> None:
    left, right = [one for one, _ in edges], [other for _, other in edges]
    expected = plain(left, right)
    assert labels_of(left, right) == expected
    for dtype in (np.int32, np.int64, np.uint64):
        found = components_of(np.array(left, dtype), np.array(right, dtype), 31)
        assert found.dtype == np.int32
        assert found.tolist() == [expected.get(node, node) for node in range(31)]


@examples(100)
@given(st.lists(st.tuples(IDS, IDS), max_size=40))
def test_ids_may_be_any_numbers_of_64_bits(edges: list[tuple[int, int]]) -> None:
    left, right = [one for one, _ in edges], [other for _, other in edges]
    assert labels_of(left, right) == plain(left, right)
    with tempfile.TemporaryDirectory() as folder:
        assert external(left, right, folder) == plain(left, right)


@examples(100)
@given(EDGES)
def test_a_spanning_forest_has_the_same_components_and_no_edge_too_many(edges: list[tuple[int, int]]) -> None:
    left, right = np.array(edges, np.uint64).reshape(-1, 2).T
    some, others = spanning_forest(left, right)
    expected = plain(left.tolist(), right.tolist())
    loops = {node: node for node in expected}
    assert loops | plain(some.tolist(), others.tolist()) == expected
    assert len(some) == len(expected) - len(set(expected.values()))


@examples(50)
@given(EDGES)
def test_without_kernels_the_result_is_the_same(edges: list[tuple[int, int]]) -> None:
    left, right = np.array(edges, np.uint64).reshape(-1, 2).T
    expected = labels_of(left, right), spanning_forest(left, right), components_of(left, right, 31)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        assert labels_of(left, right) == expected[0]
        assert np.array_equal(spanning_forest(left, right), expected[1])
        assert np.array_equal(components_of(left, right, 31), expected[2])


def test_more_nodes_than_32_bits_can_number_take_64_bits() -> None:
    """Too many for a test: so the forest is made to believe it."""
    forest = union_find.Forest(1000)
    forest._parents = forest._parents.astype(np.int64)
    chance = np.random.default_rng(1)
    left, right = chance.integers(0, 1000, (2, 700))
    forest.join(left, right)
    assert forest.roots().tolist() == components_of(left, right, 1000).tolist()


@pytest.mark.parametrize("order", ["ascending", "descending", "any"])
def test_a_chain_of_100_000_nodes_is_one_component(order: str) -> None:
    nodes = np.arange(7, 100_007, dtype=np.uint64)
    edges = np.random.default_rng(0).permutation(99_999) if order == "any" else np.arange(99_999)
    edges = edges[::-1] if order == "descending" else edges
    found, labels = connected_components(nodes[:-1][edges], nodes[1:][edges])
    assert np.array_equal(found, nodes)
    assert (labels == 7).all()
    assert (components_of(edges, edges + 1, 100_000) == 0).all()


@pytest.mark.parametrize("name", graphs())
@pytest.mark.parametrize("memory_bytes", [TINY, 16 * TINY])
def test_with_little_memory_the_result_is_the_same(name: str, memory_bytes: int, tmp_path: Path) -> None:
    left, right = graphs()[name]
    assert external(left, right, str(tmp_path), memory_bytes) == labels_of(left, right)


def test_a_long_chain_with_little_memory(tmp_path: Path) -> None:
    edges = np.random.default_rng(3).permutation(99_999)
    with Components(16 * TINY, tmp_path) as components:
        components.add(edges, edges + 1)
        parts = list(components.members(10**9))
    assert max(len(nodes) for nodes, _ in parts) <= 16 * 256  # no more than fit into memory
    assert sum(len(nodes) for nodes, _ in parts) == 100_000
    assert not any(labels.any() for _, labels in parts)


def test_nodes_beyond_the_memory_go_to_disk_and_others_do_not(tmp_path: Path) -> None:
    with Components(TINY, tmp_path) as components:
        components.add(np.arange(100), np.arange(100) + 1)
        assert os.listdir(tmp_path) == []
        components.add(np.arange(1000), np.arange(1000) + 1)
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("left", "right", "error", "message"),
    [
        (np.array([1, 2]), np.array([1]), ValueError, "left has 2 nodes and right has 1"),
        (np.array([0.5]), np.array([1]), TypeError, "left must be a flat array of whole numbers"),
        (np.array([1]), np.array([[1]]), TypeError, "right must be a flat array of whole numbers, not 2-dimensional"),
        (np.array([1]), np.array([-5]), ValueError, "right: -5 is not a node"),
    ],
)
def test_wrong_edges_are_refused(left: Any, right: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        connected_components(left, right)


@pytest.mark.parametrize("kernels", ["on", "off"])
def test_nodes_that_do_not_exist_are_refused(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "off":
        monkeypatch.setattr(native, "load", lambda name: None)
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=rf"edge 1 \(2, {wrong}\): the nodes must be from 0 to 2"):
            components_of(np.array([0, 2]), np.array([1, wrong]), 3)


def test_an_index_holds_no_more_nodes_than_it_may() -> None:
    index = union_find.NodeIndex(1500)
    ids = np.arange(1500, dtype=np.uint64)
    assert index.number(ids).tolist() == index.number(ids).tolist() == list(range(1500))
    with pytest.raises(OverflowError, match="more than 1,500 nodes"):
        index.number(np.array([1500], np.uint64))


def test_little_memory_must_be_enough(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="memory_bytes=100: must be at least 16384"):
        Components(100, tmp_path)


def test_no_edges_come_after_the_result(tmp_path: Path) -> None:
    with Components(TINY, tmp_path) as components:
        assert list(components.members()) == []
        with pytest.raises(RuntimeError, match="after members"):
            components.add(np.array([1]), np.array([2]))
