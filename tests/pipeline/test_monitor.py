"""What a run records and exports while it goes on."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.errors import PlanError, StageError
from tamis.pipeline.monitor import ENDPOINT_NOTE
from tamis.pipeline.recipe import load_recipe
from tamis.runs.metrics_file import METRICS_FILE, read_metrics
from tamis.runs.progress import NoProgress


@processing_stage(name="double")
def double(task: DocumentBatch) -> DocumentBatch:
    return DocumentBatch({"n": [2 * n for n in task.data["n"].to_pylist()]})


@processing_stage(name="refuse")
def refuse(task: DocumentBatch) -> DocumentBatch:
    raise ValueError("not today")


class Listener(NoProgress):
    """Remembers messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def run(folder: Path, *stages: Any, executor: Any = None, **settings: Any) -> Any:
    batches = [DocumentBatch({"n": [n, n]}) for n in range(5)]
    executor = executor or LocalExecutor(workers=1, substrate="threads")
    return Pipeline("numbers", stages=list(stages)).run(
        executor, batches, run_dir=folder / "run", **{"progress": "off", **settings}
    )


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_a_short_run_has_a_sample_of_its_start_and_of_its_end(tmp_path: Path, substrate: Any) -> None:
    result = run(tmp_path, double, executor=LocalExecutor(workers=1, substrate=substrate))
    start, first, *_, last = read_metrics(result.run_dir)
    assert start["start"] == 1
    assert first["state"] == "running"
    assert first["stages"]["double"]["rows_in"] == 0
    assert last["state"] == "done"
    (counts,) = result.summary.stages
    assert last["stages"] == {
        "double": {
            "tasks_in": 5,
            "tasks_out": 5,
            "rows_in": 10,
            "rows_out": 10,
            "bytes_in": counts.bytes_in,
            "bytes_out": counts.bytes_out,
            "seconds": round(counts.seconds, 4),
            "queue_s": round(counts.queue_s, 4),
            "workers": 1,
            "dropped": 0,
            "quarantined": 0,
            "retries": 0,
        }
    }
    assert last["memory_bytes"] > 0
    assert last["t"] >= first["t"]


def test_a_run_that_fails_has_them_too(tmp_path: Path) -> None:
    with pytest.raises(StageError):
        run(tmp_path, refuse)
    _, first, *_, last = read_metrics(tmp_path / "run")
    assert (first["state"], last["state"]) == ("running", "failed")


def test_a_run_whose_workers_cannot_start_has_them_too(tmp_path: Path) -> None:
    class Broken(LocalExecutor):
        def execute(self, plan: Any, run: Any) -> bool:
            raise RuntimeError("no workers today")

    with pytest.raises(RuntimeError, match="no workers today"):
        run(tmp_path, double, executor=Broken(workers=1))
    _, first, last = read_metrics(tmp_path / "run")
    assert (first["state"], last["state"]) == ("running", "failed")
    assert list(last["stages"]) == ["double"]


def test_a_run_that_goes_on_later_continues_its_file(tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    @processing_stage(name="mend")
    def mend(task: DocumentBatch) -> DocumentBatch:
        if task.data["n"][0].as_py() == 3 and not mended.exists():
            raise ValueError("not yet")
        return task

    with pytest.raises(StageError, match="not yet"):
        run(tmp_path, mend, failure_budget=0)
    mended.touch()
    run(tmp_path, mend)
    lines = list(read_metrics(tmp_path / "run"))
    assert [line["start"] for line in lines if "start" in line] == [1, 2]
    samples = [line for line in lines if "t" in line]
    assert [line["t"] for line in samples] == sorted(line["t"] for line in samples)
    assert [line["state"] for line in samples if line["state"] != "running"] == ["failed", "done"]
    assert samples[-1]["stages"]["mend"]["rows_out"] == 10


def test_the_endpoint_is_there_while_the_run_goes_on(tmp_path: Path) -> None:
    seen: list[str] = []

    class Look(NoProgress):
        def start(self, snapshot: Any) -> None:
            url = (tmp_path / "run" / ENDPOINT_NOTE).read_text().strip()
            seen.append(url)
            with urllib.request.urlopen(url, timeout=10) as answer:
                seen.append(answer.read().decode())

    run(tmp_path, double, progress=Look(), metrics_port=0)
    url, text = seen
    assert 'tamis_run_state{pipeline="numbers",run="run",state="running"} 1.0' in text
    assert not (tmp_path / "run" / ENDPOINT_NOTE).exists()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=10)


def test_a_port_that_was_picked_is_shown(tmp_path: Path) -> None:
    display = Listener()
    run(tmp_path, double, progress=display, metrics_port=0)
    (message,) = display.messages
    assert message.startswith("metrics: http://127.0.0.1:")


def test_a_port_that_cannot_be_used_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="metrics_port=70000"):
        run(tmp_path, double, metrics_port=70000)
    assert not (tmp_path / "run").exists()


def test_a_port_is_free_again_after_a_run_that_was_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")  # a run is there already
    with pytest.raises(PlanError, match="cannot be continued"):
        run(tmp_path, double, metrics_port=0)
    assert "tamis-metrics" not in {thread.name for thread in threading.enumerate()}


def test_a_file_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "run" / METRICS_FILE).mkdir(parents=True)
    display = Listener()
    assert run(tmp_path, double, progress=display).state == "done"
    assert display.messages == [f"{METRICS_FILE} cannot be written and ends here: Is a directory"]


def test_worker_processes_report_their_memory(tmp_path: Path) -> None:
    peaks: list[int] = []

    class Look(NoProgress):
        def finish(self, snapshot: Any) -> None:
            peaks.extend(worker.peak_memory_bytes for worker in snapshot.worker_stats())

    run(tmp_path, double, executor=LocalExecutor(workers=1, substrate="processes"), progress=Look())
    assert max(peaks) > 2**20


def test_a_recipe_can_name_the_port() -> None:
    recipe = (
        "stages:\n  - JsonlReader: {file_paths: data}\nrun: {metrics_port: 0, metrics_host: localhost, traces: false}\n"
    )
    settings = load_recipe(recipe).run
    assert (settings.metrics_port, settings.metrics_host, settings.traces) == (0, "localhost", False)
    settings.make_executor()  # they are no settings of the executor
