"""The worker's side: runs the stages of one group on one task, the same way in every engine."""

from __future__ import annotations

import copy
import json
import logging
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tamis.backends.children import Children
from tamis.backends.payload import Envelope, enclose, encode_payload
from tamis.errors import DataError, PlanError, TamisError, redacted
from tamis.plan import END, Group, Plan
from tamis.runs.directory import StoredOutput
from tamis.runs.drops import DropLog
from tamis.runs.publication import remove_unpublished
from tamis.runs.stats import StageStats
from tamis.stages.base import Emission, NodeInfo, ProcessingStage, WorkerMetadata, emissions
from tamis.stages.emit import DROPPED, MAIN, BadRows, Drop, Emit, Publish
from tamis.stages.spill import spill
from tamis.tasks import DocumentBatch, Task
from tamis.tasks.base import StagePerf, digest
from tamis.tasks.storage import temporary_beside

NO_REASON = "no reason given"

CARRIED_BYTES = 64 * 2**20
"""Memory that the outputs of one assignment may take before further ones are set down on disk."""

_LOG = logging.getLogger("tamis")


@dataclass(frozen=True)
class Failure:
    """Why a task could not be done.

    Args:
        stage: The stage that raised.
        error: The exception's type and message.
        frames: The traceback, without tamis's own frames.
        permanent: Whether trying again is of no use (the same bytes fail again).
        died: Whether the worker died with it.
        exception: The exception itself, where it can travel.
    """

    stage: str
    error: str
    frames: str = ""
    permanent: bool = False
    died: bool = False
    exception: BaseException | None = None


def cannot_travel(stage: str, error: Exception) -> Failure:
    """The failure of a task that cannot be sent from one process to another."""
    words = f"a task cannot be sent between processes: {type(error).__name__}: {error}"
    return Failure(stage, words, permanent=True)


@dataclass
class Outcome:
    """What became of one task, or batch of tasks, in one group.

    Args:
        outputs: Tasks made, each addressed to a vertex (:data:`~tamis.plan.END` for the end of the pipeline).
        published: Files to publish.
        stats: What each vertex did.
        failure: Set if it failed; then nothing else counts.
        seconds: How long it took.
    """

    outputs: list[Envelope] = field(default_factory=list)
    published: list[Publish] = field(default_factory=list)
    stats: dict[int, StageStats] = field(default_factory=dict)
    failure: Failure | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class GroupSpec:
    """What a worker needs to know of a group: its stages and the ways between them."""

    entry: int
    stages: dict[int, ProcessingStage[Any, Any]]
    names: dict[int, str]
    edges: dict[int, dict[str, int]]

    @classmethod
    def of(cls, plan: Plan, group: Group) -> GroupSpec:
        """Cut the group out of the plan."""
        inside = [plan.vertices[i] for i in group.vertices]
        return cls(
            group.entry,
            {v.index: v.stage for v in inside},
            {v.index: v.name for v in inside},
            {v.index: dict(v.edges) for v in inside},
        )


@dataclass(frozen=True)
class RunPaths:
    """Directories of the run that workers write to."""

    scratch: str = ""
    quarantine: str = ""
    outputs: str = ""
    drops: str = ""


class GroupRunner:
    """Runs one group in one worker.

    Args:
        spec: The group.
        worker: The worker it runs in.
        places: Where in the run directory it puts rows that could not be read and outputs.
    """

    def __init__(self, spec: GroupSpec, worker: WorkerMetadata, places: RunPaths) -> None:
        self._spec, self._worker = spec, worker
        self._scratch, self._quarantine, self._outputs = places.scratch, places.quarantine, places.outputs
        self._drops, self._drop_log = places.drops, DropLog()
        self._carried = 0
        self._stages = {i: _own_copy(s) for i, s in spec.stages.items()}
        for index, stage in self._stages.items():
            stage.foresee([self._stages[i] for i in _way_from(index, spec)])
        self._ready = False
        self._outcome = Outcome()
        self._at = spec.entry
        self._bad: dict[int, list[dict[str, Any]]] = {}
        self._no_rows: set[int] = set()  # vertices that make files or other things of their rows

    def run(self, tasks: list[Task[Any]]) -> Outcome:
        """Work on a task (or a batch for the entry stage); never raises for what a stage does."""
        began = time.perf_counter()
        self._outcome, self._bad, self._carried, self._drop_log = Outcome(), {}, 0, DropLog()
        try:
            if not self._ready:
                self._set_up()
                began = time.perf_counter()  # what is done once per worker says nothing of the next task
            self._feed(self._spec.entry, [_own_task(t) for t in tasks])
            self._write_quarantine(tasks[0].task_id)
            self._write_drops(tasks[0].task_id)
        except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
            failed = Outcome(failure=self._failure(error))
            for stage in self._stages.values():
                stage.take_metrics()
            for item in self._outcome.published:
                remove_unpublished(item)
            self._outcome = failed
        self._outcome.seconds = time.perf_counter() - began
        return self._outcome

    def set_up(self) -> Failure | None:
        """Set the stages up before the first task; returns what went wrong."""
        try:
            self._set_up()
        except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
            return self._failure(error)
        return None

    def close(self) -> None:
        """Tear the stages down."""
        if not self._ready:
            return
        self._ready = False
        for index, stage in self._stages.items():
            try:
                stage.teardown()
            except Exception:  # noqa: BLE001 - the work is done; the other stages are torn down all the same
                _LOG.exception("stage %r raised in teardown()", self._spec.names[index])

    def _set_up(self) -> None:
        if self._ready:
            return
        for index, stage in self._stages.items():
            self._at = index
            stage.setup(self._worker)
        self._ready = True

    def _feed(self, vertex: int, tasks: list[Task[Any]]) -> None:
        """Give tasks to a vertex and follow what it makes, depth first, so that little is held at a time."""
        stage, stats = self._stages[vertex], self._stats(vertex)
        stats.tasks_in += len(tasks)
        stats.bytes_in += sum(t.nbytes for t in tasks)
        items = sum(t.num_items for t in tasks)
        rows_before = stats.rows_out + stats.rows_dropped + stats.quarantined
        results = self._results(stage, tasks)
        children: Children | None = None
        while True:
            self._at = vertex
            began = time.perf_counter()
            try:
                parent, item = next(results)
            except StopIteration:
                break
            finally:
                stats.seconds += time.perf_counter() - began
            if children is None or children.parent is not parent:
                self._end(vertex, stats, children)
                children = Children(parent)
            self._handle(vertex, stats, children, item)
        for metric, value in stage.take_metrics().items():
            stats.custom[metric] = stats.custom.get(metric, 0) + value
        self._end(vertex, stats, children)
        accounted = stats.rows_out + stats.rows_dropped + stats.quarantined - rows_before
        self._count_rows(vertex, stats, items, accounted, all(isinstance(t, DocumentBatch) for t in tasks))

    def _count_rows(self, vertex: int, stats: StageStats, items: int, accounted: int, are_rows: bool) -> None:
        """Rows that came in. Of files it is known only afterwards; rows that just went missing are counted too."""
        if vertex in self._no_rows or self._stages[vertex].makes_other_rows:
            stats.rows_in += items
        elif are_rows:
            stats.rows_in += items
            if items > accounted:
                stats.dropped[NO_REASON] = stats.dropped.get(NO_REASON, 0) + items - accounted
        else:
            stats.rows_in += accounted

    def _results(
        self, stage: ProcessingStage[Any, Any], tasks: list[Task[Any]]
    ) -> Iterator[tuple[Task[Any], Emission]]:
        """What a stage makes of its tasks, one thing at a time, each with the task it was made of."""
        if not stage.supports_batch_processing():
            for task in tasks:
                for item in emissions(stage.process(task)):
                    yield task, item
            return
        items = list(emissions(stage.process_batch(tasks)))
        if len(items) == len(tasks) and all(isinstance(i, Task) for i in items):
            yield from zip(tasks, items, strict=True)  # as many out as in: each is made of the one in its place
            return
        together = copy.copy(tasks[0])
        together.task_id = digest(*(t.task_id for t in tasks))
        for item in items:
            yield together, item

    def _handle(self, vertex: int, stats: StageStats, children: Children, item: Emission) -> None:
        if isinstance(item, Publish):
            self._outcome.published.append(item)
            self._no_rows.add(vertex)
            if self._stages[vertex].is_sink_stage:
                stats.files += 1
        elif isinstance(item, BadRows):
            stats.quarantined += len(item.rows)
            self._bad.setdefault(vertex, []).extend(
                {"path": redacted(r.path), "line": r.line, "byte": r.byte, "problem": r.problem, "raw": _shown(r.raw)}
                for r in item.rows
            )
        elif isinstance(item, Drop):
            if not len(item.rows):
                return  # nothing was dropped after all, so that is no reason to speak of
            stats.dropped[item.reason] = stats.dropped.get(item.reason, 0) + len(item.rows)
            if self._drops:
                self._drop_log.add(self._spec.names[vertex], item)
            if DROPPED in self._spec.edges[vertex]:
                children.dropped.append(self._dropped_rows(vertex, item))
        else:
            port, made = (item.port, item.task) if isinstance(item, Emit) else (MAIN, item)
            for child in children.add(port, made):
                self._pass_on(vertex, stats, children.parent, *child)

    def _end(self, vertex: int, stats: StageStats, children: Children | None) -> None:
        """No more comes of a task: pass on what was held back."""
        if children is None:
            return
        for child in children.end():
            self._pass_on(vertex, stats, children.parent, *child)

    def _pass_on(
        self, vertex: int, stats: StageStats, parent: Task[Any], port: str, made: Task[Any], ordinal: int | None
    ) -> None:
        """Give a task its identity and send it on its way."""
        target = self._spec.edges[vertex].get(port)
        if target is None:
            if port not in (MAIN, DROPPED):
                raise PlanError(f"stage {self._spec.names[vertex]!r} sent a task to {port!r}, which leads nowhere")
            return
        child = copy.copy(made)
        if not isinstance(child, DocumentBatch):
            self._no_rows.add(vertex)
        child.task_id = digest(parent.task_id, self._spec.names[vertex], port, ordinal)
        child.order = parent.order if ordinal is None else (*parent.order, ordinal)
        child._metadata = dict(child._metadata or parent._metadata)
        child.dataset_name = child.dataset_name or parent.dataset_name
        if port != DROPPED:
            stats.tasks_out += 1
            stats.rows_out += child.num_items
            stats.bytes_out += child.nbytes
            child._stage_perf = [
                *parent._stage_perf,
                StagePerf(self._spec.names[vertex], stats.seconds, parent.num_items),
            ]
        if isinstance(child, DocumentBatch) and not child.num_items:
            return  # nothing left to work on
        if target in self._stages:
            self._feed(target, [child])
        else:
            self._outcome.outputs.append(self._enclosed(target, child))

    def _enclosed(self, target: int, task: Task[Any]) -> Envelope:
        """What leaves the group. Data at the end of the pipeline is set down here, not carried to the driver."""
        if isinstance(task, DocumentBatch):
            task.data = task.data  # rows that are only selected are copied together here: the others go
        envelope = enclose(task, target)
        if target == END and self._outputs and (isinstance(task, DocumentBatch) or task.nbytes > 2**16):
            published = spill(task, self._outputs)
            self._outcome.published.append(published)
            envelope.payload, envelope.nbytes = StoredOutput(published.final), 0
        elif target != END and self._carried + envelope.nbytes > CARRIED_BYTES and self._scratch:
            # Many children at once: what is more than a worker should carry is set down until it is taken up.
            folder = os.path.join(self._scratch, "payloads")
            os.makedirs(folder, exist_ok=True)
            envelope.payload, envelope.nbytes = encode_payload(task, folder), 0
        self._carried += envelope.nbytes
        return envelope

    def _dropped_rows(self, vertex: int, drop: Drop) -> DocumentBatch:
        import pyarrow as pa

        from tamis.arrays import arrow_array, text_array

        table, selection = drop.batch.selection
        table = table.take(arrow_array(selection[drop.rows]))
        for column, value in (("dropped_by", self._spec.names[vertex]), ("dropped_because", drop.reason)):
            if column in table.column_names:
                table = table.drop_columns([column])
            table = table.append_column(column, pa.repeat(text_array([value])[0], table.num_rows))
        return drop.batch.with_table(table)

    def _write_quarantine(self, task_id: str) -> None:
        for vertex, rows in self._bad.items():
            name = self._spec.names[vertex]
            final = quarantine_file(self._quarantine, name, task_id)
            with temporary_beside(final) as temporary, open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123 - plain open is enough
                for row in rows:
                    file.write(json.dumps({"stage": name, "task": task_id, **row}, ensure_ascii=False) + "\n")
            self._outcome.published.append(Publish(temporary, final, 0, os.path.getsize(temporary)))

    def _write_drops(self, task_id: str) -> None:
        if self._drop_log:
            final = os.path.join(self._drops, f"{self._spec.entry}-{task_id}.parquet")
            try:
                with temporary_beside(final) as temporary:
                    self._drop_log.write(temporary)
            except OSError as e:
                raise OSError(
                    f"the drop ledger {final} cannot be written: {e}. Free some space, put the run directory "
                    "elsewhere, or do without it: run(drop_ledger=False), tamis run --no-drop-ledger"
                ) from e
            self._outcome.published.append(Publish(temporary, final, 0, os.path.getsize(temporary)))

    def _stats(self, vertex: int) -> StageStats:
        stats = self._outcome.stats.get(vertex)
        if stats is None:
            stats = self._outcome.stats[vertex] = StageStats(self._spec.names[vertex])
        return stats

    def _failure(self, error: Exception) -> Failure:
        return failure_of(self._spec.names.get(self._at, "?"), error)


def failure_of(stage: str, error: Exception) -> Failure:
    """What is passed on of an exception that a stage raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    shown = "".join(traceback.format_list(frames))
    permanent = isinstance(error, DataError | PlanError)
    words = str(error) if isinstance(error, TamisError) else f"{type(error).__name__}: {error}"
    return Failure(stage, words, shown, permanent, exception=error if isinstance(error, TamisError) else None)


def _way_from(vertex: int, spec: GroupSpec) -> Iterator[int]:
    """The stages of the group that follow one on the main way."""
    following = spec.edges[vertex].get(MAIN)
    while following in spec.stages:
        yield following
        following = spec.edges[following].get(MAIN)


def _own_task(task: Task[Any]) -> Task[Any]:
    """A copy to work on: the driver keeps the task as it was, for another try."""
    own = copy.copy(task)
    own._metadata = dict(task._metadata)
    return own


def _own_copy(stage: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any]:
    """A copy for one worker, which may keep state on it; what cannot be copied is shared."""
    try:
        return copy.deepcopy(stage)
    except Exception:  # noqa: BLE001 - locks, connections and the like raise whatever they like
        return copy.copy(stage)


def set_up_on_node(spec: GroupSpec, node: NodeInfo, worker: WorkerMetadata) -> None:
    """Call ``setup_on_node`` of each stage, once per machine."""
    for stage in spec.stages.values():
        stage.setup_on_node(node, worker)


_OURS = os.sep + os.path.join("tamis", "backends") + os.sep


def _is_ours(filename: str) -> bool:
    return _OURS in filename or filename.endswith(os.path.join("tamis", "stages", "base.py"))


def _shown(raw: bytes) -> str:
    return raw[:1000].decode("utf-8", "backslashreplace")


def quarantine_file(directory: str, stage: str, task_id: str) -> str:
    """The quarantine's file for what a stage could not do of a task."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in stage)
    return os.path.join(directory, f"{name}-{task_id}.jsonl")


__all__ = [
    "Failure",
    "GroupRunner",
    "GroupSpec",
    "Outcome",
    "RunPaths",
    "cannot_travel",
    "failure_of",
    "quarantine_file",
    "set_up_on_node",
]
