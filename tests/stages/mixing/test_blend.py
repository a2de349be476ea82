"""Blends: each source has its share, too small ones are repeated, too large ones sampled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import PlanError, TamisError
from tamis.pipeline import Pipeline
from tamis.stages.io import JsonlReader, ParquetReader
from tamis.stages.mixing import Blend, ReadSources
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage


def rows_of(**counts: int) -> list[dict[str, Any]]:
    return [{"source": source, "n": n, "text": "x" * (n % 7)} for source, count in counts.items() for n in range(count)]


def sources(run: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["source"] for row in run)


def test_without_a_target_nothing_is_repeated() -> None:
    run = run_stage(Blend({"a": 0.75, "b": 0.25}), rows_of(a=90, b=1000))
    assert sources(run) == {"a": 90, "b": 30}
    assert Counter(dropped.reason for dropped in run.dropped) == {"beyond the share of b": 970}
    assert len({(row["source"], row["n"]) for row in run}) == 120


def test_a_small_source_is_repeated_evenly() -> None:
    run = run_stage(Blend({"a": 1, "b": 1}, target=50, repeat_field="copy"), rows_of(a=10, b=100))
    assert sources(run) == {"a": 25, "b": 25}
    assert set(Counter(row["n"] for row in run if row["source"] == "a").values()) == {2, 3}
    assert {row["copy"] for row in run if row["source"] == "a"} == {0, 1, 2}
    assert {row["copy"] for row in run if row["source"] == "b"} == {0}


def test_a_column_for_copies_does_not_take_the_place_of_another() -> None:
    with pytest.raises(TamisError, match="have a column 'n' already"):
        run_stage(Blend({"a": 1}, repeat_field="n"), rows_of(a=3))


def test_rows_without_a_weight_are_left_out_with_a_reason() -> None:
    run = run_stage(Blend({"a": 1}), rows_of(a=3, b=2))
    assert sources(run) == {"a": 3}
    assert [dropped.reason for dropped in run.dropped] == ["its source has no weight"] * 2


def test_what_was_taken_is_counted() -> None:
    run = run_stage(Blend({"a": 1, "b": 3}, target=40, measure="bytes"), rows_of(a=30, b=30))
    custom = next(stats.custom for stats in run.stages if stats.name == "Blend")
    taken = {source: sum(len(row["text"]) for row in run if row["source"] == source) for source in "ab"}
    assert {"a: bytes": taken["a"], "b: bytes": taken["b"]}.items() <= custom.items()
    assert custom["a: rows"] == sources(run)["a"]


@examples(40)
@given(
    sizes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20)), min_size=3, max_size=60),
    weights=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    target=st.integers(1, 500),
    batch=st.integers(1, 30),
)
def test_each_source_meets_its_share_to_within_one_row(
    sizes: list[tuple[str, int]], weights: tuple[int, int], target: int, batch: int
) -> None:
    rows = [{"source": source, "size": size, "n": n} for n, (source, size) in enumerate([("a", 1), ("b", 2), *sizes])]
    tasks = [DocumentBatch(rows[i : i + batch]) for i in range(0, len(rows), batch)]
    run = run_stage(Blend({"a": weights[0], "b": weights[1]}, target=target, measure="size"), tasks)
    for source, weight in zip("ab", weights, strict=True):
        share = round(target * weight / sum(weights))
        taken = [row for row in run if row["source"] == source]
        copies = Counter(row["n"] for row in taken)
        everyone = [copies[row["n"]] for row in rows if row["source"] == source]
        assert max(everyone) - min(everyone) <= 1
        over = sum(row["size"] for row in taken) - share
        assert 0 <= over < 20


def test_with_ids_the_cut_into_batches_does_not_matter() -> None:
    rows = rows_of(a=40, b=200)
    stage = Blend({"a": 1, "b": 1}, target=150, id_fields=["source", "n"])
    one, other = (
        Counter(
            (row["source"], row["n"])
            for row in run_stage(stage, [DocumentBatch(rows[i : i + s]) for i in range(0, 240, s)])
        )
        for s in (13, 240)
    )
    assert one == other


def test_a_source_without_rows_is_an_error_that_names_it() -> None:
    with pytest.raises(TamisError, match=r"'wikki' has a weight.*Did you mean 'wiki'"):
        run_stage(Blend({"wikki": 1}), rows_of(wiki=3))


def test_too_many_epochs_are_refused() -> None:
    with pytest.raises(TamisError, match=r"'a' would be repeated 5.00 times"):
        run_stage(Blend({"a": 1, "b": 1}, target=100, max_epochs=4), rows_of(a=10, b=100))


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": {}},
        {"weights": {"a": 0}},
        {"weights": {"a": float("inf")}},
        {"weights": {"a": "1"}},
        {"weights": {1: 1}},
        {"weights": {"a": 1}, "target": 0},
        {"weights": {"a": 1}, "max_epochs": 0},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Blend(**wrong)


@pytest.fixture
def two_sources(tmp_path: Path) -> Path:
    pl.DataFrame(rows_of(wiki=20)).drop("source").write_ndjson(tmp_path / "wiki.jsonl")
    pl.DataFrame(rows_of(web=100)).drop("source").write_parquet(tmp_path / "web.parquet")
    return tmp_path


def test_several_readers_say_where_rows_are_from(two_sources: Path) -> None:
    readers = {
        "wiki": JsonlReader(str(two_sources / "wiki.jsonl")),
        "again": JsonlReader(str(two_sources / "wiki.jsonl")),
        "web": ParquetReader(str(two_sources / "web.parquet"), fields=["n"]),
    }
    result = Pipeline("read", stages=[ReadSources(readers)]).run(run_dir=str(two_sources / "run"), progress="off")
    rows = [row for task in result for row in task.data.to_pylist()]
    assert sources(rows) == {"wiki": 20, "again": 20, "web": 100}


def test_the_columns_all_sources_have_are_known_beforehand(two_sources: Path) -> None:
    web = ParquetReader(str(two_sources / "web.parquet"), fields=["n"])
    pipeline = Pipeline(
        "read", stages=[ReadSources({"wiki": JsonlReader(str(two_sources / "wiki.jsonl")), "web": web})]
    )
    assert pipeline.plan().columns[-1] == {"n", "source"}
    with pytest.raises(PlanError, match="needs the column 'text'"):
        pipeline.add_stage(Blend({"wiki": 1}, measure="bytes")).plan()


def test_a_source_column_that_is_there_is_refused(two_sources: Path) -> None:
    stage = ReadSources({"wiki": JsonlReader(str(two_sources / "wiki.jsonl"))}, source_field="n")
    with pytest.raises(TamisError, match="have a column 'n' of their own"):
        Pipeline("read", stages=[stage]).run(run_dir=str(two_sources / "run"), progress="off")


def test_what_is_no_reader_is_refused() -> None:
    with pytest.raises(PlanError, match="must be a reader"):
        ReadSources({"a": "data.jsonl"})  # type: ignore[dict-item]  # the error is the point
