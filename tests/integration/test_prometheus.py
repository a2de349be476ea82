"""A real Prometheus, as Debian packages it, that scrapes a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.cli import main
from tamis.pipeline.monitor import ENDPOINT_NOTE
from tamis.runs.dashboard import expression
from tamis.runs.metrics import METRICS

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed: apt-get install prometheus"
)

TASKS, ROWS = 6, 10


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)
    return found


class RunThatWaits:
    """A run in a thread: its last task waits until a file is there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.go_on = folder / "run", folder / "go-on"
        go_on = str(self.go_on)

        @processing_stage(name="double")
        def double(task: DocumentBatch) -> DocumentBatch:
            numbers = task.data["n"].to_pylist()
            while numbers[0] == TASKS and not os.path.exists(go_on):
                time.sleep(0.05)
            return DocumentBatch({"n": [2 * n for n in numbers]})

        self._pipeline = Pipeline("numbers", stages=[double])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_for((self.folder / ENDPOINT_NOTE).exists, "the endpoint")

    def _run(self) -> None:
        batches = [DocumentBatch({"n": [number] * ROWS}) for number in range(1, TASKS + 1)]
        executor = LocalExecutor(workers=1, substrate="processes")
        self._pipeline.run(executor, batches, run_dir=self.folder, progress="off", metrics_port=0)

    def end(self) -> None:
        self.go_on.touch()
        self._thread.join(60)


@pytest.fixture
def going_run(tmp_path: Path) -> Iterator[RunThatWaits]:
    going = RunThatWaits(tmp_path)
    yield going
    going.end()


class Prometheus:
    """Prometheus, started by the script that ``tamis monitor`` writes."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = folder / "prometheus.yml"
        config.write_text(config.read_text().replace("5s", "200ms"))
        nothing_else = folder / "bin"  # no Docker, no Grafana: only what the script needs
        nothing_else.mkdir()
        for program in ("sh", "dirname", "prometheus", "mkdir"):
            (nothing_else / program).symlink_to(shutil.which(program) or "")
        self._process = subprocess.Popen(
            [str(folder / "start.sh")],
            env={"PATH": str(nothing_else), "PROMETHEUS_PORT": str(self.port)},
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("wb"),
            start_new_session=True,
        )
        wait_for(self._is_ready, f"Prometheus, see {folder / 'log'}")

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, "Prometheus has ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=10):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def value(self, query: str) -> float | None:
        found = self.ask(query)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(60)


@pytest.fixture
def prometheus(tmp_path: Path, going_run: RunThatWaits) -> Iterator[Prometheus]:
    folder = tmp_path / "monitor"
    assert main(["monitor", str(going_run.folder), "--output", str(folder)]) == 0
    started = Prometheus(folder)
    yield started
    started.end()


def test_prometheus_reads_what_the_run_counts(prometheus: Prometheus, going_run: RunThatWaits) -> None:
    done = TASKS - 1  # the last task waits
    labels = '{pipeline="numbers", run="run", stage="double"}'
    wait_for(lambda: prometheus.value(f"tamis_stage_tasks_in_total{labels}") == done, "the count of tasks")
    assert prometheus.value(f"tamis_stage_rows_in_total{labels}") == done * ROWS
    assert prometheus.value(f"tamis_stage_rows_out_total{labels}") == done * ROWS
    assert prometheus.value(f"tamis_stage_workers{labels}") == 1
    assert prometheus.value('tamis_run_state{state="running"}') == 1
    assert prometheus.value("tamis_run_running_tasks") == 1
    assert prometheus.value("sum(tamis_worker_rows_out_total)") == done * ROWS
    assert (prometheus.value("max(tamis_worker_memory_peak_bytes)") or 0) > 2**20
    assert (prometheus.value("tamis_worker_busy_seconds_total") or 0) > 0
    types = {m.name: m.kind for m in METRICS if prometheus.ask(m.name)}
    absent = {m.name for m in METRICS} - set(types)
    assert absent <= {m.name for m in METRICS if m.scope == "gpu"}
    known = f"http://127.0.0.1:{prometheus.port}/api/v1/metadata"
    with urllib.request.urlopen(known, timeout=10) as answer:
        told = json.load(answer)["data"]
    # In the OpenMetrics format, a counter is described under its name without the ending.
    assert {name: told.get(name, told.get(name.removesuffix("_total")))[0]["type"] for name in types} == types


def test_every_panel_of_the_dashboard_shows_something(prometheus: Prometheus) -> None:
    for metric in METRICS:
        if metric.scope == "gpu":
            continue
        query = expression(metric).replace("$__rate_interval", "5s").replace("$pipeline", ".*").replace("$run", ".*")
        wait_for(lambda query=query: prometheus.ask(query), query)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_configuration_and_the_metrics(tmp_path: Path, going_run: RunThatWaits) -> None:
    assert main(["monitor", str(going_run.folder), "--output", str(tmp_path / "files")]) == 0
    subprocess.run(["promtool", "check", "config", str(tmp_path / "files" / "prometheus.yml")], check=True)
    url = (going_run.folder / ENDPOINT_NOTE).read_text().strip()
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.stderr.decode() == ""
    assert checked.returncode == 0
