"""What a run dropped, in counts and examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis.cli import main
from tamis.errors import DataError
from tamis.runs.drop_samples import dropped_summary
from tamis.runs.dropped_rows import count_drops, sample_drops
from tamis.runs.result import RunResult
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tests.support.row_runs import OddOnes, rows_of, run_stages, write_rows


def make(tmp_path: Path, blocksize: str = "1MiB", **settings: bool) -> RunResult:
    path = write_rows(tmp_path / "in.jsonl", rows_of(100))
    words = ScoreFilter(WordCountFilter(min_words=4))
    stages = [JsonlReader(str(path), blocksize=blocksize), words, OddOnes(), JsonlWriter(str(tmp_path / "out"))]
    return run_stages(tmp_path, stages, **settings)


def test_counts_by_stage_and_reason(tmp_path: Path) -> None:
    run = make(tmp_path).run_dir
    few = {"stage": "word_count", "reason": "word_count outside 4..100000", "rows": 30}
    even = {"stage": "odd ones", "reason": "dropped by odd ones", "rows": 30}
    assert dropped_summary(run).counts == [few, even]
    assert dropped_summary(run, stage="odd ones").counts == [even]
    assert dropped_summary(run, reason="outside").counts == [few]
    assert sum(count_drops(run).values()) == dropped_summary(run).rows == 60


def test_examples_have_their_text_score_and_threshold(tmp_path: Path) -> None:
    for example in dropped_summary(make(tmp_path).run_dir, sample=60).examples:
        number = example["values"]["id"]
        assert example["text"] == rows_of(100)[number]["text"]
        if example["stage"] == "word_count":
            assert (example["score"], example["low"]) == (number % 10 + 1, 4)
        else:
            assert (example["score"], example["low"], number % 2) == (None, None, 0)


def test_a_sample_is_the_same_however_the_input_was_cut(tmp_path: Path) -> None:
    one = sample_drops(make(tmp_path).run_dir, 7, seed=3)
    (tmp_path / "again").mkdir()
    for file in (tmp_path / "run", tmp_path / "out"):
        file.rename(tmp_path / "again" / file.name)
    assert sample_drops(make(tmp_path, "700B").run_dir, 7, seed=3) == one
    assert sample_drops(str(tmp_path / "run"), 7, seed=4) != one
    assert len({row.name for row in sample_drops(str(tmp_path / "run"), 1000)}) == 60


def test_without_a_drop_ledger_there_are_counts_but_no_examples(tmp_path: Path) -> None:
    run = make(tmp_path, drop_ledger=False).run_dir
    assert dropped_summary(run).rows == 60
    with pytest.raises(DataError, match="no drop ledger"):
        dropped_summary(run, sample=1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    run = make(tmp_path).run_dir
    assert main(["drops", run, "--stage", "word_count", "--sample", "2"]) == 0
    shown = capsys.readouterr().out
    assert "30 rows were dropped." in shown
    assert shown.count("kept are scores from 4 to 100000") == 2
    assert main(["drops", run, "--sample", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], len(told["counts"]), len(told["sample"])) == (60, 2, 2)
    assert main(["drops", run, "--stage", "word_cuont"]) == 1
    assert "Did you mean 'word_count'" in capsys.readouterr().err
    assert main(["drops", run, "--reason", "nothing like it"]) == 0
    assert "no rows" in capsys.readouterr().out
