"""A worker on Ray: an actor that works off assignments. It runs in another process, on another machine perhaps."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tamis.backends.runner import Failure, RunPaths

# Imported where they are used: the environment must be set first, and an actor is up sooner.

SENTINEL = ".tamis-run"
"""A file in the run's scratch directory by which a worker sees that it has the same file system as the driver."""


@dataclass(frozen=True)
class Home:
    """What a worker takes over from the driver, so that a stage finds the same there as here.

    Args:
        directory: The working directory.
        path: Where modules are looked for.
        arguments: The driver's arguments.
        variables: Environment variables.
    """

    directory: str = field(default_factory=os.getcwd)
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    arguments: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    variables: dict[str, str] = field(
        default_factory=lambda: {k: v for k, v in os.environ.items() if k.startswith(("TAMIS_", "POLARS_"))}
    )

    def settle(self) -> None:
        """Make this process like the driver's."""
        os.environ.update(self.variables)
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # there is a worker for every core
        sys.path.extend(p for p in self.path if p not in sys.path)
        sys.argv[:] = list(self.arguments)
        with contextlib.suppress(OSError):  # a machine need not have the directory; paths in stages are absolute
            os.chdir(self.directory)


class RayWorker:
    """The actor. Made with ``ray.remote``; every method returns data, also when a stage raises.

    Args:
        home: What to take over from the driver.
        worker_id: The worker's name.
        gpu_ids: Its GPUs, as the machine counts them.
    """

    def __init__(self, home: Home, worker_id: str, gpu_ids: tuple[int, ...]) -> None:
        home.settle()
        self._worker_id, self._gpu_ids = worker_id, gpu_ids
        if gpu_ids:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(cards_of_this_node()[i] for i in gpu_ids)

    def begin(self, stages: bytes) -> None:
        """Import what it takes and unpack the stages: what every worker does first, and costs the machine most."""
        from tamis.backends.substrates.inline import WorkerRunners  # noqa: F401 - imported ahead

        self._specs = pickle.loads(stages)

    def set_up(
        self, places: RunPaths, eager: Sequence[int], node_failure: Failure | None
    ) -> tuple[Failure | None, bool, float]:
        """Set up the stages of the ``eager`` groups.

        Returns what went wrong, whether that was ``setup_on_node``, and how many seconds it took.
        """
        from tamis.backends.running_stage import RunningStage
        from tamis.backends.substrates.inline import WorkerRunners

        began = time.perf_counter()
        if node_failure is not None:
            return node_failure, True, 0.0
        missing = _not_shared(places)
        if missing is not None:
            return missing, False, 0.0
        marker = RunningStage(RunningStage.path(places.scratch, self._worker_id)) if places.scratch else None
        self._placement = WorkerRunners(self._specs, places, self._worker_id, self._gpu_ids, marker)
        for group in eager:
            failure = self._placement.runner(group).set_up()
            if failure is not None:
                return _travelling(failure), False, 0.0
        return None, False, time.perf_counter() - began

    def run(self, bundle: bytes, slots: int, *objects: Any) -> Any:
        """Work off assignments: ``(group, payloads)`` each. Data made goes into ``slots`` objects of the store.

        Returns the outcomes, in which payloads are replaced by where they are, then the objects.
        """
        from tamis.backends.payload import ObjectPart
        from tamis.plan import END

        outcomes, made = [], [[] for _ in range(slots)]  # type: ignore[var-annotated]  # lists of tasks
        count = 0
        for group, payloads in pickle.loads(bundle):
            outcome = self._run_one(group, [_resolve(p, objects) for p in payloads])
            for envelope in outcome.outputs:
                # What is left at the end of the pipeline is small here, and the driver keeps it: it goes along.
                if envelope.vertex != END and _is_task(envelope.payload):
                    slot = made[count % slots]
                    slot.append(envelope.payload)
                    envelope.payload = ObjectPart(count % slots, len(slot) - 1)
                    count += 1
            outcomes.append(outcome)
        answer = pickle.dumps(outcomes)
        return (answer, *made) if slots else answer

    def _run_one(self, group: int, tasks: list[Any]) -> Any:
        from dataclasses import replace

        outcome = self._placement.runner(group).run(tasks)
        if outcome.failure is not None:
            outcome.failure = replace(outcome.failure, exception=_travelling(outcome.failure).exception)
        return outcome

    def stop(self) -> None:
        """Tear the stages down."""
        if hasattr(self, "_placement"):
            self._placement.close()


def set_up_node(stages: bytes, home: Home, node: str, scratch: str, groups: Sequence[int]) -> Failure | None:
    """Call ``setup_on_node`` of the stages: a task that runs once on each machine, before its workers are set up.

    Returns what went wrong.
    """
    home.settle()
    from tamis.backends.runner import failure_of
    from tamis.stages.base import NodeInfo, WorkerMetadata

    specs = pickle.loads(stages)
    for group in groups:
        for vertex, stage in specs[group].stages.items():
            try:
                stage.setup_on_node(NodeInfo(node), WorkerMetadata(scratch=scratch))
            except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
                return _travelling(failure_of(specs[group].names[vertex], error))
    return None


def save_task(place: Any, path: str, *objects: Any) -> None:
    """Write a task to a file."""
    from tamis.tasks.storage import write_task

    write_task(_resolve(place, objects), path)


def running_stage(scratch: str, worker_id: str) -> int | None:
    """The vertex that a worker of this machine was running when it died."""
    from tamis.backends.running_stage import RunningStage

    return RunningStage.read(RunningStage.path(scratch, worker_id))


def cards_of_this_node() -> list[str]:
    """The names of the GPUs that Ray was started with on this machine, as CUDA is told them.

    Ray hides GPUs from workers that did not ask it for any; what its own process was given is the truth.
    """
    visible = _environment_of(os.getppid()).get("CUDA_VISIBLE_DEVICES") or None
    if visible:
        return [name.strip() for name in visible.split(",")]
    return [str(i) for i in range(1024)]


def gpu_memory_of_this_node() -> tuple[float, ...]:
    """Memory in GB of each GPU that Ray was started with on this machine; nothing where they are not real."""
    from tamis.core import host

    visible = _environment_of(os.getppid()).get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    return tuple(card.memory_gb for card in host.gpus())


def _environment_of(process: int) -> dict[str, str]:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123 - plain open is enough
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (e.decode(errors="replace").partition("=") for e in entries)
    return {name: value for name, _, value in pairs}


def _resolve(place: Any, objects: Sequence[Any]) -> Any:
    """The task at a place: a part of one of the objects, a file, or the task itself as bytes."""
    from tamis.backends.payload import ObjectPart, decode_payload

    return objects[place.ref][place.index] if isinstance(place, ObjectPart) else decode_payload(place)


def _is_task(payload: Any) -> bool:
    from tamis.tasks import Task

    return isinstance(payload, Task)


def _travelling(failure: Failure) -> Failure:
    """A failure without an exception that cannot be pickled."""
    from dataclasses import replace

    from tamis.backends.substrates.worker import travels

    return failure if travels(failure.exception) else replace(failure, exception=None)


def _not_shared(places: RunPaths) -> Failure | None:
    """What is wrong if this machine does not see the run's directory."""
    from tamis.backends.runner import Failure
    from tamis.errors import PlanError

    if not places.scratch or os.path.exists(os.path.join(places.scratch, SENTINEL)):
        return None
    words = (
        f"the run directory {os.path.dirname(places.scratch)} is not there on machine {os.uname().nodename}, where a "
        "worker runs: give one on a file system that all machines of the cluster share, run(run_dir=...)"
    )
    return Failure("", words, permanent=True, exception=PlanError(words))
