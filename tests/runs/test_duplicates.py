"""The duplicates that a run removed, as its result tells them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tamis.cli import main
from tamis.errors import DataError
from tamis.runs.duplicates import Duplicates
from tamis.runs.result import RunResult
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.io import JsonlReader
from tests.support.duplicate_runs import planted, run_planted, texts_of
from tests.support.row_runs import OddOnes, rows_of, run_stages, write_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def result(folder: Path) -> RunResult:
    return run_planted(folder)


def test_groups_their_sizes_and_totals(result: RunResult) -> None:
    found = result.duplicates()
    assert (found.removed, found.groups, found.sizes) == (25, 15, {2: 10, 4: 5})
    totals = found.totals
    assert (totals.rows, totals.removed, totals.groups, totals.largest, totals.share) == (65, 25, 15, 4, 25 / 65)
    assert repr(found) == (
        "Duplicates(25 of 65 rows removed (38.5%) by FuzzyDeduplication, 15 groups, the largest of 4 rows)"
    )
    assert "25 of 65 rows" in found._repr_html_()


def test_the_removed_rows_and_those_kept_in_their_place(result: RunResult, folder: Path) -> None:
    rows = result.duplicates("FuzzyDeduplication").rows()
    assert rows.column_names == ["removed", "kept", "similarity", "stage"]
    removed, kept = rows.column("removed").to_pylist(), rows.column("kept").to_pylist()
    assert len(set(removed)) == 25
    assert not set(removed) & set(kept)
    assert all(0.8 < similarity <= 1 for similarity in rows.column("similarity").to_pylist())
    streamed = [row for batch in result.duplicates().batches() for row in batch.to_pylist()]
    assert sorted(streamed, key=lambda row: row["removed"]) == rows.to_pylist()
    # Which row stays is the first by name: the folder "books" is before "web".
    assert Counter(Path(name.rpartition(":")[0]).stem for name in kept) == {"c": 15, "a": 10}


def test_rates_of_sources_and_between_them(result: RunResult, folder: Path) -> None:
    found = result.duplicates()
    rates = {Path(rate.source).name: (rate.removed, rate.rows) for rate in found.by_source()}
    assert rates == {"b.jsonl": (15, 30), "c.jsonl": (10, 15), "a.jsonl": (0, 20)}
    rates = {Path(rate.source).name: (rate.removed, rate.share) for rate in found.by_source("folder")}
    assert rates == {"web": (15, 0.3), "books": (10, 10 / 15)}
    pairs = {(Path(p.removed).stem, Path(p.kept).stem): p.rows for p in found.between_sources()}
    assert pairs == {("b", "a"): 10, ("b", "c"): 5, ("c", "c"): 10}
    bounded = found.between_sources(most=1)
    assert [(p.removed == "others", p.rows) for p in bounded] == [(False, 10), (True, 15)]
    rates = found.by_source(most=1)
    assert [(r.source == "others", r.removed, r.rows) for r in rates] == [(False, 15, 30), (True, 10, 35)]


def test_small_files_that_were_read_together_are_counted_again(tmp_path: Path) -> None:
    for n, text in enumerate(texts_of(2)):
        write_rows(tmp_path / "in" / f"{n}.jsonl", [{"text": text}] * (n + 2))
    reader = JsonlReader(str(tmp_path / "in"), files_per_partition=2)
    result = run_stages(tmp_path, [reader, ExactDeduplication()])
    assert [(rate.removed, rate.rows) for rate in result.duplicates().by_source()] == [(2, 3), (1, 2)]
    (tmp_path / "in" / "0.jsonl").unlink()
    found = result.duplicates()
    assert [(rate.removed, rate.rows, rate.share) for rate in found.by_source()] == [(2, None, None), (1, None, None)]
    assert [(rate.removed, rate.rows) for rate in found.by_source("folder")] == [(3, 5)]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_sample_has_both_texts(tmp_path: Path, suffix: str) -> None:
    found = run_planted(tmp_path, suffix=suffix).duplicates()
    pairs = found.sample(100)
    assert len({pair.removed for pair in pairs}) == 25
    known = {row["text"] for rows in planted().values() for row in rows}
    for pair in pairs:
        assert (pair.problem, pair.stage) == ("", "FuzzyDeduplication")
        assert {pair.removed_text, pair.kept_text} <= known
        assert pair.removed_text.split()[:80] == pair.kept_text.split()[:80]
    assert found.sample(3, seed=1) == found.sample(3, seed=1)
    assert len({tuple(p.removed for p in found.sample(3, seed=seed)) for seed in range(5)}) > 1


def test_texts_that_are_gone_are_reported(tmp_path: Path) -> None:
    result = run_planted(tmp_path)
    (tmp_path / "in" / "books" / "c.jsonl").unlink()
    problems = {pair.problem for pair in result.duplicates().sample(100)}
    assert "" in problems
    assert any(problem.startswith("the kept row: the source is gone") for problem in problems)


def test_stages_together_and_alone(tmp_path: Path) -> None:
    text = texts_of(1)[0]
    write_rows(tmp_path / "in.jsonl", [{"text": text}, {"text": text}, {"text": text + " more"}])
    result = run_stages(
        tmp_path, [JsonlReader(str(tmp_path / "in.jsonl")), ExactDeduplication(), FuzzyDeduplication(partitions=1)]
    )
    assert [result.duplicates(stage).removed for stage in ("", "ExactDeduplication", "FuzzyDeduplication")] == [2, 1, 1]
    assert result.duplicates().stages == ["ExactDeduplication", "FuzzyDeduplication"]
    assert result.duplicates().sizes == {2: 2}
    assert [pair.similarity for pair in result.duplicates("ExactDeduplication").sample()] == [None]
    with pytest.raises(DataError, match=r"no stage 'FuzyDeduplication'.*Did you mean 'FuzzyDeduplication'"):
        result.duplicates("FuzyDeduplication")


def test_other_drops_are_not_duplicates(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in.jsonl", rows_of(20))
    found = run_stages(tmp_path, [JsonlReader(str(path)), OddOnes()]).duplicates()
    assert (found.removed, found.groups, found.sizes, found.sample(3)) == (0, 0, {}, [])
    assert found.rows().num_rows == 0
    assert (found.totals.rows, found.totals.share) == (20, 0.0)


def test_a_run_without_a_drop_ledger_says_so(tmp_path: Path) -> None:
    result = run_planted(tmp_path, drop_ledger=False)
    with pytest.raises(DataError, match="no drop ledger"):
        result.duplicates()


# --- another threshold ----------------------------------------------------------------------------------------------


def graded() -> dict[str, list[dict[str, Any]]]:
    """Texts beside copies of which more and more is replaced, so that similarities are spread over all values."""
    texts, others = texts_of(30), texts_of(30, seed=8)
    rows = {"a": [{"text": text, "score": n % 7} for n, text in enumerate(texts)], "b": []}
    for n, (text, other) in enumerate(zip(texts, others, strict=True)):
        cut = 80 - n // 2
        mixed = " ".join([*text.split()[:cut], *other.split()[cut:]])
        rows["b"].append({"text": mixed, "score": n % 5})
        rows["b"].append({"text": f"{mixed} at the end", "score": n % 3})
    return rows


@pytest.mark.parametrize("keep", ["first", "longest", "highest:score"])
def test_another_threshold_removes_what_a_run_with_it_removes(tmp_path: Path, keep: str) -> None:
    settings = {"keep": keep, "num_bands": 30, "minhashes_per_band": 4}
    low = {**settings, "verify": 0.5, "pairs_path": str(tmp_path / "pairs")}
    result = run_planted(tmp_path / "low", graded(), settings=low)
    before = result.duplicates().rows()
    assert result.duplicates().rethreshold(0.5).rows.equals(before.select(["removed", "kept"]))
    for threshold in (0.7, 0.9):
        again = result.duplicates().rethreshold(threshold)
        folder = tmp_path / str(threshold)
        rows = run_planted(folder, graded(), settings={**settings, "verify": threshold}).duplicates().rows()
        wanted = [name.replace(str(folder), str(tmp_path / "low")) for name in rows.column("removed").to_pylist()]
        assert again.rows.column("removed").to_pylist() == wanted
        assert again.removed == len(wanted) < before.num_rows
        were = set(before.column("removed").to_pylist())
        assert again.newly_kept.to_pylist() == sorted(were - set(wanted))
        assert again.newly_removed.to_pylist() == sorted(set(wanted) - were)


def test_a_threshold_below_that_of_the_run_is_refused(tmp_path: Path) -> None:
    settings = {"verify": 0.8, "pairs_path": str(tmp_path / "pairs")}
    found = run_planted(tmp_path, settings=settings).duplicates()
    with pytest.raises(DataError, match=r"verify=0\.8, less similar pairs were not recorded"):
        found.rethreshold(0.7)
    assert found.rethreshold(1.0).removed == 0
    assert "25 newly kept" in repr(found.rethreshold(1.0))


def test_a_run_that_recorded_no_pairs_says_what_to_do(result: RunResult, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"recorded no pairs.*\n.*--pairs-path"):
        result.duplicates().rethreshold(0.9)
    write_rows(tmp_path / "other.parquet", [{"text": "a"}])
    with pytest.raises(DataError, match="no column 'left'"):
        result.duplicates().rethreshold(0.9, str(tmp_path))


def test_a_run_directory_is_enough(result: RunResult) -> None:
    assert repr(Duplicates(result.run_dir)) == repr(result.duplicates())


def test_the_drops_command_says_which_row_is_kept_instead(
    result: RunResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drops", result.run_dir, "--sample", "3"]) == 0
    shown = "".join(capsys.readouterr().out.split())  # long names are wrapped anywhere
    for pair in result.duplicates().sample(3):
        assert f"keptinitsplace:{pair.kept}" in shown
