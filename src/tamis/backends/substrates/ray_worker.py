"""A worker on Ray: an actor that runs assignments, in another process and perhaps on another machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tamis.backends.group_spec import RunPaths
    from tamis.backends.isolation import Isolation
    from tamis.backends.outcome import Failure, Outcome

# Imported where they are used: the environment must be set first, and an actor is up sooner.

T = TypeVar("T")

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

    It has threads for several calls, so that Ray reads the arguments of the next call and stores the results of the
    last one while a stage runs. The stages themselves all run in one thread, one call after the other.

    Args:
        home: What to take over from the driver.
        worker_id: The worker's name.
        gpu_ids: Its GPUs, as the machine counts them.
    """

    def __init__(self, home: Home, worker_id: str, gpu_ids: tuple[int, ...]) -> None:
        home.settle()
        self._worker_id, self._gpu_ids = worker_id, gpu_ids
        self._stage_thread = ThreadPoolExecutor(1, thread_name_prefix="tamis-stages")
        self._begun = Future[None]()  # calls may overtake each other
        self._stopped = False
        if gpu_ids:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(cards_of_this_node()[i] for i in gpu_ids)

    def begin(self, stages: bytes) -> None:
        """Import the modules and unpickle the stages: what every worker does first, and costs the machine most."""
        try:
            self._stage_thread.submit(_within_stage, self._begin, stages).result()
        except Exception as error:
            self._begun.set_exception(error)
            raise
        self._begun.set_result(None)

    def set_up(
        self, places: RunPaths, eager: Sequence[int], node_failure: Failure | None
    ) -> tuple[Failure | None, bool, float]:
        """Set up the stages of the ``eager`` groups.

        Returns what went wrong, whether that was ``setup_on_node``, and how many seconds it took.
        """
        self._begun.result()
        done: tuple[Failure | None, bool, float]
        done = self._stage_thread.submit(_within_stage, self._set_up, places, eager, node_failure).result()
        return done

    def run(self, bundle: bytes, slots: int, *objects: Any) -> Any:
        """Work on assignments: ``(group, payloads)`` each. Data made goes into ``slots`` objects of the store.

        Returns the outcomes, in which payloads are replaced by where they are, then the objects.
        """
        assignments = [(g, [_resolve(p, objects) for p in payloads], how) for g, payloads, how in pickle.loads(bundle)]
        return self._stage_thread.submit(_within_stage, self._run, assignments, slots).result()

    def stop(self) -> None:
        """Tear the stages down."""
        self._stage_thread.submit(_within_stage, self._stop).result()

    def _begin(self, stages: bytes) -> None:
        from tamis.backends.substrates.inline import WorkerRunners  # noqa: F401 - imported ahead

        self._specs = pickle.loads(stages)

    def _prepare(self, places: RunPaths, node_failure: Failure | None) -> tuple[Failure, bool] | None:
        """Make what runs the stages; returns what went wrong, and whether that was ``setup_on_node``."""
        from tamis.backends.running_stage import RunningStage
        from tamis.backends.substrates.inline import WorkerRunners

        if node_failure is not None:
            return node_failure, True
        missing = _not_shared(places)
        if missing is not None:
            return missing, False
        marker = RunningStage(RunningStage.path(places.local, self._worker_id)) if places.scratch else None
        self._placement = WorkerRunners(self._specs, places, self._worker_id, self._gpu_ids, marker)
        return None

    def _set_up(
        self, places: RunPaths, eager: Sequence[int], node_failure: Failure | None
    ) -> tuple[Failure | None, bool, float]:
        if self._stopped:  # the call to stop overtook this one: what is set up now would not be torn down
            return None, False, 0.0
        began = time.perf_counter()
        wrong = self._prepare(places, node_failure)
        if wrong is not None:
            return *wrong, 0.0
        for group in eager:
            failure = self._placement.runner(group).set_up()
            if failure is not None:
                return _travelling(failure), False, 0.0
        return None, False, time.perf_counter() - began

    def _run(self, assignments: list[tuple[int, list[Any], Isolation | None]], slots: int) -> Any:
        return _answer([self._placement.runner(group).run(tasks, how) for group, tasks, how in assignments], slots)

    def _stop(self) -> None:
        self._stopped = True
        if hasattr(self, "_placement"):
            self._placement.close()


class AsyncRayWorker(RayWorker):
    """The actor of an ``async`` stage: Ray runs its methods on an event loop, many calls at the same time."""

    async def begin(self, stages: bytes) -> None:  # type: ignore[override]  # Ray awaits it
        try:
            self._begin(stages)
        except Exception as error:
            self._begun.set_exception(error)
            raise
        self._begun.set_result(None)

    async def set_up(  # type: ignore[override]  # Ray awaits it
        self, places: RunPaths, eager: Sequence[int], node_failure: Failure | None
    ) -> tuple[Failure | None, bool, float]:
        await asyncio.wrap_future(self._begun)
        began = time.perf_counter()
        wrong = self._prepare(places, node_failure)
        if wrong is not None:
            return *wrong, 0.0
        for group in eager:
            failure = await self._placement.runner(group).set_up_async()
            if failure is not None:
                return _travelling(failure), False, 0.0
        return None, False, time.perf_counter() - began

    async def run(self, bundle: bytes, slots: int, *objects: Any) -> Any:  # type: ignore[override]  # Ray awaits it
        outcomes = [
            await self._placement.runner(group).run_async([_resolve(p, objects) for p in payloads], how)
            for group, payloads, how in pickle.loads(bundle)
        ]
        return _answer(outcomes, slots)

    async def stop(self) -> None:  # type: ignore[override]  # Ray awaits it
        if hasattr(self, "_placement"):
            await self._placement.close_async()


def _within_stage(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; where a stage ends its process with ``sys.exit``, end it: the thread would only be lost."""
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it would otherwise go unreported
        code = error.code if isinstance(error, SystemExit) else None
        os._exit(code if isinstance(code, int) else 1)


def _answer(outcomes: list[Outcome], slots: int) -> Any:
    """What a call returns: the outcomes, and the tasks that were made, spread over the objects."""
    from dataclasses import replace

    from tamis.backends.payload import ObjectPart
    from tamis.plan import END

    made: list[list[Any]] = [[] for _ in range(slots)]
    count = 0
    for outcome in outcomes:
        if outcome.failure is not None:
            outcome.failure = replace(outcome.failure, exception=_travelling(outcome.failure).exception)
        for envelope in outcome.outputs:
            # What is left at the end of the pipeline is small here, and the driver keeps it: it goes along.
            if envelope.vertex != END and _is_task(envelope.payload):
                slot = made[count % slots]
                slot.append(envelope.payload)
                envelope.payload = ObjectPart(count % slots, len(slot) - 1)
                count += 1
    answer = pickle.dumps(outcomes)
    return (answer, *made) if slots else answer


def set_up_node(stages: bytes, home: Home, node: str, scratch: str, groups: Sequence[int]) -> Failure | None:
    """Call ``setup_on_node`` of the stages: a task that runs once on each machine, before its workers are set up.

    Returns what went wrong.
    """
    home.settle()
    from tamis.backends.outcome import failure_of
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
    from tamis.backends.outcome import Failure
    from tamis.errors import PlanError

    if not places.scratch or places.staging or os.path.exists(os.path.join(places.local, SENTINEL)):
        return None
    words = (
        f"the run directory {os.path.dirname(places.local)} is not there on machine "
        f"{os.uname().nodename}, where a worker runs, but it was there on all machines when the run began: give one on "
        "a file system that all machines of the cluster share, run(run_dir=...)"
    )
    return Failure("", words, permanent=True, exception=PlanError(words))
