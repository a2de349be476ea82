"""Run directories: whose they are, and what is read from them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.runs.directory import RunDirectory
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files have owners on POSIX")


@processing_stage(name="same")
def same(task: DocumentBatch) -> DocumentBatch:
    return task


def test_output_tasks_are_not_read_from_a_directory_that_others_can_write_to(tmp_path: Path) -> None:
    batch = DocumentBatch({"text": ["a"]})
    result = Pipeline("p", stages=[same]).run(initial_tasks=[batch], run_dir=tmp_path / "run", progress="off")
    assert len(list(result)) == 1
    for path in (tmp_path / "run", tmp_path / "run" / "outputs.jsonl"):
        mode = path.stat().st_mode
        path.chmod(0o777)
        with pytest.raises(DataError, match="every user of this machine can write to this"):
            list(result)
        path.chmod(mode)


def test_a_run_does_not_start_in_a_directory_that_others_can_write_to(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(PlanError, match=r"the run directory .*run: every user of this machine can write to this"):
        RunDirectory.create("p", tmp_path / "run")


def test_a_directory_is_held_until_it_is_released(tmp_path: Path) -> None:
    first = RunDirectory.create("p", tmp_path / "run")
    with pytest.raises(PlanError, match=rf"run: another run writes there: process {os.getpid()} on "):
        RunDirectory.create("p", tmp_path / "run")
    first.release()
    first.release()
    second = RunDirectory.create("p", tmp_path / "run")
    assert second.run_id != first.run_id
    second.release()


@pytest.mark.parametrize("run_dir", [None, "run"])
def test_a_run_that_is_refused_leaves_no_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_dir: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-000000.jsonl").write_text("{}\n")
    (tmp_path / "a.jsonl").write_text("{}\n")
    pipeline = Pipeline("p", stages=[JsonlReader("a.jsonl"), JsonlWriter("out")])
    with pytest.raises(PlanError, match="already holds files"):
        pipeline.run(LocalExecutor(workers=0), run_dir=run_dir, progress="off")
    assert [path.name for path in (tmp_path / (run_dir or ".tamis/runs")).iterdir() if path.name != "run.lock"] == []
