"""What a run set aside is run again after a fix, and becomes output of the same run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import PlanError, StageError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Route
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify
from tamis.tasks import DocumentBatch
from tests.support.row_runs import FailsOn, rows_of, write_rows, written


def pipeline_in(folder: Path, *stages: ProcessingStage[Any, Any], count: int = 40) -> Pipeline:
    if not (folder / "in").exists():
        write_rows(folder / "in" / "a.jsonl", rows_of(count))
    return Pipeline("rows", stages=[JsonlReader(str(folder / "in"), blocksize="700B"), *stages])


def ids(folder: Path) -> list[int]:
    return sorted(row["id"] for row in written(folder))


def run(pipeline: Pipeline, folder: Path, **settings: Any) -> Any:
    executor = settings.pop("executor", None) or LocalExecutor(workers=0)
    return pipeline.run(executor, run_dir=folder / "run", progress="off", **settings)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("part-*")) if p.is_file()}


def simple(folder: Path) -> Pipeline:
    """The stage that fails is in the middle of a fused group."""
    fails = FailsOn([3, 4, 25])
    words = ScoreFilter(WordCountFilter(min_words=5), score_field="words")
    return pipeline_in(folder, Modify(str.upper), fails, words, JsonlWriter(str(folder / "out")))


def test_rows_that_pass_become_output_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = simple(tmp_path)
    result = run(pipeline, tmp_path)
    before = files_in(tmp_path / "out")
    expected = [n for n in range(40) if n % 10 >= 4]
    assert ids(tmp_path / "out") == [n for n in expected if n not in (4, 25)]
    assert len(result.failures) == 3
    monkeypatch.setenv("TEST_MENDED", "1")
    retried = result.retry(pipeline)
    assert (retried.passed, retried.failed) == (3, 0)
    assert ids(tmp_path / "out") == expected
    assert {name: data for name, data in files_in(tmp_path / "out").items() if name in before} == before
    assert sorted(Path(path).name for path in retried.files) == sorted(set(files_in(tmp_path / "out")) - set(before))
    assert result.failures == []
    assert result.state == "done"
    assert [row["text"] for row in written(tmp_path / "out") if row["id"] == 4] == ["WORD WORD WORD WORD WORD"]
    assert result.drops().num_rows == 16
    whole = Pipeline("rows", stages=[*pipeline.stages[:-1], JsonlWriter(str(tmp_path / "whole"))])
    fresh = whole.run(LocalExecutor(workers=0), run_dir=tmp_path / "other", progress="off")
    for mine, other in zip(result.stages[:-1], fresh.stages[:-1], strict=True):  # the writer counts files
        for number in ("rows_in", "rows_out", "dropped", "quarantined"):
            assert getattr(mine, number) == getattr(other, number), (mine.name, number)
    assert result.summary.output_rows == fresh.summary.output_rows
    assert json.loads((tmp_path / "run" / "run.json").read_text())["output_rows"] == len(expected)


def test_a_later_start_neither_removes_nor_repeats_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = simple(tmp_path)
    run(pipeline, tmp_path)
    monkeypatch.setenv("TEST_MENDED", "1")
    pipeline.retry(tmp_path / "run")
    done = files_in(tmp_path / "out")
    run(simple(tmp_path), tmp_path)  # nothing to do
    assert files_in(tmp_path / "out") == done
    write_rows(tmp_path / "in" / "b.jsonl", rows_of(10, 40))
    more = run(simple(tmp_path), tmp_path)
    assert {name: data for name, data in files_in(tmp_path / "out").items() if name in done} == done
    assert ids(tmp_path / "out") == [n for n in range(50) if n % 10 >= 4]
    assert more.summary.output_rows == 30
    assert (more.state, more.failures) == ("done", [])
    assert more.summary.tasks_before > 0
    assert more.summary.stages[2].rows_in == 50
    assert sum(t.num_items for t in more) >= len(done)


@pytest.mark.parametrize("is_mended", [True, False])
def test_a_batch_whose_output_is_gone_is_made_again_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mended: bool
) -> None:
    pipeline = simple(tmp_path)
    run(pipeline, tmp_path)
    monkeypatch.setenv("TEST_MENDED", "1")
    pipeline.retry(tmp_path / "run")
    everything = ids(tmp_path / "out")
    if not is_mended:
        monkeypatch.delenv("TEST_MENDED")
    for _ in range(2):  # the second time, a ledger is read that has the batch twice
        for path in sorted((tmp_path / "out").glob("part-??????.jsonl")):
            path.unlink()
        result = run(simple(tmp_path), tmp_path)
        failed = sorted(n for one in result.failures for n in [result.why(one.name).values["id"]])
        assert failed == ([] if is_mended else [3, 4, 25])
        assert ids(tmp_path / "out") == sorted({*everything} - {*failed})
        assert result.summary.output_rows == len(ids(tmp_path / "out"))


def test_what_fails_again_stays_with_the_new_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = simple(tmp_path)
    result = run(pipeline, tmp_path)
    again = Pipeline("rows", stages=[*pipeline.stages[:2], FailsOn([4]), *pipeline.stages[3:]])
    retried = again.retry(tmp_path / "run")
    assert (retried.passed, retried.failed) == (2, 1)
    assert [f.message for f in result.failures] == ["cannot do 4"]
    assert retried.summary.state == "done with failures"
    assert (retried.summary.rows_set_aside, retried.summary.output_rows) == (1, 23)
    assert again.retry(tmp_path / "run").failed == 1
    monkeypatch.setenv("TEST_MENDED", "1")
    assert pipeline.retry(tmp_path / "run").passed == 1
    assert ids(tmp_path / "out") == [n for n in range(40) if n % 10 >= 4]


def test_only_one_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = FailsOn([7])
    other.name = "other"
    pipeline = pipeline_in(tmp_path, FailsOn([3]), other, JsonlWriter(str(tmp_path / "out")))
    result = run(pipeline, tmp_path)
    monkeypatch.setenv("TEST_MENDED", "1")
    assert pipeline.retry(tmp_path / "run", stage="other").passed == 1
    assert [f.stage for f in result.failures] == ["fails"]
    assert pipeline.retry(tmp_path / "run").passed == 1
    assert ids(tmp_path / "out") == list(range(40))


def test_in_a_branch_and_on_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = FailsOn([4, 8])
    route = Route("lang", {"de": [fails, ParquetWriter(str(tmp_path / "de"))]}, otherwise=[])
    pipeline = pipeline_in(tmp_path, route, JsonlWriter(str(tmp_path / "en")))
    run(pipeline, tmp_path, executor=LocalExecutor(workers=2, substrate="processes"))
    monkeypatch.setenv("TEST_MENDED", "1")
    assert pipeline.retry(tmp_path / "run").passed == 2
    import pyarrow.parquet as pq

    german = [n for p in (tmp_path / "de").glob("*.parquet") for n in pq.read_table(p)["id"].to_pylist()]
    assert sorted(german) == [n for n in range(40) if n % 3]


class WholeTasks(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on every row of one batch, so that the whole task is given up."""

    name = "whole"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if min(task.data["id"].to_pylist()) < 10 and "TEST_MENDED" not in os.environ:
            raise RuntimeError("not this one")
        return task


def test_a_task_that_was_given_up_and_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JsonlWriter(str(tmp_path / "out"), shard_bytes="2KiB")
    pipeline = pipeline_in(tmp_path, WholeTasks(), writer)
    result = run(pipeline, tmp_path)
    assert {f.kind for f in result.failures} <= {"task", "row"}
    missing = set(range(40)) - set(ids(tmp_path / "out"))
    assert missing
    monkeypatch.setenv("TEST_MENDED", "1")
    retried = result.retry(pipeline)
    assert retried.failed == 0
    assert ids(tmp_path / "out") == list(range(40))
    assert result.state == "done"
    assert result.summary.output_rows == 40
    write_rows(tmp_path / "in" / "b.jsonl", rows_of(5, 40))
    with pytest.raises(PlanError, match="Start over with --fresh"):  # the shards are cut anew
        run(pipeline_in(tmp_path, WholeTasks(), writer), tmp_path)
    assert ids(tmp_path / "out") == list(range(40))


def test_before_a_stage_that_looks_at_all_rows_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_in(tmp_path, FailsOn([3]), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    run(pipeline, tmp_path)
    with pytest.raises(PlanError, match=r"(?s)after it .* brings rows of all tasks together.*--fresh"):
        pipeline.retry(tmp_path / "run")


def test_a_run_that_is_not_over_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_in(tmp_path, FailsOn(range(40)), JsonlWriter(str(tmp_path / "out")))
    with pytest.raises(StageError):
        run(pipeline, tmp_path)
    with pytest.raises(PlanError, match="has not come to its end"):
        pipeline.retry(tmp_path / "run")


RECIPE = """
name: mend
stages:
  - JsonlReader: {file_paths: in, on_error: quarantine}
  - own_stages:Fails: {}
  - JsonlWriter: {path: out}
run: {workers: 0, run_dir: run}
"""

OWN = """
import os
from dataclasses import dataclass
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

@dataclass
class Fails(ProcessingStage[DocumentBatch, DocumentBatch]):
    name: str = "fails"
    def process(self, task):
        if 3 in task.data["id"].to_pylist() and not "TEST_MENDED" in os.environ:
            raise RuntimeError("\\x1b[2Jcannot do 3")
        return task
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "in" / "a.jsonl", rows_of(10))
    with (tmp_path / "in" / "a.jsonl").open("a") as file:
        file.write('{"id": 10, "text"\n')
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "own_stages.py").write_text(OWN)
    assert main(["run", "recipe.yaml", "-q"]) == 3
    capsys.readouterr()
    assert main(["quarantine", "run"]) == 0
    shown = capsys.readouterr().out
    assert "RuntimeError: \\x1b[2Jcannot do 3" in shown
    assert "a.jsonl:" in shown
    assert main(["quarantine", "run", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert sorted(one["kind"] for one in listed) == ["row", "unreadable"]
    monkeypatch.setenv("TEST_MENDED", "1")
    assert main(["quarantine", "run", "--retry"]) == 3  # the row that could not be read is still there
    shown = capsys.readouterr().out
    assert "1 row passed, 0 rows failed again" in shown
    assert "1 row could not be read" in shown
    assert ids(tmp_path / "out") == list(range(10))
    assert main(["quarantine", "run", "--stage", "fails"]) == 0
    assert "nothing aside" in capsys.readouterr().out
    assert main(["quarantine", "no-such-run"]) == 1
