"""Two runs side by side: what was run, and which rows each of them kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import DataError
from tamis.pipeline import Pipeline
from tamis.runs import row_sets
from tamis.runs.compare import compare_runs
from tamis.stages.flow import Tee
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.segments import DocumentSplitter
from tests.support.row_runs import FailsOn, OddOnes, rows_of, write_rows


def run(folder: Path, name: str, *stages: Any, **settings: Any) -> str:
    if not (folder / "in").exists():
        write_rows(folder / "in" / "a.jsonl", rows_of(60))
    whole = [JsonlReader(str(folder / "in"), blocksize="900B"), *stages, JsonlWriter(str(folder / name / "out"))]
    pipeline = Pipeline("rows", stages=whole)
    return pipeline.run(LocalExecutor(workers=0), run_dir=folder / name / "run", progress="off", **settings).run_dir


def words(least: int, most: int = 100) -> ScoreFilter:
    return ScoreFilter(WordCountFilter(min_words=least, max_words=most))


@pytest.mark.parametrize("bucket_rows", [3, 1_000_000])
def test_rows_by_which_run_kept_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket_rows: int) -> None:
    monkeypatch.setattr(row_sets, "BUCKET_ROWS", bucket_rows)
    a = run(tmp_path, "a", words(3), FailsOn([7]))
    b = run(tmp_path, "b", words(1, 7), OddOnes())
    kept_a = {n for n in range(60) if n % 10 >= 2 and n != 7}
    kept_b = {n for n in range(60) if n % 10 <= 6 and n % 2}
    found = compare_runs(a, b, examples=100)
    assert found.kept_by_both == len(kept_a & kept_b)
    assert found.only_a.rows == len(kept_a - kept_b)
    assert found.only_b.rows == len(kept_b - kept_a)
    shown = {len(example["text"].split()) for example in found.only_b.examples}
    assert shown == {n % 10 + 1 for n in kept_b - kept_a}
    reasons = {(entry["stage"], entry["reason"]): entry["rows"] for entry in found.only_a.reasons}
    assert reasons == {
        ("word_count", "word_count outside 1..7"): sum(1 for n in kept_a if n % 10 > 6),
        ("odd ones", "dropped by odd ones"): sum(1 for n in kept_a if n % 10 <= 6 and n % 2 == 0),
    }


def test_copies_that_a_tee_made_are_not_compared(tmp_path: Path) -> None:
    copies = Tee([words(9), JsonlWriter(str(tmp_path / "copies"))])
    a, b = run(tmp_path, "a", copies, words(3)), run(tmp_path, "b", words(5))
    found = compare_runs(a, b)
    assert (found.kept_by_both, found.only_a.rows, found.only_b.rows) == (36, 12, 0)
    assert any("a Tee has made are not compared" in note for note in found.notes)


def test_settings_and_counts(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", words(3)), run(tmp_path, "b", words(5), OddOnes())
    found = compare_runs(a, b)
    settings = {difference.what: (difference.a, difference.b) for difference in found.settings}
    assert "min_words': 3" in settings["word_count.filter_obj"][0].replace('"', "'")
    assert settings["stage odd ones"][0] == ""
    assert [(s.stage, s.a_dropped, s.b_dropped) for s in found.stages][1:3] == [
        ("word_count", 12, 24),
        ("odd ones", None, 18),
    ]
    assert compare_runs(a, a).settings == []
    assert (compare_runs(a, a).only_a.rows, compare_runs(a, a).kept_by_both) == (0, 48)


def test_a_piece_of_a_row_that_the_other_run_dropped_whole_is_no_difference(tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.jsonl", [{"text": "a b|c"}, {"text": "d|e f g"}, {"text": "h"}])
    a = run(tmp_path, "a", DocumentSplitter("|"), words(2))
    b = run(tmp_path, "b", words(3), DocumentSplitter("|"), words(2))
    found = compare_runs(a, b)
    # A drops c, d and h; B drops "a b|c" (2 words) and h whole, and then d
    assert (found.only_a.rows, found.only_b.rows) == (1, 0)
    assert found.kept_by_both is None


def test_other_input(tmp_path: Path) -> None:
    a = run(tmp_path, "a", words(3))
    write_rows(tmp_path / "in" / "b.jsonl", rows_of(10, 60))
    b = run(tmp_path, "b", words(5))
    found = compare_runs(a, b)
    assert (found.input_only_a, found.input_only_b, found.kept_by_both) == (0, 1, None)
    assert (found.only_a.rows, found.only_b.rows) == (12, 0)


def test_without_a_drop_ledger_it_is_refused(tmp_path: Path) -> None:
    a, b = run(tmp_path, "a", words(3)), run(tmp_path, "b", words(5), drop_ledger=False)
    with pytest.raises(DataError, match="no drop ledger"):
        compare_runs(a, b)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = run(tmp_path, "a", words(3)), run(tmp_path, "b", words(5))
    assert main(["diff", a, b]) == 0
    shown = capsys.readouterr().out
    assert "kept by both: 36" in shown
    assert "kept only by A: 12" in shown
    assert "12 left out by B at word_count: word_count outside 5..100" in shown
    assert main(["runs", "compare", a, b]) == 0
    assert capsys.readouterr().out == shown
    assert main(["diff", a, b, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["only_a"]["rows"] == 12
    assert main(["runs", "compare", a]) == 2
    assert main(["runs", "list", a, b]) == 2
    assert main(["diff", a, str(tmp_path / "none")]) == 1
