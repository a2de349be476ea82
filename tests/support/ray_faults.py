"""Stages that go wrong on purpose, and what is left of a Ray run: for tests on a real Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import ray

from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.tasks import DocumentBatch

VICTIM = 47
"""The row whose task is the one that goes wrong (see :func:`parity_pipelines.write_input`)."""


WITHOUT_HELPERS = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""For the head of a ``Cluster``: no dashboard, no log on the driver, no autoscaler of machines. Each takes seconds."""


def start_small_cluster() -> None:
    """Start a private cluster on this machine, with two cores and two GPUs, and connect this process to it."""
    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=2,
        object_store_memory=150_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config={"enable_worker_prestart": False, "prestart_worker_first_driver": False},
    )


def first_time(folder: str, what: str) -> bool:
    """Whether nobody has asked this before, in whatever process."""
    try:
        os.close(os.open(os.path.join(folder, what), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 200.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.05)


def worker_processes() -> list[psutil.Process]:
    """Our workers among the processes that this one started, never those of other clusters on this machine."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RayWorker" in " ".join(process.cmdline()):
                found.append(process)
    return found


class Faulty(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Goes wrong with the task that has the victim's row, the first time or each time; else changes nothing.

    Args:
        fault: ``"raise"``, ``"die"``, ``"hang"``, or ``""`` for none.
        folder: Where it notes that it has gone wrong.
        always: Whether it goes wrong each time.
    """

    name = "faulty"

    def __init__(self, fault: str = "", folder: Path | str = "", always: bool = False) -> None:
        self.fault, self.folder, self.always = fault, str(folder), always

    def process(self, task: DocumentBatch) -> DocumentBatch:
        victim = self.fault and VICTIM in task.data["n"].to_pylist()
        if victim and (first_time(self.folder, self.fault) or self.always):
            self.go_wrong()
        return task

    def go_wrong(self) -> None:
        """Do what is to be done."""
        Path(self.folder, f"pid-{os.getpid()}").touch()
        if self.fault == "raise":
            raise KeyError(f"{VICTIM} is not here")
        if self.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)


class FailsToSetUp(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Cannot be set up, the first time or each time.

    Args:
        where: ``"setup"``, ``"setup_on_node"``, or ``""`` for nowhere.
        folder: Where it notes that it has gone wrong.
        always: Whether it fails each time.
    """

    name = "no_model"

    def __init__(self, where: str = "", folder: Path | str = "", always: bool = False) -> None:
        self.where, self.folder, self.always = where, str(folder), always

    def _fail(self, where: str) -> None:
        if where == self.where and (first_time(self.folder, where) or self.always):
            raise FileNotFoundError("the model's weights are not there")

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._fail("setup_on_node")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._fail("setup")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Grow(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes a task so large that it stays in the object store of the machine it was made on."""

    name = "grow"

    def __init__(self, row_bytes: int = 20_000) -> None:
        self.row_bytes = row_bytes

    def process(self, task: DocumentBatch) -> DocumentBatch:
        ballast = pa.array([str(n % 10) * self.row_bytes for n in task.data["n"].to_pylist()])
        return task.with_table(task.data.append_column("ballast", ballast))


class Gate(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Lets no task through before a file is there; notes which have come.

    Args:
        folder: The directory of the file ``open`` and of the notes. Without one, nothing is waited for.
    """

    name = "gate"

    def __init__(self, folder: Path | str = "") -> None:
        self.folder = str(folder)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.folder:
            Path(self.folder, f"came-{task.task_id}").touch()
            wait_for(lambda: Path(self.folder, "open").exists(), "the gate is not opened")
        return task
