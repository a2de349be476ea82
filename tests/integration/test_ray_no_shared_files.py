"""A cluster whose machines do not see each other's files: each has an empty folder where the others have theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from killed_runs import KilledRun
from parity_pipelines import KeepEven, SetAsideSevens, Upper, collect, write_input
from ray.cluster_utils import Cluster
from ray_faults import WITHOUT_HELPERS

from tamis.backends.base import Executor
from tamis.backends.local import LocalExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.exchange import Exchange
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.mixing import GlobalShuffle
from tamis.tasks import DocumentBatch

STORE = 100_000_000


def _can_hide() -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not _can_hide(), reason="needs mount namespaces, which are not permitted here"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the driver's machine; each of the others has an empty one in its place."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def machines(private: Path) -> Iterator[None]:
    """The driver's machine with a core, and one with two that has a folder of its own in the place of ``private``."""
    head = {"num_cpus": 1, "object_store_memory": STORE, **WITHOUT_HELPERS}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    start = f'mount -t tmpfs none "{private}" && exec ray start --block --address={cluster.address} --num-cpus=2'
    command = ["unshare", "-rm", "sh", "-c", f"{start} --object-store-memory={STORE}"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    other = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        while ray.cluster_resources().get("CPU", 0) < 3:
            assert other.poll() is None
            time.sleep(0.1)
        yield
    finally:
        ray.shutdown()
        other.terminate()
        try:
            other.wait(60)
        finally:
            other.kill()
            cluster.shutdown()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input that all machines see."""
    return write_input(tmp_path_factory.mktemp("shared"), files=8)


class TextsPerLanguage(Exchange[DocumentBatch, DocumentBatch]):
    key, partitions, makes_rows = "lang", 2, "same"

    def reduce(self, rows: DocumentBatch) -> DocumentBatch:
        return rows


def stages(source: Path) -> list[ProcessingStage[Any, Any]]:
    """A shuffle, a deduplication, an exchange, drops, rows in quarantine, and rows as output."""
    return [
        JsonlReader(str(source), files_per_partition=1),
        Upper(),
        GlobalShuffle(partitions=3),
        SetAsideSevens(),
        ExactDeduplication(partitions=3),
        KeepEven(),
        TextsPerLanguage(),
    ]


def test_the_folder_is_hidden(machines: None, private: Path) -> None:
    @ray.remote(num_cpus=2)  # the driver's machine has one core only
    def look() -> list[str]:
        return os.listdir(private)

    (private / "here").touch()
    assert ray.get(look.remote()) == []


@pytest.mark.parametrize(
    "executor",
    [StreamingExecutor, RayDataExecutor, pytest.param(XennaExecutor, marks=pytest.mark.exhaustive)],
)
def test_a_run_gives_the_same_as_on_one_machine(machines: None, private: Path, source: Path, executor: Any) -> None:
    chosen = stages(source)
    if executor is not StreamingExecutor:  # these start new workers after each barrier, which takes long
        chosen = [chosen[0], SetAsideSevens(), KeepEven(), TextsPerLanguage()]

    def ran(where: Executor) -> Any:
        run_dir = private / f"{executor.__name__}-{type(where).__name__}"
        result = Pipeline("p", stages=chosen).run(where, run_dir=str(run_dir), progress="off")
        found = collect(result, private / "out", run_dir)
        return [data for _, _, data in found.outputs], found.drops, found.quarantine

    ours, theirs = ran(LocalExecutor(workers=0)), ran(executor())
    assert theirs == ours
    assert all(ours)


def test_a_killed_run_is_continued(machines: None, private: Path, tmp_path: Path) -> None:
    KilledRun(tmp_path, private, ray.get_runtime_context().gcs_address, shuffle=True).check("streaming")


def test_a_writer_to_a_folder_that_is_not_shared_is_refused(machines: None, private: Path, source: Path) -> None:
    pipeline = Pipeline("p", stages=[JsonlReader(str(source)), JsonlWriter(str(private / "out"))])
    with pytest.raises(PlanError, match=r"JsonlWriter writes to .*private.*/out, which machine .* does not see"):
        pipeline.run(StreamingExecutor(), run_dir=str(private / "refused"), progress="off")


def test_a_writer_to_a_folder_that_is_shared_works(machines: None, private: Path, source: Path, tmp_path: Path) -> None:
    pipeline = Pipeline("p", stages=[*stages(source), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.run(StreamingExecutor(), run_dir=str(private / "writes"), progress="off")
    assert result.summary.output_rows == sum(len(f.read_text().splitlines()) for f in tmp_path.glob("out/*.jsonl")) > 0
