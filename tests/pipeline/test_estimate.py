"""Estimates: what a sample predicts, and that nothing but temporary directories is touched."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.cli import main
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.pipeline.estimate import Estimate
from tamis.runs.extrapolation import distinct_in_whole
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch

ROWS = 8000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files with 8,000 rows, of which a quarter is short and a quarter is a copy of another row."""
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [{"text": f"{i // 2 if i % 4 < 2 else i} " + "word " * (2 if i % 4 == 3 else 60)} for i in range(ROWS)]
    random.Random(3).shuffle(rows)
    for number in range(8):
        lines = [json.dumps(row) + "\n" for row in rows[number::8]]
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


def estimate(source: Path, stages: list[Any], workers: int = 2, **settings: Any) -> Estimate:
    reader = JsonlReader(str(source), blocksize="60kB")
    return Pipeline("guess", stages=[reader, *stages]).estimate(
        LocalExecutor(workers=workers), sample_seconds=0.2, **settings
    )


def test_rows_and_bytes_of_the_output_are_predicted(tmp_path: Path, source: Path) -> None:
    stages = [ScoreFilter(WordCountFilter(min_words=10)), JsonlWriter(str(tmp_path / "out"))]
    found = estimate(source, stages)
    assert found.output_rows == pytest.approx(ROWS * 0.75, rel=0.1)
    done = Pipeline("real", stages=[JsonlReader(str(source)), *stages]).run(run_dir=tmp_path / "run", progress="off")
    assert found.output_bytes == pytest.approx(done.summary.output_bytes, rel=0.1)
    assert found.input_bytes == sum(p.stat().st_size for p in source.iterdir())
    assert {s.name: s.rows_out for s in found.stages}["JsonlReader"] == pytest.approx(ROWS, rel=0.05)
    low, high = found.seconds_range
    assert low <= found.seconds <= high


def test_an_empty_input_is_refused(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.jsonl").touch()
    with pytest.raises(PlanError, match="the input is empty"):
        estimate(tmp_path, [JsonlWriter(str(tmp_path / "out"))])


def test_duplicates_of_the_whole_are_more_than_those_of_the_sample(tmp_path: Path, source: Path) -> None:
    found = estimate(source, [ExactDeduplication(), JsonlWriter(str(tmp_path / "out"))])
    assert found.output_rows == pytest.approx(ROWS * 0.75, rel=0.15)
    assert found.scratch_bytes > found.input_bytes / 2


@pytest.mark.parametrize(("copies", "share"), [(2, 0.1), (4, 0.1), (10, 0.02), (10, 0.5)])
def test_the_number_of_copies_is_found(copies: int, share: float) -> None:
    chance = random.Random(copies)
    rows = [n // copies for n in range(60_000)]  # the first half: copies, the second: not
    rows[30_000:] = range(30_000, 60_000)
    sample = [row for row in rows if chance.random() < share]
    counts: dict[int, int] = {}
    for row in sample:
        counts[row] = counts.get(row, 0) + 1
    kept = distinct_in_whole([n for n in counts.values() if n > 1], len(sample), share)
    assert kept == pytest.approx(len(set(rows)) / len(rows), abs=0.08)


def test_nothing_is_left_behind(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    stages = [ExactDeduplication(), ParquetWriter(str(tmp_path / "out"), shard_bytes="1MB", mode="overwrite")]
    assert estimate(source, stages).output_rows > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out", "tmp"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]
    assert list(temporary.iterdir()) == []


def test_the_pipeline_is_not_changed(tmp_path: Path, source: Path) -> None:
    pipeline = Pipeline("guess", stages=[JsonlReader(str(source)), JsonlWriter(str(tmp_path / "out"))])
    before = pipeline.to_recipe(), str(pipeline.plan())
    pipeline.estimate(LocalExecutor(workers=1), sample_seconds=0.1)
    assert (pipeline.to_recipe(), str(pipeline.plan())) == before


def test_a_cluster_of_a_given_shape(tmp_path: Path, source: Path) -> None:
    stages = [ScoreFilter(WordCountFilter()), JsonlWriter(str(tmp_path / "out"))]
    small, large = (estimate(source, stages, cluster=shape) for shape in ("1x1cpu", "4x4cpu"))
    assert (small.workers, large.workers) == (1, 16)
    assert large.target == "4 machines, 16 cores"


@pytest.mark.parametrize("shape", ["", "cpu", "0x4cpu", "4", "2x4gpu", "4cpu,"])
def test_a_shape_that_says_nothing_is_refused(tmp_path: Path, source: Path, shape: str) -> None:
    with pytest.raises(PlanError, match="8x16cpu"):
        estimate(source, [JsonlWriter(str(tmp_path / "out"))], cluster=shape)


def test_a_cluster_needs_a_shape(source: Path) -> None:
    with pytest.raises(PlanError, match="--cluster"):
        Pipeline("guess", stages=[JsonlReader(str(source))]).estimate(StreamingExecutor())


def test_a_pipeline_that_reads_no_files_is_refused() -> None:
    @processing_stage(name="same")
    def same(task: DocumentBatch) -> DocumentBatch:
        return task

    with pytest.raises(PlanError):
        Pipeline("guess", stages=[same]).estimate(LocalExecutor(workers=1))


def test_an_input_of_one_small_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    found = estimate(tmp_path / "a.jsonl", [JsonlWriter(str(tmp_path / "out"))])
    assert (found.input_tasks, found.output_rows) == (1, 1)


def test_the_command(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(
        f"stages:\n  - JsonlReader: {{file_paths: {source}}}\n  - JsonlWriter: {{path: {tmp_path}/out}}\n"
    )
    command = ["plan", str(tmp_path / "r.yaml"), "--estimate", "--workers", "1"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "JsonlReader" in shown
    assert "scratch disk" in shown
    assert main([*command, "--json", "--cluster", "2x8cpu"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["workers"] == 16
    assert [stage["name"] for stage in values["stages"]] == ["JsonlReader", "JsonlWriter"]
