"""A run directory on an S3 server: another machine goes on with the run, and the server may be busy for a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("moto.server")
pytest.importorskip("s3fs")

import s3fs
from busy_store import BusyStore, busy_store

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import PlanError, StorageError
from tamis.pipeline import Pipeline
from tamis.runs import mirror
from tamis.runs.mirror import Mirror, local_run
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.io import JsonlReader, JsonlWriter, retries
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch

SCRIPT = """
import os, sys, time
from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.runs import mirror
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.mixing import GlobalShuffle

source, target, run_dir = sys.argv[1:]
mirror.cache_folder = lambda: os.environ["OWN_DISK"]  # not TAMIS_CACHE_DIR, which has the compiled kernels, too

@processing_stage(name="short")
def short(task: DocumentBatch) -> DocumentBatch:
    return task.keep([len(text.split()) > 2 for text in task["text"].to_pylist()], "too short")

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    time.sleep(float(os.environ["SECONDS"]))
    return task

stages = [
    JsonlReader(source, files_per_partition=1), short, GlobalShuffle(partitions=9), slow, JsonlWriter(target),
]
result = Pipeline("killed", stages=stages).run(LocalExecutor(2, "threads"), run_dir=run_dir, progress="off")
print(result.summary.tasks_before, result.rows, sum(result.stage("short").dropped.values()), len(result.drops()))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[BusyStore]:
    with busy_store() as store:
        yield store


def on_machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells one machine from another is what it has on its disk."""
    monkeypatch.setattr(mirror, "cache_folder", lambda: str(cache))


@pytest.fixture
def store(server: BusyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BusyStore:
    on_machine(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr(retries, "_FIRST_PAUSE_S", 0.05)
    server.is_busy = lambda _method, _path: False
    server.refused = 0
    return server


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(12):
        rows = [{"text": "word " * (row % 7 + 1), "n": 20 * number + row} for row in range(20)]
        (folder / f"{number:02d}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def outputs(folder: str) -> dict[str, bytes]:
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    found = {path.rpartition("/")[2]: path for path in fs.find(folder)}
    return {name: fs.cat_file(path) for name, path in found.items() if name.startswith("part-")}


def curated(source: Path, target: str, run_dir: str) -> RunResult:
    stages: list[ProcessingStage] = [
        JsonlReader(str(source), files_per_partition=1),
        ScoreFilter(WordCountFilter(min_words=3)),
        JsonlWriter(target),
    ]
    return Pipeline("on-s3", stages=stages).run(LocalExecutor(0), run_dir=run_dir, progress="off")


def test_another_machine_goes_on_with_a_killed_run(store: BusyStore, source: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def start(name: str, cache: str, seconds: float) -> subprocess.Popen[str]:
        places = [str(source), f"{store.address}/killed/{name}", f"{store.address}/killed/run-{name}"]
        env = {**os.environ, "SECONDS": str(seconds), "OWN_DISK": str(tmp_path / cache)}
        command = [sys.executable, str(script), *places]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole = start("whole", "cache-1", 0)
    before, rows, *dropped = whole.communicate(timeout=120)[0].split()
    assert (before, rows, dropped) == ("0", "168", ["72", "72"])

    killed = start("out", "cache-1", 1)
    run_dir = f"{store.address}/killed/run-out"
    deadline = time.monotonic() + 100
    while True:  # until the store knows of a file that was written after the shuffle
        fs = s3fs.S3FileSystem(skip_instance_cache=True)
        # find() of a folder whose first object is being written may give the folder itself
        ledger = b"".join(fs.cat_file(path) for path in fs.find(run_dir) if "/ledger/" in path)
        if ledger.count(b"killed/out/part-") >= 2:
            break
        assert killed.poll() is None, killed.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(outputs(f"{store.address}/killed/out")) < 9

    continued = start("out", "cache-2", 0)  # it finds nothing in its own cache, and no data between stages
    before, *counts = continued.communicate(timeout=120)[0].split()
    assert counts == [rows, *dropped]
    assert outputs(f"{store.address}/killed/out") == outputs(f"{store.address}/killed/whole")

    again = start("out", "cache-1", 0)  # the first machine has an older copy: what the store has counts
    before, *counts = again.communicate(timeout=120)[0].split()
    assert counts == [rows, *dropped]
    assert not s3fs.S3FileSystem(skip_instance_cache=True).exists(f"{run_dir}/run.lock")


def test_new_files_are_added_from_another_machine(
    store: BusyStore, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = f"{store.address}/added/out", f"{store.address}/added/run"
    first = curated(source, *places)
    assert (first.run_dir, first.rows, len(first)) == (places[1], 168, 12)
    assert curated(source, *places).summary.tasks_before == 0  # there is nothing to do
    (source / "12.jsonl").write_text('{"text": "one two three four"}\n{"text": "one"}\n')
    (source / "00.jsonl").unlink()
    on_machine(tmp_path / "elsewhere", monkeypatch)
    later = curated(source, *places)
    assert (later.summary.tasks_before, len(later)) == (11, 12)
    assert later.drops().num_rows == sum(later.stage("word_count").dropped.values())
    on_machine(tmp_path / "third", monkeypatch)
    assert local_run(places[1]) == Mirror(places[1], "read").path
    assert curated(source, *places).rows == later.rows


def test_a_run_directory_in_the_input_is_refused(store: BusyStore, tmp_path: Path) -> None:
    s3fs.S3FileSystem().pipe_file(f"{store.address}/within/a.jsonl", b'{"text": "a"}\n')
    stages = [JsonlReader(f"{store.address}/within"), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(PlanError, match="which the pipeline reads"):
        Pipeline("p", stages=stages).run(run_dir=f"{store.address}/within/run", progress="off")


def test_a_second_start_is_refused(store: BusyStore, source: Path, tmp_path: Path) -> None:
    run_dir = f"{store.address}/taken/run"
    first = Mirror(run_dir)
    first.lock()
    try:
        with pytest.raises(PlanError, match=f"process {os.getpid()} on "):
            curated(source, str(tmp_path / "out"), run_dir)
    finally:
        first.release()
    assert curated(source, str(tmp_path / "out"), run_dir).state == "done"


def test_commands_take_the_address(
    store: BusyStore, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = f"{store.address}/commands"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: on-s3\nstages:\n"
        f"  - JsonlReader: {{file_paths: '{source}', files_per_partition: 1}}\n"
        "  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 3}}}\n"
        f"  - JsonlWriter: {{path: '{tmp_path}/out'}}\n"
    )

    def said(*command: str) -> str:
        capsys.readouterr()
        assert main(command) == 0, capsys.readouterr()
        return capsys.readouterr().out

    said("run", str(recipe), "--run-dir", f"{runs}/one", "--workers", "0", "--quiet")
    said("run", str(recipe), "--run-dir", f"{runs}/two", "--workers", "0", "--quiet", "--output", f"{tmp_path}/two")
    listed = json.loads(said("runs", "--dir", runs, "--json"))
    assert [(run["path"], run["state"], run["rows"]) for run in listed] == [
        (f"{runs}/one", "done", 168),
        (f"{runs}/two", "done", 168),
    ]
    assert all(run["nbytes"] > 1000 for run in listed)
    assert json.loads(said("why", f"{runs}/one", f"{source}/00.jsonl:1", "--line", "--json"))["ends"][0]["fate"] == (
        "dropped"
    )
    assert json.loads(said("drops", f"{runs}/one", "--json"))["rows"] == 72
    assert json.loads(said("quarantine", f"{runs}/one", "--json")) == []
    assert "report.html" in said("report", f"{runs}/one")
    assert json.loads(said("diff", f"{runs}/one", f"{runs}/two", "--json"))["kept_by_both"] == 168
    (source / "99.jsonl").write_text('{"text": "one two three four"}\n')
    left = json.loads(said("plan", str(recipe), "--resume", "--run-dir", f"{runs}/one", "--json"))["left"]
    assert [(group["finished"], group["to_do"]) for group in left] == [(12, 1)]
    assert "Removed" in said("runs", "clean", "--dir", runs, "--older-than", "0h", "--yes")
    assert json.loads(said("runs", "--dir", runs, "--json")) == []


class Picky(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "picky"
    forgives = False

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not Picky.forgives and 25 in task["n"].to_pylist():
            raise ValueError("not this one")
        return task


def test_rows_set_aside_are_run_again(store: BusyStore, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [JsonlReader(str(source), files_per_partition=1), Picky(), JsonlWriter(f"{store.address}/aside/out")]
    pipeline = Pipeline("aside", stages=stages)
    run_dir = f"{store.address}/aside/run"
    first = pipeline.run(LocalExecutor(0), run_dir=run_dir, progress="off")
    assert (first.state, first.rows, len(first.failures)) == ("done with failures", 239, 1)
    monkeypatch.setattr(Picky, "forgives", True)
    assert pipeline.retry(run_dir).summary.state == "done"
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    assert not fs.find(f"{run_dir}/quarantine")
    assert sum(len(lines.splitlines()) for lines in outputs(f"{store.address}/aside/out").values()) == 240


def test_a_busy_server_delays_a_run(store: BusyStore, source: Path) -> None:
    calm = outputs_of(curated(source, f"{store.address}/calm/out", f"{store.address}/calm/run"))
    busy_until: dict[str, float] = {}

    def for_three_seconds(method: str, path: str) -> bool:
        """Twice: when the run starts, and when it has written some files."""
        phase = "writing" if "writing" in busy_until or "part-000005" in path else "starting"
        return time.monotonic() < busy_until.setdefault(phase, time.monotonic() + 3)

    store.is_busy = for_three_seconds
    result = curated(source, f"{store.address}/busy/out", f"{store.address}/busy/run")
    store.is_busy = lambda _method, _path: False
    assert sorted(busy_until) == ["starting", "writing"]
    assert store.refused > 5
    assert outputs_of(result) == calm
    assert (result.state, result.rows) == ("done", 168)


def outputs_of(result: RunResult) -> list[bytes]:
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    return [fs.cat_file(path) for task in result for path in task.data]


def test_a_server_that_stays_busy_ends_the_run_and_the_same_command_goes_on(
    store: BusyStore, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "PATIENCE_S", 1.0)
    run_dir = f"{store.address}/stays/run"
    store.is_busy = lambda method, path: method == "PUT" and "/ledger/" in path
    with pytest.raises(StorageError, match=r"reduce your request rate.*the same command goes on") as raised:
        curated(source, str(tmp_path / "out"), run_dir)
    assert run_dir in str(raised.value)
    assert not list((tmp_path / "out").glob("part-*"))  # what is not recorded on the store has no final name
    store.is_busy = lambda _method, _path: False
    on_machine(tmp_path / "elsewhere", monkeypatch)
    assert curated(source, str(tmp_path / "out"), run_dir).rows == 168
    assert len(list((tmp_path / "out").glob("part-*"))) == 12
