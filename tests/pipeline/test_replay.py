"""One batch of a run can be run again, in this process, at one stage."""

from __future__ import annotations

import json
import pdb
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.pipeline.replay import batches_of_stage, replay
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Route
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify
from tests.support.row_runs import FailsOn, OddOnes, rows_of, write_rows


def made(folder: Path, *stages: Any) -> tuple[Pipeline, str]:
    write_rows(folder / "in" / "a.jsonl", rows_of(60))
    whole = [JsonlReader(str(folder / "in"), blocksize="900B"), *stages, JsonlWriter(str(folder / "out"))]
    pipeline = Pipeline("rows", stages=whole)
    result = pipeline.run(LocalExecutor(workers=0), run_dir=folder / "run", progress="off")
    return pipeline, result.run_dir


def words(least: int) -> ScoreFilter:
    return ScoreFilter(WordCountFilter(min_words=least))


def test_every_batch_gives_what_the_run_counted(tmp_path: Path) -> None:
    branch = [words(6).with_(fuse=False)]
    pipeline, run = made(tmp_path, words(3), Modify(str.upper), OddOnes(), Route("lang", {"de": branch}, otherwise=[]))
    plan = pipeline.plan()
    before = sorted((tmp_path / "out").iterdir())
    for stage in ("JsonlReader", "word_count", "upper", "odd ones", "Route[de] / word_count"):
        batches = batches_of_stage(plan, run, stage)
        assert len(batches) > 2
        for batch in batches:
            told = replay(plan, run, stage, batch.places[0])
            assert told.error == ""
            counted = batch.counts.get(stage, {})
            if stage != "JsonlReader":
                assert told.rows_in == counted.get("rows_in", 0)
            assert told.rows_out == counted.get("rows_out", 0)
            assert len(told.dropped) == sum(counted.get("dropped", {}).values())
            assert told == replay(plan, run, stage, batch.tasks[0])
    assert sorted((tmp_path / "out").iterdir()) == before


def test_a_writer_leaves_nothing(tmp_path: Path) -> None:
    pipeline, run = made(tmp_path, words(3))
    before = sorted((tmp_path / "out").iterdir())
    told = replay(pipeline.plan(), run, "JsonlWriter", "000001")
    assert [Path(path).name for path in told.files] == ["part-000001.jsonl"]
    assert sorted((tmp_path / "out").iterdir()) == before


def test_a_stage_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, run = made(tmp_path, FailsOn([17]))
    seen: list[Any] = []
    monkeypatch.setattr(pdb, "post_mortem", seen.append)
    told = [
        replay(pipeline.plan(), run, "fails", b.places[0], "error")
        for b in batches_of_stage(pipeline.plan(), run, "fails")
    ]
    [failed] = [one for one in told if one.error]
    assert failed.error.startswith("RuntimeError: cannot do 17")
    assert "row_runs.py" in failed.error
    assert len(seen) == 1


def test_rows_that_an_earlier_stage_failed_on_are_left_out(tmp_path: Path) -> None:
    pipeline, run = made(tmp_path, FailsOn([17]), words(3))
    plan = pipeline.plan()
    told = [replay(plan, run, "word_count", b.places[0]) for b in batches_of_stage(plan, run, "word_count")]
    assert [(one.rows_in, one.rows_out) for one in told] == [
        (one.recorded["rows_in"], one.recorded["rows_out"]) for one in told
    ]
    assert sum(one.rows_in for one in told) == 59


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    pipeline, run = made(tmp_path, words(3), ExactDeduplication())
    plan = pipeline.plan()
    with pytest.raises(DataError, match=r"was given no task '000099'.*\n  Its tasks are 000000, 000001"):
        replay(plan, run, "word_count", "000099")
    with pytest.raises(PlanError, match=r"no stage 'word_cuont'\. Did you mean 'word_count'"):
        replay(plan, run, "word_cuont", "000000")
    after = batches_of_stage(plan, run, "JsonlWriter")
    with pytest.raises(PlanError, match="brings rows of all tasks together"):
        replay(plan, run, "JsonlWriter", after[0].tasks[0])
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(DataError, match="changed since the run"):
        replay(plan, run, "word_count", "000000")


RECIPE = """
name: words
stages:
  - JsonlReader: {file_paths: in, blocksize: 900B}
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 5}}}
  - JsonlWriter: {path: out}
run: {workers: 0, run_dir: run}
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "in" / "a.jsonl", rows_of(60))
    Path("recipe.yaml").write_text(RECIPE)
    assert main(["run", "recipe.yaml", "-q"]) == 0
    assert main(["replay", "run", "--stage", "word_count"]) == 0
    listed = capsys.readouterr().out
    assert "000003" in listed
    assert main(["replay", "run", "--stage", "word_count", "--task", "000001"]) == 0
    shown = capsys.readouterr().out
    assert "dropped: " in shown
    assert "word_count outside 5..100000, score" in shown
    assert main(["replay", "run", "--stage", "word_count", "--task", "000001", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["made"][0]["columns"] == ["id", "text", "lang"]
    assert main(["replay", "run", "--stage", "word_count", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > 3
    assert main(["replay", "run", "--stage", "word_count", "--task", "7"]) == 1
