"""A cluster of several machines, which Ray plays on one: where stages run, and what comes of losing a machine."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from parity_pipelines import Builder, KeepEven, Result, halves, run_on, write_input
from ray.cluster_utils import Cluster
from ray_faults import WITHOUT_HELPERS, Gate, Grow, wait_for

from tamis.backends.group_spec import RunPaths
from tamis.backends.local import LocalExecutor
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.backends.substrates.ray_worker import Home, RayWorker
from tamis.errors import ResourceError
from tamis.pipeline import Pipeline
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch

Stage = ProcessingStage[Any, Any]
STORE = 100_000_000


@pytest.fixture(scope="module")
def machines() -> Iterator[Cluster]:
    """A head with one core, a machine with three, a machine with two and three GPUs."""
    settings = {
        "health_check_period_ms": 500,  # so that a machine that is gone is missed after seconds
        "health_check_timeout_ms": 2000,
        "health_check_failure_threshold": 3,
        "enable_worker_prestart": False,
        "prestart_worker_first_driver": False,
    }
    head = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": STORE, **WITHOUT_HELPERS}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": settings})
    cluster.add_node(num_cpus=3, num_gpus=0, object_store_memory=STORE)
    cluster.add_node(num_cpus=2, num_gpus=3, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"), files=12)


class Witness(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Writes down where it is, what it is given and when; changes nothing.

    Args:
        folder: A directory for its notes, or ``""``.
        seconds: How long it works on a task.
    """

    name = "witness"

    def __init__(self, folder: Path | str = "", seconds: float = 0.0) -> None:
        self.folder, self.seconds = str(folder), seconds

    def _note(self, what: str, **more: Any) -> None:
        if self.folder:
            note = {
                "stage": self.name,
                "what": what,
                "at": time.time(),
                "pid": os.getpid(),
                "node": ray.get_runtime_context().get_node_id(),
                "cards": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "mood": os.environ.get("TEST_MOOD"),
                **more,
            }
            path = Path(self.folder, f"{self.name}-{os.urandom(6).hex()}.json")
            path.with_suffix(".tmp").write_text(json.dumps(note))
            path.with_suffix(".tmp").rename(path)

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._note("setup_on_node")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self._note("setup", gpu_ids=worker_metadata.gpu_ids)

    def teardown(self) -> None:
        self._note("teardown")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        began = time.time()
        time.sleep(self.seconds)
        self._note("process", began=began, task=task.order)
        return task


def told(folder: Path, stage: str, what: str) -> list[dict[str, Any]]:
    """What the witnesses have written down."""
    notes = [json.loads(p.read_text()) for p in folder.glob(f"{stage}-*.json")]
    return [n for n in notes if n["what"] == what]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def node_with(**resources: float) -> str:
    """The machine that has just these."""
    (found,) = (
        n["NodeID"]
        for n in ray.nodes()
        if n["Alive"] and all(n["Resources"].get(k, 0) == v for k, v in resources.items())
    )
    return str(found)


def batches(count: int) -> list[Any]:
    return [DocumentBatch({"n": [i]}) for i in range(count)]


def run(tmp_path: Path, stages: list[Stage], given: list[Any], executor: Any = None, **settings: Any) -> list[int]:
    executor = executor or StreamingExecutor(fuse=False, **settings)
    result = Pipeline("test", stages=stages).run(executor, given, run_dir=str(tmp_path / "run"), progress="off")
    return [n for task in result for n in task.data["n"].to_pylist()]


def pipeline(*stages: Stage) -> Builder:
    def build(source: Path, target: Path) -> Pipeline:
        reader = JsonlReader(str(source), files_per_partition=1)
        return Pipeline("nodes", stages=[reader, *stages, KeepEven(), JsonlWriter(str(target))])

    return build


def as_if_nothing_had_happened(found: Result, source: Path, work: Path, *stages: Stage) -> None:
    """Compare with a run on one thread of this machine."""
    expected = run_on(LocalExecutor(workers=0, fuse=False), pipeline(*stages), source, work / "local")
    for stats in found.stats:
        stats["retries"] = 0
    assert dataclasses.asdict(found) == dataclasses.asdict(expected)


# -- where stages run ------------------------------------------------------------------------------------------------


def test_cpu_stages_run_anywhere_and_gpu_stages_on_their_cards(machines: Cluster, tmp_path: Path, notes: Path) -> None:
    stages = [
        Witness(notes, 0.1).with_(name="cpu"),
        Witness(notes, 0.1).with_(name="quarter", resources=Resources(cpus=0.25, gpus=0.25)),
        Witness(notes, 0.1).with_(name="whole", resources=Resources(cpus=0.5, gpus=1)),
    ]
    assert sorted(run(tmp_path, stages, batches(40))) == list(range(40))
    gpu_node = node_with(GPU=3)
    assert node_with(CPU=3) in {n["node"] for n in told(notes, "cpu", "process")}
    assert not any(n["cards"] for n in told(notes, "cpu", "process"))
    for stage in ("quarter", "whole"):
        assert {n["node"] for n in told(notes, stage, "process")} == {gpu_node}
        for note in told(notes, stage, "setup"):
            assert note["cards"] == ",".join(map(str, note["gpu_ids"]))
            assert len(note["gpu_ids"]) == 1
    check_cards(notes)


def check_cards(notes: Path) -> None:
    """No card has more workers at a time than it has room for, from their setup to their teardown."""
    share = {"quarter": 0.25, "whole": 1.0}
    changes: list[tuple[float, int, str, float]] = []
    for stage, each in share.items():
        ends = {n["pid"]: n["at"] for n in told(notes, stage, "teardown")}
        for note in told(notes, stage, "setup"):
            changes += [(note["at"], 1, note["cards"], each), (ends[note["pid"]], 0, note["cards"], -each)]
    taken: Counter[str] = Counter()
    for _, _, card, change in sorted(changes):
        taken[card] += change
        assert taken[card] <= 1 + 1e-9


def test_stages_are_set_up_once_per_machine_and_worker(machines: Cluster, tmp_path: Path, notes: Path) -> None:
    stages = [
        Witness(notes, 0.05).with_(name="plain"),
        Witness(notes, 0.05).with_(name="two", num_workers=2, resources=Resources(cpus=0.5)),
        Witness(notes, 0.05).with_(name="each", num_workers_per_node=1, resources=Resources(cpus=0.5)),
    ]
    run(tmp_path, stages, batches(150))  # enough work for a slow start of every worker
    for stage in ("plain", "two", "each"):
        assert max(Counter(n["node"] for n in told(notes, stage, "setup_on_node")).values()) == 1
        assert max(Counter(n["pid"] for n in told(notes, stage, "setup")).values()) == 1
        assert {n["pid"] for n in told(notes, stage, "setup")} == {n["pid"] for n in told(notes, stage, "teardown")}
        first = {n["node"]: n["at"] for n in told(notes, stage, "setup_on_node")}
        assert all(first[n["node"]] <= n["at"] for n in told(notes, stage, "setup"))
    assert len(told(notes, "two", "setup")) == 2
    assert len(told(notes, "each", "setup")) == 3


def test_the_head_node_is_kept_free_if_asked(machines: Cluster, tmp_path: Path, notes: Path) -> None:
    run(tmp_path, [Witness(notes, 0.05)], batches(40), ignore_head_node=True)
    used = {n["node"] for what in ("process", "setup", "setup_on_node") for n in told(notes, "witness", what)}
    assert used == {node_with(CPU=3), node_with(GPU=3)}


def test_a_stage_has_its_own_runtime_environment(machines: Cluster, tmp_path: Path, notes: Path) -> None:
    stages = [
        Witness(notes).with_(name="plain"),
        Witness(notes).with_(name="merry", runtime_env={"env_vars": {"TEST_MOOD": "merry"}}),
    ]
    run(tmp_path, stages, batches(10))
    assert {n["mood"] for n in told(notes, "plain", "process")} == {None}
    assert {n["mood"] for n in told(notes, "merry", "process")} == {"merry"}


def test_the_actor_pool_has_a_barrier_after_each_stage(machines: Cluster, tmp_path: Path, notes: Path) -> None:
    stages = [Witness(notes, 0.05).with_(name="first"), Witness(notes, 0.05).with_(name="second")]
    executor = RayActorPoolExecutor({"reserved_cpus": 1}, ignore_head_node=True, show_progress=False)
    assert run(tmp_path, stages, batches(20), executor) == list(range(20))
    ended = max(n["at"] for n in told(notes, "first", "process"))
    assert min(n["began"] for n in told(notes, "second", "process")) >= ended
    assert node_with(CPU=1) not in {n["node"] for n in told(notes, "second", "process")}


def test_large_tasks_are_worked_on_where_they_are(machines: Cluster, source: Path, tmp_path: Path, notes: Path) -> None:
    stages = [
        Grow(100_000),
        Witness(notes, 0.05).with_(name="before"),
        Witness(notes, 0.05).with_(name="after"),
    ]
    run_on(StreamingExecutor(fuse=False), pipeline(*stages), source, tmp_path / "ray")
    before = {tuple(n["task"]): n["node"] for n in told(notes, "before", "process")}
    after = {tuple(n["task"]): n["node"] for n in told(notes, "after", "process")}
    crossed = sum(before[t] != after[t] for t in before)
    assert len(before) == 12
    assert crossed <= 2  # two of three would be, if it were left to chance


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_with_the_arithmetic(machines: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"'big'.*4"):
        run(tmp_path, [Witness().with_(name="big", resources=Resources(gpus=4))], batches(1))
    with pytest.raises(ResourceError, match="'wide'"):
        run(tmp_path, [Witness().with_(name="wide", resources=Resources(cpus=8))], batches(1))
    many = Witness().with_(name="many", resources=Resources(gpus=1), num_workers=4)
    with pytest.raises(ResourceError, match=r"4 x 1 \(many\) = 4 GPUs .* has 3"):
        run(tmp_path, [many], batches(1))
    assert not (tmp_path / "run").exists()


def test_a_machine_that_does_not_see_the_run_directory_says_so(tmp_path: Path) -> None:
    worker = RayWorker(Home(variables={}), "0", ())
    worker.begin(pickle.dumps({}))
    failure, _, _ = worker.set_up(RunPaths(str(tmp_path / "elsewhere" / "scratch")), [], None)
    assert failure is not None
    assert failure.permanent
    assert str(tmp_path / "elsewhere") in failure.error
    assert "file system that all machines of the cluster share" in failure.error


# -- machines come and go --------------------------------------------------------------------------------------------


class WaitsForAnotherMachine(Witness):
    """After a few tasks, does not go on before a machine beside the known ones has a task."""

    name = "witness"

    def __init__(self, folder: Path, known: set[str]) -> None:
        super().__init__(folder)
        self.known = known

    def process(self, task: DocumentBatch) -> DocumentBatch:
        joined = Path(self.folder, "joined")
        if ray.get_runtime_context().get_node_id() not in self.known:
            joined.touch()
        elif task.order[0] < 6:
            time.sleep(0.4)  # so that tasks are known to be worth sharing
        else:
            wait_for(joined.exists, "no other machine is given a task")
        return super().process(task)


def test_a_machine_that_joins_is_used(machines: Cluster, tmp_path: Path, notes: Path) -> None:
    before = {n["NodeID"] for n in ray.nodes() if n["Alive"]}
    with ThreadPoolExecutor() as beside:
        running = beside.submit(run, tmp_path, [WaitsForAnotherMachine(notes, before)], batches(120))
        wait_for(lambda: told(notes, "witness", "process"), "the run does not start")
        joined = machines.add_node(num_cpus=4, num_gpus=0, object_store_memory=STORE)
        assert running.result() == list(range(120))
    machines.remove_node(joined)
    assert (notes / "joined").exists()


def test_losing_a_machine_loses_no_task(machines: Cluster, source: Path, tmp_path: Path, notes: Path) -> None:
    large = {"num_cpus": 2, "num_gpus": 8, "object_store_memory": STORE}
    doomed = machines.add_node(**large)
    machines.wait_for_nodes()
    here = Resources(gpus=4)  # no other machine has so many
    stages = [halves, Grow().with_(resources=here), Witness(notes, 0.1).with_(resources=here)]
    with ThreadPoolExecutor() as beside:
        build = pipeline(*stages, Gate(notes).with_(num_workers=1))
        running = beside.submit(run_on, StreamingExecutor(fuse=False), build, source, tmp_path / "ray")
        wait_for(lambda: list(notes.glob("came-*")) and len(told(notes, "witness", "process")) > 5, "no task comes")
        machines.remove_node(doomed, allow_graceful=False)
        successor = machines.add_node(**large)
        (notes / "open").touch()
        found = running.result()
    machines.remove_node(successor)
    as_if_nothing_had_happened(found, source, tmp_path, halves, Grow(), Witness(), Gate())
    begun = Counter(tuple(n["task"]) for n in told(notes, "witness", "process"))
    assert max(begun.values()) > 1, "nothing was lost, so nothing was tested"
