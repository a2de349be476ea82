"""Pipelines whose input, output and run directory get into each other's way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "part-000000.jsonl").write_text('{"a": 1}\n')
    monkeypatch.chdir(tmp_path)
    return folder


def run(reads: str, writer: Any, **settings: Any) -> None:
    Pipeline("p", stages=[JsonlReader(reads), writer]).run(progress="off", **settings)


@pytest.mark.parametrize("reads", ["data", "data/*.jsonl", "data/**/*.jsonl", "."])
def test_a_pipeline_that_would_read_its_own_output_is_refused(data: Path, reads: str) -> None:
    with pytest.raises(PlanError, match="would read its own output the next time"):
        run(reads, JsonlWriter("data"))
    assert (data / "part-000000.jsonl").read_text() == '{"a": 1}\n'


@pytest.mark.parametrize("reads", ["data", "data/part-000000.jsonl", "data/*.jsonl"])
def test_a_pipeline_that_would_remove_its_input_is_refused(data: Path, reads: str) -> None:
    with pytest.raises(PlanError, match="would lose its input"):
        run(reads, JsonlWriter("data", mode="overwrite"))
    assert (data / "part-000000.jsonl").read_text() == '{"a": 1}\n'


def test_a_run_directory_in_the_input_is_refused(data: Path) -> None:
    with pytest.raises(PlanError, match="the run directory data/run is in data, which the pipeline reads"):
        run("data", JsonlWriter("out"), run_dir="data/run")


@pytest.mark.parametrize(
    ("reads", "writer"),
    [
        ("data/part-000000.jsonl", JsonlWriter("out")),
        ("data/*.jsonl", JsonlWriter("data/out")),
        ("data", ParquetWriter("data/out")),
        ("data", JsonlWriter("out", mode="overwrite")),
    ],
)
def test_what_does_not_get_in_the_way_is_allowed(data: Path, reads: str, writer: Any) -> None:
    run(reads, writer)
    run(reads, writer)
    assert (data / "part-000000.jsonl").read_text() == '{"a": 1}\n'


def test_earlier_output_is_not_removed_when_the_run_is_refused(data: Path) -> None:
    run("data", JsonlWriter("out"))
    run("data", JsonlWriter("other"), run_dir="a-run")
    Path("a-run", "manifest.json").unlink()
    with pytest.raises(PlanError, match="holds a run that cannot be continued"):
        run("data", JsonlWriter("out", mode="overwrite"), run_dir="a-run")
    assert (Path("out") / "part-000000.jsonl").exists()


def test_output_in_the_run_directory_counts_as_output(data: Path) -> None:
    result = Pipeline("p", stages=[JsonlReader("data"), JsonlWriter("r/out")]).run(run_dir="r", progress="off")
    assert result.summary.output_rows == 1


@pytest.mark.parametrize("run_dir", ["data/part-000000.jsonl", "data/part-000000.jsonl/x", "https://host/run"])
def test_a_run_directory_that_cannot_be_is_refused_in_words(data: Path, run_dir: str) -> None:
    with pytest.raises(PlanError, match="run directory"):
        Pipeline("p", stages=[JsonlReader("data/part-000000.jsonl"), JsonlWriter("out")]).run(
            run_dir=run_dir, progress="off"
        )


def test_a_pipeline_with_a_very_long_name_runs(data: Path) -> None:
    result = Pipeline("n" * 400, stages=[JsonlReader("data"), JsonlWriter("out")]).run(progress="off")
    assert result.summary.output_rows == 1
