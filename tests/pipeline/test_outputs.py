"""Output directories over whole runs: one writer at a time, what is replaced and what is refused, one schema."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import DataError, PlanError, RunInterrupted
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.flow import Route
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import FilePartitioningStage, JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.io.output_directory import MARKER
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    day("monday", 3)
    day("tuesday", 2)
    return tmp_path


def day(name: str, files: int) -> None:
    Path(name).mkdir(exist_ok=True)
    for i in range(files):
        Path(name, f"{i}.jsonl").write_text(json.dumps({"text": f"{name} {i}"}) + "\n")


def run(reads: str, writer: Any, *stages: Any, workers: int = 0, **settings: Any) -> RunResult:
    every = [JsonlReader(reads, files_per_partition=1), *stages, writer]
    return Pipeline("daily", stages=every).run(LocalExecutor(workers=workers), progress="off", **settings)


def texts(directory: str = "out") -> list[str]:
    lines = [line for p in sorted(Path(directory).glob("*.jsonl")) for line in p.read_text().splitlines()]
    return [json.loads(line)["text"] for line in lines]


MONDAY = ["monday 0", "monday 1", "monday 2"]
TUESDAY = ["tuesday 0", "tuesday 1"]


def test_output_of_another_input_is_not_replaced() -> None:
    run("monday", JsonlWriter("out"))
    with pytest.raises(
        PlanError, match=r"already holds files \(part-000000.jsonl, .*output of another pipeline.*daily"
    ):
        run("tuesday", JsonlWriter("out"))
    assert texts() == MONDAY


def test_output_of_the_same_pipeline_with_other_parameters_is_not_replaced() -> None:
    run("monday", JsonlWriter("out"), ScoreFilter(WordCountFilter(min_words=1)))
    with pytest.raises(PlanError, match='mode="overwrite" removes earlier output first, mode="append" adds new files'):
        run("monday", JsonlWriter("out"), ScoreFilter(WordCountFilter(min_words=5)))
    assert texts() == MONDAY


def test_the_same_again_replaces_its_output(caplog: pytest.LogCaptureFixture) -> None:
    first = run("monday", JsonlWriter("out"))
    second = run("monday", JsonlWriter("out"))
    assert texts() == MONDAY
    assert first.outputs == second.outputs
    assert caplog.text == ""
    [entry] = json.loads(Path("out", MARKER).read_text())["runs"]
    assert (entry["run_dir"], entry["pipeline"], entry["finished"]) == (second.run_dir, "daily", True)


def test_an_input_that_changed_is_another_input() -> None:
    run("monday", JsonlWriter("out"))
    Path("monday/3.jsonl").write_text('{"text": "late"}\n')
    with pytest.raises(PlanError, match="over another input, or over this one before it changed"):
        run("monday", JsonlWriter("out"))
    run("monday", JsonlWriter("out", mode="overwrite"))
    assert texts() == [*MONDAY, "late"]
    run("monday", JsonlWriter("out"))  # how the earlier output was made does not matter


def test_a_run_that_failed_can_be_started_again_and_leaves_nothing_of_the_first() -> None:
    Path("monday/9.jsonl").write_text("oops\n")
    with pytest.raises(DataError):
        run("monday", JsonlWriter("out"))
    assert texts() == MONDAY  # what was finished is there
    Path("monday/9.jsonl").unlink()
    Path("monday/2.jsonl").unlink()
    result = run("monday", JsonlWriter("out"))
    assert texts() == MONDAY[:2]
    assert "1 output file whose input or stages have changed since was removed" in result.summary.notes[-1]


def test_append_adds_files_that_replace_none() -> None:
    for reads in ("monday", "tuesday", "tuesday"):
        run(reads, JsonlWriter("out", mode="append"))
    assert sorted(texts()) == sorted([*MONDAY, *TUESDAY, *TUESDAY])
    assert len(json.loads(Path("out", MARKER).read_text())["runs"]) == 3
    with pytest.raises(PlanError, match="output of several runs, the last of them run"):
        run("tuesday", JsonlWriter("out"))
    run("tuesday", JsonlWriter("out", mode="overwrite"))
    assert texts() == TUESDAY


def test_ignore_replaces_files_of_the_same_names() -> None:
    run("monday", JsonlWriter("out"))
    run("tuesday", JsonlWriter("out", mode="ignore"))
    assert texts() == [*TUESDAY, MONDAY[2]]


def test_files_of_unknown_origin_are_not_replaced() -> None:
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(PlanError, match=r"already holds files \(notes.txt\), and nothing says that this pipeline"):
        run("monday", JsonlWriter("out"))
    run("monday", JsonlWriter("out", mode="append"))
    with pytest.raises(PlanError, match="output of several runs"):
        run("monday", JsonlWriter("out"))
    assert Path("out/notes.txt").read_text() == "mine"
    assert not Path("out/.tamis.lock").exists()


def test_output_below_another_output_is_apart() -> None:
    run("monday", JsonlWriter("out/first"))
    run("tuesday", JsonlWriter("out"))
    run("tuesday", JsonlWriter("out", mode="overwrite"))
    assert texts("out/first") == MONDAY


def test_two_writers_must_not_write_the_same_names() -> None:
    first, second = JsonlWriter("out").with_(name="first"), JsonlWriter("out").with_(name="second")
    ways = Route("text == 'monday 0'", {"true": [first], "false": [second]})
    with pytest.raises(
        PlanError, match=r"'first' and 'second' would write files of the same names, part-\{order\}.jsonl"
    ):
        Pipeline("p", stages=[JsonlReader("monday"), ways]).run(progress="off")
    ways = Route("text == 'monday 0'", {"true": [first], "false": [JsonlWriter("out", filename="other-{order}")]})
    for _ in range(2):
        Pipeline("p", stages=[JsonlReader("monday"), ways]).run(progress="off")
    assert sorted(p.name for p in Path("out").glob("*.jsonl")) == ["other-000000-0001.jsonl", "part-000000-0000.jsonl"]


def test_a_directory_of_the_name_of_an_output_file_is_refused() -> None:
    Path("out/part-000001.jsonl").mkdir(parents=True)
    with pytest.raises(PlanError, match=r"part-000001.jsonl: this is a directory, but an output file has that name"):
        run("monday", JsonlWriter("out"))


def test_a_directory_that_appears_during_the_run_costs_no_record() -> None:
    @processing_stage(name="make_directory")
    def make_directory(task: DocumentBatch) -> DocumentBatch:
        Path("out/part-000002.jsonl").mkdir(parents=True, exist_ok=True)
        return task

    with pytest.raises(Exception, match=r"part-000002.jsonl: .*: there is a directory of this name"):
        run("monday", JsonlWriter("out"), make_directory, run_dir="a-run")
    summary = json.loads(Path("a-run/run.json").read_text())
    assert summary["state"] == "failed"
    assert "there is a directory of this name" in summary["error"]
    assert Path("a-run/report.html").exists()


WAITING_RUN = """
import sys, time
from pathlib import Path
from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch

@processing_stage(name="wait")
def wait(task: DocumentBatch) -> DocumentBatch:
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    return task

Pipeline("waiting", stages=[JsonlReader("monday"), wait, JsonlWriter("out")]).run(
    LocalExecutor(workers=0), run_dir=sys.argv[1], progress="off")
"""


def waiting_run(run_dir: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WAITING_RUN, run_dir])
    while not Path("started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    return process


def test_a_directory_has_one_writer_at_a_time_and_a_dead_one_does_not_count() -> None:
    first = waiting_run("first")
    try:
        message = rf"out: another run writes there: process {first.pid} on .* since 2.*, run directory .*first\. Wait"
        for mode in ("error", "overwrite", "append", "ignore"):
            with pytest.raises(PlanError, match=message):
                run("tuesday", JsonlWriter("out", mode=mode))
        with pytest.raises(PlanError, match=rf"first: another run writes there: process {first.pid}"):
            run("tuesday", JsonlWriter("elsewhere"), run_dir="first")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    left = Path("out/.part-000000.jsonl.0123456789abcdef.tmp")
    left.write_text("half of a file")
    run("tuesday", JsonlWriter("out"))
    assert texts() == TUESDAY
    assert not left.exists()


def test_of_two_that_start_at_once_one_wins() -> None:
    """Each process starts the same run in the same run directory as soon as the file appears."""
    script = (
        "import sys, time\nfrom pathlib import Path\nimport tamis.backends.local\n"
        "from tamis.pipeline import Pipeline\nfrom tamis.stages.io import JsonlReader, JsonlWriter\n"
        "Path(sys.argv[1]).touch()\n"
        "while not Path('start').exists(): pass\n"
        "Pipeline('p', stages=[JsonlReader('monday'), JsonlWriter('out')]).run(run_dir='the-run', progress='off')\n"
    )
    command = [sys.executable, "-c", script]
    runs = [subprocess.Popen([*command, f"ready-{i}"], stderr=subprocess.PIPE, text=True) for i in range(3)]
    while not all(Path(f"ready-{i}").exists() for i in range(3)):
        time.sleep(0.02)
    Path("start").touch()
    errors = [process.communicate()[1] for process in runs]
    for process, error in zip(runs, errors, strict=True):  # who comes when the first has finished has nothing to do
        refused = "another run writes there" in error or "another run has just started to write there" in error
        assert process.returncode == 0 or refused, error
    assert len(list(Path("the-run/ledger").iterdir())) == 1
    assert texts() == MONDAY


def test_a_finished_run_removes_no_temporary_files_of_others() -> None:
    others = Path("out/.part-000001.jsonl.0123456789abcdef.tmp")

    @processing_stage(name="another")
    def another(task: DocumentBatch) -> DocumentBatch:
        others.write_text("of another run")
        return task

    run("monday", JsonlWriter("out"), another)
    assert others.exists()


def write_rows(name: str, rows: list[dict[str, Any]]) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("settings", [{}, {"partition_by": "text"}, {"shard_bytes": 900}])
def test_parquet_output_has_one_schema(settings: dict[str, Any]) -> None:
    rows = [
        {"text": "a", "note": None, "n": 1, "meta": {}, "tags": []},
        {"text": "b", "note": "x", "n": 2.5, "meta": {"k": 1}, "tags": ["t"]},
        {"text": "c", "n": None, "meta": None, "more": {}},
        {"text": "d", "note": "y", "n": 4, "meta": {"j": [1]}, "tags": None, "more": {}},
    ]
    for i, row in enumerate(rows):
        write_rows(f"in/{i}.jsonl", [row])
    outputs = []
    for workers in (0, 1, 4):
        result = run("in", ParquetWriter("out", mode="overwrite", **settings), workers=workers)
        files = sorted(p for p in Path("out").rglob("*.parquet"))
        outputs.append([p.read_bytes() for p in files])
        assert result.summary.output_bytes == sum(map(len, outputs[-1]))
    assert outputs[0] == outputs[1] == outputs[2]
    assert len({str(pq.read_schema(p)) for p in files}) == 1
    read = pl.read_parquet(files).sort("text").to_dicts()
    assert [r["n"] for r in read] == [1.0, 2.5, None, 4.0]
    assert [r["note"] for r in read] == [None, "x", None, "y"]
    assert read[1]["meta"] == {"k": 1, "j": None}
    dataset = pyarrow.dataset.dataset([str(p) for p in files])
    assert dataset.to_table().num_rows == 4


def test_types_that_cannot_be_unified_end_the_run_with_both_files() -> None:
    write_rows("in/0.jsonl", [{"id": 1}])
    write_rows("in/1.jsonl", [{"id": "one"}])
    with pytest.raises(DataError) as error:
        run("in", ParquetWriter("out"))
    message = str(error.value)
    assert "part-000001.parquet: column 'id' is large_string here and int64 in" in message
    assert "part-000000.parquet" in message
    assert "JsonlReader(types={'id': 'string'})" in message
    reader = JsonlReader("in", files_per_partition=1, types={"id": "string"})
    Pipeline("p", stages=[reader, ParquetWriter("out", mode="overwrite")]).run(progress="off")
    assert pl.read_parquet("out/*.parquet")["id"].to_list() == ["1", "one"]


def test_what_is_appended_gets_the_schema_of_the_whole() -> None:
    write_rows("in/0.jsonl", [{"n": 1}])
    write_rows("later/0.jsonl", [{"n": 0.5, "text": "x"}])
    run("in", ParquetWriter("out", mode="append"))
    result = run("later", ParquetWriter("out", mode="append"))
    assert pl.read_parquet("out/*.parquet").sort("n").to_dicts() == [
        {"n": 0.5, "text": "x"},
        {"n": 1.0, "text": None},
    ]
    assert "1 file was written again, so that all have one schema" in result.summary.notes[0]


def test_numbers_that_a_float_cannot_hold_are_not_rounded() -> None:
    write_rows("in/0.jsonl", [{"n": 2**60 + 1}])
    write_rows("in/1.jsonl", [{"n": 0.5}])
    with pytest.raises(DataError, match=r"part-000000.parquet: column 'n' is int64 here and double in other files"):
        run("in", ParquetWriter("out"))


def test_what_a_directory_scan_leaves_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("README.md", "_draft.jsonl", ".hidden.jsonl", "a.txt", "b.txt"):
        Path("monday", name).write_text("x")
    result = run("monday", JsonlWriter("out"))
    expected = "left out of the input directories: 2 ending in .txt, 1 hidden, 1 ending in .md, 1 starting with '_'"
    [note] = result.summary.notes
    counts = sorted(note.partition("directories: ")[2].partition(". ")[0].split(", "))
    assert counts == sorted(expected.partition("directories: ")[2].split(", "))
    assert note in caplog.text
    Path("monday/_draft.jsonl").write_text('{"text": "draft"}\n')
    assert run("monday/*.jsonl", JsonlWriter("all")).summary.notes == []
    assert texts("all") == [*MONDAY, "draft"]


def test_secrets_are_written_nowhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of a run that fails at a signed address with a password, below a store with credentials."""
    monkeypatch.setattr(FilePartitioningStage, "check_input", lambda self: None)  # else it fails when it is planned
    reader = JsonlReader(
        "http://ann:PASS@127.0.0.1:9/a.jsonl?X-Amz-Signature=SIGNED&part=1", storage_options={"headers": {"k": "TOKEN"}}
    )
    pipeline = Pipeline("p", stages=[reader, JsonlWriter("memory://secret-out", storage_options={"skip": "TOKEN"})])
    with pytest.raises(DataError, match=r"part=1: the server cannot be reached") as error:
        pipeline.run(LocalExecutor(workers=0), progress="off", run_dir="a-run")
    shown = [str(error.value), repr(error.value), pipeline.describe(), str(pipeline.plan()), caplog.text]
    shown += [p.read_text(errors="replace") for p in Path("a-run").rglob("*") if p.is_file()]
    for secret in ("PASS", "SIGNED", "TOKEN"):
        assert [text for text in shown if secret in text] == []
    assert "X-Amz-Signature=***" in shown[0]
    assert error.value.__cause__ is None


def test_pathlib_paths_are_accepted(tmp_path: Path) -> None:
    reader = JsonlReader([tmp_path / "monday", Path("tuesday/0.jsonl")])
    pipeline = Pipeline("p", stages=[reader, JsonlWriter(tmp_path / "out")])
    pipeline.run(progress="off", run_dir=tmp_path / "a-run")
    assert texts() == [*MONDAY, TUESDAY[0]]
    assert (tmp_path / "a-run" / "run.json").exists()
    assert f"path: {tmp_path / 'out'}" in pipeline.to_recipe()
    with pytest.raises(PlanError, match=r"a pathlib.Path cannot hold an address. Give it as text: 's3://bucket/a'"):
        JsonlReader(Path("s3://bucket/a"))
    with pytest.raises(PlanError, match=r"JsonlReader\(file_paths=17\): give a path, or a list of paths"):
        JsonlReader(17)  # type: ignore[arg-type]  # the point of the test


def test_an_interrupted_run_can_be_started_again() -> None:
    @processing_stage(name="stop")
    def stop(task: DocumentBatch) -> DocumentBatch:
        if os.path.exists("stop"):
            os.unlink("stop")
            signal.raise_signal(signal.SIGINT)
        return task

    Path("stop").touch()
    with pytest.raises(RunInterrupted):
        run("monday", JsonlWriter("out"), stop)
    run("monday", JsonlWriter("out"), stop)
    assert texts() == MONDAY


def test_initial_tasks_are_an_input_too() -> None:
    def write(text: str) -> None:
        batch = DocumentBatch(pa.table({"text": [text]}))
        Pipeline("p", stages=[JsonlWriter("out")]).run(initial_tasks=[batch], progress="off")

    write("a")
    write("a")
    with pytest.raises(PlanError, match="over another input"):
        write("b")
    assert texts() == ["a"]
