"""Runs one stage of a past run again on one of its batches, in this process: what it makes, drops or raises.

The batch is rebuilt from the source, through the stages before. Nothing is recorded, and no file stays.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from tamis.backends.group_spec import RunPaths
from tamis.backends.isolation import Isolation
from tamis.backends.partial_run import PartialRun, stages_after
from tamis.backends.payload import decode_payload
from tamis.backends.stage_calls import calls_of, results_of
from tamis.errors import DataError, PlanError, StageError, did_you_mean
from tamis.plan import Plan
from tamis.runs.failures import failures
from tamis.runs.recorded_tasks import RecordedBatch, recorded_batches
from tamis.stages.base import SourceStage, WorkerMetadata
from tamis.tasks import TableTask, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order, parse_order

__all__ = ["Replayed", "batches_of_stage", "replay"]

Debugger = Literal["error", "start"]

EXAMPLES: Final = 5


@dataclass
class Replayed:
    """What a stage did with a batch.

    Args:
        stage: The stage.
        tasks: The places of the tasks of the batch.
        rows_in: Rows that the stage was given.
        rows_out: Rows that it made.
        made: What it made: ``kind``, ``rows``, ``columns``, and ``examples`` of rows.
        dropped: Rows that it dropped: ``row``, ``reason``, ``score``.
        files: Names of files that it wrote. They are removed.
        error: What it raised, with the user's own frames; empty if nothing.
        recorded: What the run counted for the stage, for all stages of the batch: ``rows_in``, ``rows_out``, ...
    """

    stage: str
    tasks: tuple[str, ...]
    rows_in: int = 0
    rows_out: int = 0
    made: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    error: str = ""
    recorded: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def batches_of_stage(plan: Plan, run_dir: str, stage: str) -> list[RecordedBatch]:
    """The batches that a stage was given, with those of the stages that run in the same worker."""
    vertex = _vertex(plan, stage)
    entry = plan.vertices[plan.groups[plan.group_of[vertex]].entry].name
    return sorted(recorded_batches(run_dir, entry), key=lambda batch: batch.places)


def replay(plan: Plan, run_dir: str, stage: str, task: str, debugger: Debugger | None = None) -> Replayed:
    """Run a stage again on one batch.

    Args:
        plan: The plan of the pipeline.
        run_dir: The run's directory.
        stage: The stage, as in the plan; the last part of its name is enough if only one has it.
        task: The id or the place of the batch, or of one of its tasks, as ledger and reports show them.
        debugger: Whether to open Python's debugger where the stage raises, or before its first line.
    """
    vertex = _vertex(plan, stage)
    batches = batches_of_stage(plan, run_dir, stage)
    batch = next((batch for batch in batches if batch.is_called(task)), None)
    name = plan.vertices[vertex].name
    if batch is None:
        places = [place for found in batches for place in found.places]
        shown = ", ".join(places[:10]) + (", ..." if len(places) > 10 else "")
        raise DataError(
            f"the stage {name!r} was given no task {task!r}.{did_you_mean(task, places)}",
            path=run_dir,
            hint=f"Its tasks are {shown}." if places else "The ledger has none: did its workers come to an end?",
        )
    if any(v.is_source and vertex in stages_after(plan, v.index) for v in plan.vertices[1:]):
        raise PlanError(
            f"{name!r} comes after a stage that brings rows of all tasks together, so its tasks cannot be made again "
            "from the source alone. Replay a stage before that, or run the pipeline with --workers 0 and a breakpoint"
        )
    with tempfile.TemporaryDirectory(prefix="tamis-replay-") as folder:
        scratch, quarantine, drops = (os.path.join(folder, part) for part in ("scratch", "quarantine", "drops"))
        places_of_run = RunPaths(scratch, quarantine, "", drops)
        died = tuple(dict.fromkeys(one.stage for one in failures(run_dir) if one.error == "WorkerDied"))
        tasks = _rebuilt(plan, vertex, batch, places_of_run, Isolation(died))
        if debugger is not None:
            _debug(plan, vertex, tasks, scratch, debugger)
        return _run(plan, vertex, tasks, batch, places_of_run)


def _vertex(plan: Plan, stage: str) -> int:
    names = [v.name for v in plan.vertices]
    found = [n for n in names if n == stage] or [n for n in names if n.rpartition(" / ")[2] == stage]
    if len(found) != 1:
        problem = f"several stages are named {stage!r}" if found else f"the pipeline has no stage {stage!r}"
        raise PlanError(f"{problem}.{'' if found else did_you_mean(stage, names)} It has {', '.join(found or names)}")
    vertex = names.index(found[0])
    if plan.vertices[vertex].is_source:
        raise PlanError(f"{found[0]!r} lists tasks and is given none. Replay a stage after it")
    return vertex


def _rebuilt(plan: Plan, vertex: int, batch: RecordedBatch, places: RunPaths, isolation: Isolation) -> list[Task[Any]]:
    """The tasks that the stage was given, made again from the source, without rows that a stage before fails on."""
    source = plan.vertices[0]
    if not isinstance(source.stage, SourceStage):
        raise PlanError("the run was given tasks by a program (initial_tasks), so a batch cannot be made again")
    wanted = set(batch.sources)
    found: list[Task[Any]] = []
    for task in source.stage.splits(""):
        task_id = digest(task.get_deterministic_id(), "", source.name)
        if task_id in wanted:
            task.task_id, task.order = task_id, parse_order(batch.sources[task_id])
            found.append(task)
    if len(found) < len(wanted):
        raise DataError("the input files of this batch have changed since the run, or are gone")
    entry = plan.groups[plan.group_of[vertex]].entry
    first = next(iter(source.edges.values()))
    if entry != first:
        with PartialRun(plan, places, until=entry) as before:
            found = [task for task in _outputs(before, first, found, isolation) if _is_of(task, batch)]
    if entry != vertex:
        with PartialRun(plan, places, until=vertex) as before:
            found = _outputs(before, entry, found, isolation)
    return found


def _is_of(task: Task[Any], batch: RecordedBatch) -> bool:
    return format_order(task.order) in batch.places


def _outputs(part: PartialRun, vertex: int, tasks: list[Task[Any]], isolation: Isolation) -> list[Task[Any]]:
    outcome = part.run(vertex, tasks, isolation if isolation.died else None)
    if outcome.failure is not None and not isolation.died:
        outcome = part.run(vertex, tasks, isolation)
    if outcome.failure is not None:
        raise StageError(f"stage {outcome.failure.stage!r}, before the one to replay: {outcome.failure.error}")
    outcome.discard()
    return [decode_payload(envelope.payload) for envelope in outcome.outputs]


def _debug(plan: Plan, vertex: int, tasks: list[Task[Any]], scratch: str, debugger: Debugger) -> None:
    """Call the stage itself, without anything between it and the debugger."""
    import pdb

    stage = copy.deepcopy(plan.vertices[vertex].stage)
    if stage.is_async:
        raise PlanError(
            f"{stage.name!r} is async: the debugger is for stages that are not. Leave out --debug and --pdb"
        )
    stage.setup(WorkerMetadata(scratch=scratch))

    def call() -> None:
        calls = list(calls_of(stage, [copy.copy(task) for task in tasks]))
        for _ in results_of(calls, (call.begin(stage) for call in calls), as_lists=stage.supports_batch_processing()):
            pass

    try:
        if debugger == "start":
            pdb.runcall(call)
        else:
            call()
    except Exception as error:  # noqa: BLE001 - whatever a stage raises is what to look at
        pdb.post_mortem(error.__traceback__)
    finally:
        stage.teardown()


def _run(plan: Plan, vertex: int, tasks: list[Task[Any]], batch: RecordedBatch, places: RunPaths) -> Replayed:
    name = plan.vertices[vertex].name
    told = Replayed(name, batch.places, sum(task.num_items for task in tasks), recorded=batch.counts.get(name, {}))
    if not tasks:
        return told
    with PartialRun(plan, places, alone=True) as part:
        outcome = part.run(vertex, tasks)
    if outcome.failure is not None:
        told.error = "\n".join(filter(None, [outcome.failure.error, outcome.failure.frames.rstrip()]))
        return told
    for envelope in outcome.outputs:
        made = decode_payload(envelope.payload)
        told.rows_out += made.num_items
        told.made.append(_made(made))
    for table in outcome.drops:
        for row in table.to_pylist():
            row_name = f"{row['source']}:{row['position']}{row['part'] or ''}"
            score = row["score"] if row["score"] is not None else row["score_text"]
            told.dropped.append({"row": row_name, "reason": row["reason"], "score": score})
    told.files = [item.final for item in outcome.published if not item.final.startswith(os.path.dirname(places.drops))]
    outcome.discard()
    return told


def _made(task: Task[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": type(task).__name__, "rows": task.num_items, "columns": [], "examples": []}
    if isinstance(task, TableTask):
        found["columns"] = task.get_columns()
        found["examples"] = task.data.slice(0, EXAMPLES).to_pylist()
    return found
