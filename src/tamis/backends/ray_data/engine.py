"""Ray Data as an engine: parcels are rows, and groups are operators of one dataset, which is executed as a stream."""

from __future__ import annotations

import logging
import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tamis.backends.external.operator import Operator, OperatorSpec, Parcel
from tamis.backends.external.ray_session import ClusterNode, Slot, others
from tamis.backends.external.worker_spec import WorkerSpec
from tamis.errors import StageError, WorkerDiedError
from tamis.plan import Group
from tamis.stages.base import WorkerMetadata

A_LITTLE_CPU = 1e-4
"""The smallest difference that Ray distinguishes."""


@dataclass
class RayDataPlacement:
    """How a group runs on Ray.

    Args:
        group: The group.
        is_actor: Whether its workers are actors; else each parcel is a Ray task.
        cpus, gpus: What one worker requests from Ray.
        least, most: The number of actors, or of Ray tasks at a time.
        initial: The number of actors at the start.
        max_calls: The number of tasks after which a process is replaced.
        runtime_env: Ray's runtime environment of the processes.
        remote_args: Further settings for Ray.
    """

    group: Group
    is_actor: bool
    cpus: float
    gpus: float
    least: int = 1
    most: int | None = None
    initial: int | None = None
    max_calls: int | None = None
    runtime_env: dict[str, Any] | None = None
    remote_args: dict[str, Any] = field(default_factory=dict)


class RayDataEngine:
    """Runs segments of a plan as datasets.

    Args:
        worker_spec: What workers need.
        placements: How each group runs.
        nodes: The machines that may be used.
        retries: How often a task is tried again after its stage raised.
    """

    def __init__(
        self,
        worker_spec: WorkerSpec,
        placements: dict[int, RayDataPlacement],
        nodes: Sequence[ClusterNode],
        retries: int,
    ) -> None:
        self.workers = max(1, int(sum(n.cpus for n in nodes)))
        self._worker_spec, self._placements, self._retries = worker_spec, placements, retries
        self._mailbox = worker_spec.mailbox
        self._avoid = others(nodes)
        self._executor: Any = None

    def operator(self, group: Group, inside: frozenset[int]) -> OperatorSpec:
        """What the workers of a group need."""
        return self._worker_spec.operator(group, inside, retries=self._retries)

    def take(self, wait_s: float) -> list[bytes]:
        """The records that have arrived."""
        return self._mailbox.take(wait_s)

    def carry(self, groups: Sequence[Group], operators: Sequence[OperatorSpec], parcels: list[Parcel]) -> None:
        """Execute one dataset: the parcels, through all operators."""
        import ray
        from ray.data.context import DataContext

        log = logging.getLogger("ray.data")
        level = log.level
        log.setLevel(logging.CRITICAL)
        before = DataContext.get_current()
        context = before.copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.target_max_block_size = 1  # every row is a separate block, so that it can go to any worker
        context.target_min_block_size = 1
        DataContext._set_current(context)
        try:
            dataset = ray.data.from_blocks([row_of(p) for p in parcels])
            for place, (group, spec) in enumerate(zip(groups, operators, strict=True)):
                dataset = self._mapped(dataset, self._placements[group.index], spec, place)
            self._keep_executor_of(dataset)
            for _ in dataset.iter_internal_ref_bundles():
                pass  # the driver has received the results as records
        except Exception as error:
            raise _engine_error(error) from error
        finally:
            self._executor = None
            DataContext._set_current(before)
            log.setLevel(level)

    def abort(self) -> None:
        """Stop the dataset that is being executed."""
        executor = self._executor
        if executor is not None:
            executor.shutdown(force=True)

    def _keep_executor_of(self, dataset: Any) -> None:
        """Keep the object that executes the dataset: Ray Data itself exposes it only after the first block."""
        create = getattr(dataset, "_create_executor", None)
        if create is None:  # another version of Ray: there a stopped run ends once its tasks have ended
            return

        def kept() -> Any:
            self._executor = create()
            return self._executor

        dataset._create_executor = kept

    def _mapped(self, dataset: Any, placement: RayDataPlacement, spec: OperatorSpec, place: int) -> Any:
        from ray.data import ActorPoolStrategy, TaskPoolStrategy

        # Ray Data fuses neighbours with equal requests, but the plan decides what runs in one worker, and several
        # workers must be able to process the many outputs of one task. So requests of neighbours differ a little.
        cpus = max(placement.cpus - A_LITTLE_CPU * (place % 2), 0.0)
        options: dict[str, Any] = {"num_cpus": cpus, "batch_format": "pyarrow", "batch_size": 1}
        if placement.gpus:
            options["num_gpus"] = placement.gpus
        if placement.runtime_env:
            options["runtime_env"] = placement.runtime_env
        if self._avoid:
            options["label_selector"] = {"ray.io/node-id": f"!in({', '.join(self._avoid)})"}
        options |= placement.remote_args
        slot = self._mailbox.slot
        if placement.is_actor:
            if placement.most == placement.least:
                actors = ActorPoolStrategy(size=placement.least)
            else:
                actors = ActorPoolStrategy(
                    min_size=placement.least, max_size=placement.most, initial_size=placement.initial
                )
            return dataset.map_batches(OperatorActor, fn_constructor_args=(spec, slot), compute=actors, **options)
        if placement.max_calls:
            options["max_calls"] = placement.max_calls
        pool = TaskPoolStrategy(size=placement.most)
        return dataset.map_batches(operator_task, fn_args=(spec, slot), compute=pool, **options)


class OperatorActor:
    """An operator that lives as long as its actor."""

    def __init__(self, spec: OperatorSpec, slot: Slot) -> None:
        self._operator = _operator(spec, slot)

    def __call__(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Process the parcels in these rows."""
        for parcel in parcels_in(rows):
            for made in self._operator.work(parcel):
                yield row_of(made)

    def __del__(self) -> None:
        operator = getattr(self, "_operator", None)
        if operator is not None:
            operator.close()


_HERE: dict[tuple[str, int], Operator] = {}
"""The operators of one run in this process, which runs many Ray tasks."""


def operator_task(rows: pa.Table, spec: OperatorSpec, slot: Slot) -> Iterator[pa.Table]:
    """Process the parcels in these rows, as a Ray task."""
    key = (spec.run, spec.group)
    if key not in _HERE:
        for old in [k for k in _HERE if k[0] != spec.run]:
            del _HERE[old]
        _HERE[key] = _operator(spec, slot)
    for parcel in parcels_in(rows):
        for made in _HERE[key].work(parcel):
            yield row_of(made)


def _operator(spec: OperatorSpec, slot: Slot) -> Operator:
    import ray

    here = ray.get_runtime_context()
    gpu_ids = tuple(int(i) for i in ray.get_gpu_ids() if str(i).isdigit())  # parts of a card have names instead
    return Operator(spec, slot, WorkerMetadata(here.get_worker_id(), spec.places.scratch, gpu_ids))


def row_of(parcel: Parcel) -> pa.Table:
    """A parcel as a row of a dataset, without a copy of its body."""
    body = pa.py_buffer(b"") if parcel.body is None else parcel.body
    head = pickle.dumps((parcel.body is not None, replace(parcel, body=None)))
    offsets = pa.py_buffer(struct.pack("=qq", 0, body.size))
    column = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, body])
    return pa.table({"head": pa.array([head], pa.large_binary()), "body": column})


def parcels_in(rows: pa.Table) -> Iterator[Parcel]:
    """The parcels in the rows of a dataset."""
    for head, body in zip(rows["head"], rows["body"], strict=True):
        has_body, parcel = pickle.loads(head.as_buffer())
        yield replace(parcel, body=body.as_buffer()) if has_body else parcel


def _engine_error(error: Exception) -> Exception:
    """A short error for what went wrong in Ray itself, not in a stage."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    message = lines[-1] if lines else type(error).__name__
    died = "Died" in type(error).__name__ or "WorkerCrashed" in type(error).__name__ or "died" in str(error)
    if died:
        return WorkerDiedError(f"a worker of Ray Data died: {message}")
    return StageError(f"Ray Data failed: {type(error).__name__}: {message}")
