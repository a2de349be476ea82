"""Exchanges bring rows together: all of them, with their names, in order, whatever batches, limits and files are."""

from __future__ import annotations

import builtins
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError
from tamis.pipeline import Pipeline
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.exchange import Exchange, Rounds, map_side
from tamis.stages.exchange.files import Rows
from tamis.stages.io import JsonlReader
from tamis.tasks import DocumentBatch, TableTask
from tamis.testing import run_everywhere, run_stage

Row = dict[str, Any]


class PerKey(Exchange[DocumentBatch, DocumentBatch]):
    """Each key with its numbers, in the order in which they come, and the names of its rows."""

    key = "k"

    def __init__(self, partitions: int = 3, partition_bytes: int = 2**20) -> None:
        self.partitions, self.partition_bytes = partitions, partition_bytes

    def reduce(self, rows: DocumentBatch) -> DocumentBatch:
        assert rows.names is not None
        frame = rows.to_polars().with_columns(name=pl.Series(rows.names.to_texts()))
        return DocumentBatch(frame.group_by("k", maintain_order=True).agg("n", "name"))


class Streamed(PerKey):
    """Also takes keys that are larger than the limit."""

    def reduce_stream(self, batches: Iterator[TableTask]) -> DocumentBatch:
        parts = [row for batch in batches for row in self.reduce(batch).data.to_pylist()]  # type: ignore[arg-type]
        assert len(parts) > 1
        assert len({row["k"] for row in parts}) == 1
        whole = {name: [value for row in parts for value in row[name]] for name in ("n", "name")}
        return DocumentBatch([{"k": parts[0]["k"], **whole}])


class Sorted(Exchange[DocumentBatch, DocumentBatch]):
    """Rows sorted by a key."""

    key = "k"
    partitioning = "range"

    def __init__(self, partitions: int = 3, partition_bytes: int = 2**20, bounds: list[Any] | None = None) -> None:
        self.partitions, self.partition_bytes, self.bounds = partitions, partition_bytes, bounds


def batches(rows: list[Row], size: int) -> list[DocumentBatch]:
    """Batches whose rows have names that do not depend on the batches."""
    made = []
    for at in range(0, len(rows), size):
        batch = DocumentBatch(rows[at : at + size]).named("whole")
        assert batch.names is not None
        made.append(batch.named(type(batch.names)(("whole",), batch.names.positions + at)))
    return made


def keyed(keys: list[Any]) -> list[Row]:
    return [{"k": key, "n": n} for n, key in enumerate(keys)]


KEYS = st.lists(st.sampled_from(["a", "b", "c", "dd", "", "é", None]), min_size=1, max_size=60)


@examples(40)
@given(KEYS, st.integers(1, 20), st.integers(1, 5), st.sampled_from([64, 1000, 2**20]))
def test_a_key_has_all_its_rows_in_order_with_their_names(keys: Any, size: int, partitions: int, limit: int) -> None:
    rows = keyed(keys)
    expected = {key: [n for n, other in enumerate(keys) if other == key] for key in keys}
    stage = Streamed(partitions, limit)
    found = run_stage(stage, batches(rows, size))
    assert {row["k"]: row["n"] for row in found} == expected
    assert all(row["name"] == [f"whole:{n}" for n in row["n"]] for row in found)
    assert len(found) == len(expected)


@examples(40)
@given(
    st.one_of(
        st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**60), 2**60)), min_size=1, max_size=60),
        st.lists(st.one_of(st.none(), st.text("abé", max_size=3)), min_size=1, max_size=60),
        st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=30),
    ),
    st.integers(1, 20),
    st.integers(1, 5),
    st.sampled_from([64, 1000, 2**20]),
)
def test_ranges_sort_the_whole(keys: list[Any], size: int, partitions: int, limit: int) -> None:
    found = run_stage(Sorted(partitions, limit), batches(keyed(keys), size))
    whole = pl.DataFrame(keyed(keys), schema_overrides={"n": pl.Int64}, strict=False, infer_schema_length=None)
    expected = whole.sort("k", nulls_last=True, maintain_order=True)
    assert [row["n"] for row in found] == expected["n"].to_list()


def test_given_bounds_are_the_partitions() -> None:
    result = run_stage(Sorted(bounds=[10, 20]), batches(keyed([25, 3, 10, 19, None, 20, 9]), 3))
    assert [[row["k"] for row in task.data.to_pylist()] for task in result.tasks] == [[3, 9], [10, 19], [20, 25, None]]


def test_without_a_key_all_rows_come_together() -> None:
    class Total(Exchange[DocumentBatch, DocumentBatch]):
        def reduce(self, rows: DocumentBatch) -> DocumentBatch:
            return DocumentBatch({"total": [sum(rows["n"].to_pylist())], "rows": [rows.num_items]})

    assert run_stage(Total(), batches(keyed(list("abcabc")), 2)) == [{"total": 15, "rows": 6}]


def test_a_key_that_does_not_fit_is_an_error_that_says_what_to_do() -> None:
    rows = keyed(["hot"] * 200 + ["cold"])
    with pytest.raises(DataError, match=r"k='hot'.*200 of them.*partition_bytes=1,000") as error:
        run_stage(PerKey(1, 1000), batches(rows, 50))
    assert "reduce_stream" in str(error.value)


def test_each_file_is_opened_once_per_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of all files is read from one place; a file without rows for a partition is not opened for it."""
    opened: Counter[str] = Counter()
    true_open = io.open

    def counting(path: Any, *args: Any, **more: Any) -> Any:
        if "/map/" in str(path) and not Path(str(path)).name.startswith("."):
            opened[Path(str(path)).name] += 1
        return true_open(path, *args, **more)

    monkeypatch.setattr(io, "open", counting)
    monkeypatch.setattr(builtins, "open", counting)
    keys = ["a"] * 40 + ["b"] * 40 + ["c"] * 40  # a file has rows of one key, so of one partition
    run_stage(PerKey(8), batches(keyed(keys), 20))
    assert len(opened) == 6
    assert set(opened.values()) == {2}  # once for its index, once for the one partition that it has rows for


def test_many_files_are_merged_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = keyed([f"k{n % 17}" for n in range(300)])
    expected = [run_stage(stage, batches(rows, 5)) for stage in (PerKey(4), Sorted(4))]
    monkeypatch.setattr(map_side, "MERGE_ABOVE", 10)
    monkeypatch.setattr(map_side, "MERGE_BYTES", 30_000)
    assert [run_stage(stage, batches(rows, 5)) for stage in (PerKey(4), Sorted(4))] == expected
    merging = next(s for s in run_stage(PerKey(4), batches(rows, 5)).stages if "merge" in s.name)
    assert 1 < merging.tasks_in < 30


def test_rows_that_vanish_in_a_reduce_are_booked() -> None:
    class FirstOfKey(Exchange[DocumentBatch, DocumentBatch]):
        key, makes_rows = "k", "same"

        def reduce(self, rows: DocumentBatch) -> DocumentBatch:
            return DocumentBatch(rows.to_polars().unique("k", keep="first", maintain_order=True))

    run = run_stage(FirstOfKey(), batches(keyed(list("abab")), 3))
    assert sorted(row["n"] for row in run) == [0, 1]
    assert sorted(row.row["n"] for row in run.dropped) == [2, 3]


def test_the_same_on_every_local_executor() -> None:
    tasks = batches(keyed([f"k{n % 7}" for n in range(90)]), 10)
    run_everywhere(lambda _: Pipeline("p", stages=[Streamed(3, 700), Sorted(2)]), initial_tasks=tasks, workers=2)


class Components(Exchange[DocumentBatch, DocumentBatch]):
    """One round of label propagation: a node takes the smallest label around it and sends it to its neighbours."""

    key, partitions = "node", 3

    def reduce(self, rows: DocumentBatch) -> DocumentBatch:
        least = pl.col("label").min().over("node")
        frame = rows.to_polars().with_columns(changed=pl.col("label") != least, label=least)
        return DocumentBatch(frame.select(node="other", other="node", label="label", changed="changed"))


@examples(15)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12), st.integers(1, 9))
def test_rounds_go_on_until_nothing_changes(edges: list[tuple[int, int]], size: int) -> None:
    pairs = {(n, n) for n in range(10)} | {pair for a, b in edges for pair in ((a, b), (b, a))}
    label = list(range(10))
    for _ in label:
        for a, b in pairs:
            label[a] = label[b] = min(label[a], label[b])
    rows = [{"node": a, "other": b, "label": b} for a, b in sorted(pairs)]
    found = run_stage(Rounds(Components(), at_most=12), batches(rows, size))
    assert {(row["node"], row["other"]) for row in found} == pairs
    assert all(row["label"] == label[row["node"]] for row in found)


def test_rounds_that_do_not_settle_are_an_error() -> None:
    rows = [{"node": n, "other": m, "label": m} for n in range(8) for m in (n - 1, n, n + 1) if 0 <= m < 8]
    with pytest.raises(DataError, match=r"rows still changed in round 2.*\n.*at_most"):
        run_stage(Rounds(Components(), at_most=2), batches(rows, 50))


def test_wrong_declarations_are_refused() -> None:
    class TwoKeys(Exchange[DocumentBatch, DocumentBatch]):
        key, partitioning = ("a", "b"), "range"

    with pytest.raises(ValueError, match="needs one key column"):
        Pipeline("p", stages=[TwoKeys()]).plan(initial=DocumentBatch)
    with pytest.raises(ValueError, match="partitions=0"):
        Pipeline("p", stages=[PerKey(0)]).plan(initial=DocumentBatch)


def test_duplicates_say_what_they_duplicate_whatever_the_block_size(tmp_path: Path) -> None:
    lines = [f'{{"text": "text {n % 5}"}}\n' for n in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    seen = set()
    for number, blocksize in enumerate(("64B", "1MiB")):
        stages = [JsonlReader(str(tmp_path / "in.jsonl"), blocksize=blocksize), ExactDeduplication(partitions=3)]
        result = Pipeline("p", stages=stages).run(run_dir=str(tmp_path / f"run{number}"), progress="off")
        kept = [row["text"] for task in result for row in task.data.to_pylist()]
        assert kept == [f"text {n}" for n in range(5)]
        drops = pl.read_parquet(f"{tmp_path}/run{number}/drops/*.parquet").sort("position")
        assert drops["reason"].unique().to_list() == ["exact duplicate"]
        size = len(lines[0])
        assert drops["score_text"].to_list() == [f"{tmp_path}/in.jsonl:{size * (n % 5)}" for n in range(5, 40)]
        seen.add(str(drops.drop("batch").to_dicts()))
    assert len(seen) == 1


def test_each_piece_is_measured_once_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    nbytes = Rows.nbytes.fget
    assert nbytes is not None
    monkeypatch.setattr(Rows, "nbytes", property(lambda rows: measured.append(rows) or nbytes(rows)))
    lots = list(Rows.lots((Rows(pa.table({"n": [number]})) for number in range(500)), 8 * 200))
    assert [lot.table.num_rows for lot in lots] == [200, 200, 100]
    assert len(measured) == 500
