"""The Ray executors on a cluster that is there already: what they take from it, keep to, refuse, and leave alone."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from parity_pipelines import halves
from ray_faults import Faulty, Grow, wait_for, worker_processes

from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.errors import ClusterError, PlanError, StageError
from tamis.pipeline import Pipeline
from tamis.runs.progress import NoProgress
from tamis.runs.stats import Snapshot
from tamis.stages.base import ProcessingStage
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader
from tamis.tasks import DocumentBatch

pytestmark = pytest.mark.usefixtures("ray_cluster")

MIB = 2**20


@pytest.fixture(autouse=True)
def _the_cluster_is_left_as_it_was() -> Iterator[None]:
    yield
    assert ray.is_initialized()
    wait_for(lambda: not worker_processes(), "a worker outlived its run")


def batches(count: int) -> list[Any]:
    return [DocumentBatch({"n": [i]}) for i in range(count)]


def run(tmp_path: Path, stages: list[Any], given: list[Any], executor: Any = None, progress: Any = "off") -> Any:
    executor = executor or StreamingExecutor(fuse=False)
    return Pipeline("test", stages=stages).run(executor, given, run_dir=str(tmp_path / "run"), progress=progress)


def test_a_run_without_executor_uses_the_cluster_this_process_has(tmp_path: Path) -> None:
    result = Pipeline("test", stages=[Faulty()]).run(None, batches(3), run_dir=str(tmp_path / "run"), progress="off")
    assert result.summary.executor == "streaming on Ray"
    assert [t.data["n"].to_pylist() for t in result] == [[0], [1], [2]]


def test_progress_moves_within_a_task(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": random.Random(n).randbytes(400).hex()}) + "\n" for n in range(400))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))  # cannot be split: one task, read in blocks
    shown = tmp_path / "shown"

    class Fractions(NoProgress):
        def update(self, snapshot: Snapshot) -> None:
            if snapshot.fraction is not None and 0 < snapshot.fraction < 1:
                shown.touch()

    @processing_stage(name="waits")
    def waits(task: DocumentBatch) -> DocumentBatch:
        deadline = time.monotonic() + 60
        while not shown.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return task

    reader = JsonlReader(str(tmp_path / "a.jsonl.gz"), blocksize="40kB")
    result = Pipeline("p", stages=[reader, waits]).run(
        StreamingExecutor(), run_dir=str(tmp_path / "run"), progress=Fractions()
    )
    assert result.stage("JsonlReader").tasks_in == 1
    assert (result.rows, shown.exists()) == (400, True)


SCRIPT = """
import os, signal, sys
import ray
from tamis.backends.streaming import StreamingExecutor
from tamis.pipeline import Pipeline
from tamis.stages.function_decorators import processing_stage
from tamis.tasks import DocumentBatch

@processing_stage(name="same")
def same(task: DocumentBatch) -> DocumentBatch:
    return task

def run(executor, run_dir):
    result = Pipeline("p", stages=[same]).run(executor, [DocumentBatch({"n": [1]})], run_dir=run_dir, progress="off")
    print(result.summary.executor, len(result), ray.is_initialized())

run(StreamingExecutor(address=sys.argv[1]), "first")
os.environ["RAY_ADDRESS"] = sys.argv[1]
run(None, "second")
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""


def test_another_process_connects_by_address_and_leaves_it_running(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    address = ray.get_runtime_context().gcs_address
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "script.py", address],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"streaming on Ray at {address} 1 False", "streaming on Ray 1 False"]


def test_the_memory_budget_is_kept(tmp_path: Path) -> None:
    class Eye(NoProgress):
        most = 0

        def update(self, snapshot: Snapshot) -> None:
            self.most = max(self.most, snapshot.held_bytes)

    eye = Eye()
    given = [DocumentBatch({"n": [i, i]}) for i in range(40)]
    stages = [Grow(MIB), Faulty().with_(name="next"), halves]
    result = run(tmp_path, stages, given, StreamingExecutor(fuse=False, memory_budget=16 * MIB), progress=eye)
    assert len(result) == 80
    assert 0 < eye.most <= 18 * MIB  # one task more than the budget, while it is not known how large they get


def test_a_stage_that_cannot_be_sent_is_refused_before_anything_runs(tmp_path: Path) -> None:
    stage = Faulty()
    stage.lock = threading.Lock()  # type: ignore[attr-defined]  # a mistake users make
    with pytest.raises(PlanError, match=r"faulty.*lock"):
        run(tmp_path, [stage], batches(1))
    assert not (tmp_path / "run").exists()


def test_a_task_that_cannot_be_sent_says_which_stage_made_it(tmp_path: Path) -> None:
    class Odd(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "odd"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            made = task.with_table(task.data)
            made._metadata = {**task._metadata, "lock": threading.Lock()}
            return made

    with pytest.raises(StageError, match=r"stage 'odd'.*cannot pickle '_thread.lock'"):
        run(tmp_path, [Odd(), halves], batches(2))


@pytest.mark.parametrize("env", [{"pip": 5}, {"working_dir": "/no/such/folder"}, {"env_vars": {"A": 1}}])
def test_a_runtime_environment_that_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, env: dict[str, object]
) -> None:
    with pytest.raises(PlanError, match="invalid runtime_env for stage 'halves'"):
        run(tmp_path, [halves.with_(runtime_env=env)], batches(2))
    with pytest.raises(PlanError, match="invalid runtime_env for the executor"):
        run(tmp_path, [halves], batches(2), StreamingExecutor(runtime_env=env))


def test_an_address_where_nobody_answers_is_refused(tmp_path: Path) -> None:
    script = "from tamis.backends.streaming.cluster_view import Cluster\nCluster('127.0.0.1:1')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ClusterError.__name__ in done.stderr
    assert "127.0.0.1:1" in done.stderr


def test_the_actor_pool_refuses_a_key_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"reserved_cpu'.*Did you mean 'reserved_cpus'"):
        RayActorPoolExecutor({"reserved_cpu": 1})


def test_what_stages_print_is_kept(tmp_path: Path) -> None:
    @processing_stage(name="chatty")
    def chatty(task: DocumentBatch) -> DocumentBatch:
        print("a stage says hello")  # noqa: T201 - what users do
        return task

    run(tmp_path, [chatty], batches(1))
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    wait_for(lambda: any("a stage says hello" in p.read_text() for p in logs.glob("worker-*.out")), "it is lost")
    assert sum(p.read_text().count("a stage says hello") for p in logs.glob("worker-*.out")) == 1


@pytest.mark.parametrize("amount", [-1, "2"])
def test_an_amount_to_reserve_that_is_none_is_refused(amount: object) -> None:
    with pytest.raises(ValueError, match=r"reserved_cpus=.* must be a number, and not negative"):
        RayActorPoolExecutor(config={"reserved_cpus": amount})


@pytest.mark.parametrize("amount", [-1, 1.5])
def test_an_amount_of_cores_that_ray_cannot_start_with_is_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="must be a whole number, and not negative"):
        StreamingExecutor(num_cpus=amount)
