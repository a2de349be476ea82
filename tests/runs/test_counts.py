"""What a run counts and says at its end: rows at every stage, names of branches, what was set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import AllSetAsideError, PlanError, StageError
from tamis.pipeline import Pipeline
from tamis.runs.directory import RunDirectory
from tamis.runs.report import summary_table
from tamis.runs.result import RunResult
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch

HOSTILE = "\x1b]0;gotcha\x07\x1b[2J\u202e"


def run(folder: Path, *stages: Any) -> RunResult:
    pipeline = Pipeline("counts", stages=stages)
    return pipeline.run(LocalExecutor(workers=0), run_dir=str(folder / "run"), progress="off")


def write_rows(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def rows(count: int) -> list[str]:
    return [json.dumps({"text": "word " * i, "lang": ["de", "en"][i % 2]}) for i in range(count)]


def test_rows_are_counted_once_and_as_rows_at_every_stage(tmp_path: Path) -> None:
    keep_long = ScoreFilter(WordCountFilter(min_words=5))
    result = run(
        tmp_path,
        JsonlReader(write_rows(tmp_path / "a.jsonl", rows(20))),
        Tee([JsonlWriter(str(tmp_path / "all"))]),
        Route("lang", {"de": [Dropped(keep_long, [JsonlWriter(str(tmp_path / "short"))])]}),
        JsonlWriter(str(tmp_path / "out"), shard_bytes=200),
    )
    shown = [line.split("  ")[0] for line in summary_table(result.summary).splitlines()]
    assert "Route[de] / word_count[dropped] / JsonlWriter" in shown
    counted = {s.name: (s.rows_in, s.files) for s in result.stages if s.tasks_in}
    assert counted["Tee"] == (20, 0)
    assert result.stage("Tee").rows_out == 20
    assert counted["Tee[copy] / JsonlWriter"][0] == 20
    assert counted["Route[de] / word_count[dropped] / JsonlWriter"][0] == 3
    assert counted["JsonlWriter"][0] == 17  # of several shards
    assert counted["JsonlWriter"][1] > 1
    assert result.stage("word_count").rows_in == 10  # the last part of a name is enough
    with pytest.raises(KeyError, match="there is no stage 'words'"):
        result.stage("words")


def test_a_run_that_sets_rows_aside_is_done_with_failures(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.jsonl", ['{"text": "a"}', "broken", '{"text": "b"}'])
    result = run(tmp_path, JsonlReader(source, on_error="quarantine"), JsonlWriter(str(tmp_path / "out")))
    assert (result.state, result.summary.rows_set_aside, result.rows) == ("done with failures", 1, 2)
    assert not (tmp_path / "run" / "scratch").exists()


def test_a_run_that_sets_everything_aside_has_failed(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.jsonl", ["broken", "too"])
    with pytest.raises(
        AllSetAsideError, match=r"every row was set aside.*run/quarantine.*'JsonlReader': Expecting value"
    ):
        run(tmp_path, JsonlReader(source, on_error="quarantine"), JsonlWriter(str(tmp_path / "out")))
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["state"] == "failed"
    assert "every row was set aside" in summary["error"]


def test_a_run_directory_is_used_by_one_run_at_a_time(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "a.jsonl", rows(3))
    in_the_way = tmp_path / "out"
    in_the_way.write_text("a file")
    with pytest.raises(PlanError, match="is a file"):
        run(tmp_path, JsonlReader(source), JsonlWriter(str(in_the_way)))
    run(tmp_path, JsonlReader(source), JsonlWriter(str(tmp_path / "other")))  # the directory was free again
    assert not (tmp_path / "run" / "run.lock").exists()
    RunDirectory.create("first", str(tmp_path / "another"))
    with pytest.raises(PlanError, match="another run writes there"):
        RunDirectory.create("second", str(tmp_path / "another"))


def test_a_long_and_hostile_error_is_shortened_and_spelled_out(tmp_path: Path) -> None:
    @processing_stage(name="fails")
    def fails(task: DocumentBatch) -> DocumentBatch:
        raise ValueError(f"begin {HOSTILE}" + "x" * 5_000_000 + " the very end")

    with pytest.raises(StageError) as failure:
        run(tmp_path, JsonlReader(write_rows(tmp_path / "a.jsonl", rows(3))), fails)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["error"]
    page = (tmp_path / "run" / "report.html").read_text()
    for text in (str(failure.value), recorded, page):
        assert len(text) < 60_000
        assert "begin" in text
        assert "characters cut" in text
        assert "the very end" in text
        assert not set("\x1b\x07\u202e") & set(text)
