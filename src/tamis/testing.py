"""Helpers for tests of one's own stages and pipelines.

:func:`run_stage` runs a stage on a few rows as a real run would, :func:`assert_batches_equal` says where two results
differ, :func:`run_everywhere` holds a pipeline to the rule that its result does not depend on who ran it.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import pyarrow as pa

from tamis.backends.local import LocalExecutor
from tamis.errors import AllSetAsideError
from tamis.pipeline import Pipeline
from tamis.runs.report import load_summary
from tamis.runs.result import RunResult
from tamis.runs.stats import StageStats
from tamis.stages.base import ProcessingStage, SourceStage
from tamis.stages.flow import BranchStage, Dropped
from tamis.stages.io.card_files import CARD_FILES
from tamis.stages.io.output_directory import MARKER
from tamis.tasks import DocumentBatch, TableTask, Task

__all__ = ["DroppedRow", "StageRun", "assert_batches_equal", "run_everywhere", "run_stage"]

Row = dict[str, Any]

Batches: TypeAlias = Task[Any] | pa.Table | Iterable[Task[Any]] | Iterable[Row]
"""Data for a test: a batch, an Arrow table, several tasks, or plain rows."""

_DROPPED_HERE = "tamis.testing.dropped"


class DroppedRow(NamedTuple):
    """A row that a stage left out, and why."""

    row: Row
    reason: str


class StageRun(list[Row]):
    """The rows that came out of a stage: a plain list, with what else there is to know.

    Attributes:
        tasks: The tasks they came in; tasks without rows (files, say) are only here.
        dropped: The rows left out with a reason.
        quarantined: Rows that could not be read, with file, position and problem; at most 20.
        stages: What was counted. A composite stage has an entry for each of its parts.
    """

    def __init__(
        self,
        tasks: Sequence[Task[Any]],
        dropped: Sequence[DroppedRow],
        quarantined: Sequence[Row],
        stages: Sequence[StageStats],
    ) -> None:
        super().__init__(_rows(tasks))
        self.tasks, self.dropped = list(tasks), list(dropped)
        self.quarantined, self.stages = list(quarantined), list(stages)


def run_stage(stage: ProcessingStage[Any, Any], given: Batches, *, workers: int = 0) -> StageRun:
    """Run one stage as a pipeline of its own, with the real runner: set up, run, torn down.

    Args:
        stage: The stage. It may be a composite, a shuffle or a reader.
        given: What it is given. Rows come as one batch.
        workers: How many workers; with 0 it runs in this thread, so that breakpoints work.

    >>> from tamis.stages.text.filters import ScoreFilter, WordCountFilter
    >>> run = run_stage(ScoreFilter(WordCountFilter(min_words=2)), [{"text": "one"}, {"text": "one two"}])
    >>> run
    [{'text': 'one two'}]
    >>> run.dropped
    [DroppedRow(row={'text': 'one'}, reason='word_count outside 2..100000')]
    """
    # What leaves a branch or a source goes where that says; of all others the dropped rows are caught as well.
    caught = stage if isinstance(stage, BranchStage | SourceStage) else Dropped(stage, to=[_MarkDropped()])
    with tempfile.TemporaryDirectory(prefix="tamis-testing-", ignore_cleanup_errors=True) as folder:
        executor, run_dir = LocalExecutor(workers=workers, retries=0), f"{folder}/run"
        try:
            result = Pipeline(stage.name, stages=[caught]).run(
                executor, _tasks(given), run_dir=run_dir, progress="off", failure_budget=0
            )
            summary, tasks = result.summary, [_in_memory(task) for task in result]
        except AllSetAsideError:  # for a test, that is a result like any other
            summary, tasks = load_summary(run_dir), []
    dropped = [row for task in tasks if _DROPPED_HERE in task._metadata for row in _dropped_rows(task)]
    return StageRun(
        [task for task in tasks if _DROPPED_HERE not in task._metadata],
        dropped,
        summary.quarantine,
        [stats for stats in summary.stages if not stats.name.endswith(_MarkDropped.name)],
    )


def assert_batches_equal(left: Batches, right: Batches, *, check_order: bool = True) -> None:
    """Raise an :class:`AssertionError` that names the first difference between the rows of two results.

    How rows are cut into batches does not matter. Values must be equal and of the same kind (``1`` is not ``1.0``);
    a NaN is equal to a NaN.

    Args:
        left: One result.
        right: The other.
        check_order: Whether the rows must come in the same order.

    >>> assert_batches_equal(DocumentBatch({"n": [1, 2]}), [{"n": 1}, {"n": 2}])
    >>> assert_batches_equal([{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 3}])
    Traceback (most recent call last):
    AssertionError: row 1, column 'n':
      left:  2
      right: 3
    """
    ours, theirs = _rows(left), _rows(right)
    difference = _first_difference(ours, theirs) if check_order else _unordered_difference(ours, theirs)
    if difference:
        raise AssertionError(difference)


def run_everywhere(
    make_pipeline: Callable[[Path], Pipeline],
    *,
    initial_tasks: Sequence[Task[Any]] | None = None,
    check: Callable[[RunResult], None] | None = None,
    workers: int = 3,
) -> None:
    """Run a pipeline inline, on threads and on processes, with one worker and with several, and compare the results.

    The output tasks and the files written must be the same everywhere, ids and file names included.

    Args:
        make_pipeline: Makes the pipeline anew for each run. It is given an empty directory for what it writes.
        initial_tasks: Tasks for the first stage, when it does not make its own.
        check: Called with each result, while its files are there.
        workers: How many several are.

    >>> from tamis.stages.flow import Route
    >>> run_everywhere(lambda folder: Pipeline("p", stages=[Route("n > 1", {"true": [], "false": []})]),
    ...                initial_tasks=[DocumentBatch({"n": [1, 2]})], check=lambda result: print(result.rows), workers=2)
    2
    2
    2
    2
    2
    """
    first: _Result | None = None
    with tempfile.TemporaryDirectory(prefix="tamis-testing-", ignore_cleanup_errors=True) as base:
        for number, executor in enumerate(_executors(workers)):
            folder = Path(base, "written")  # the same for all, so that paths in the results can be compared
            folder.mkdir()
            tasks = None if initial_tasks is None else _tasks(initial_tasks)
            done = make_pipeline(folder).run(executor, tasks, run_dir=f"{base}/run-{number}", progress="off")
            if check is not None:
                check(done)
            result = _Result(executor.describe(), list(done), _files(folder))
            first = first or result
            difference = result.difference_to(first)
            if difference:
                raise AssertionError(f"{result.place} (left) and {first.place} (right) differ: {difference}")
            shutil.rmtree(folder)


class _MarkDropped(ProcessingStage[TableTask, TableTask]):
    name = "(dropped rows)"
    releases_gil: ClassVar[bool] = True

    def process(self, task: TableTask) -> TableTask:
        marked = task.with_table(task.data)
        marked._metadata[_DROPPED_HERE] = True
        return marked


class _Result(NamedTuple):
    """What a run made, for comparison with another."""

    place: str
    tasks: list[Task[Any]]
    files: dict[str, bytes]

    def difference_to(self, other: _Result) -> str:
        """The first difference, in words; empty when there is none."""
        if len(self.tasks) != len(other.tasks):
            return f"{len(self.tasks)} output tasks and {len(other.tasks)}"
        for number, (ours, theirs) in enumerate(zip(self.tasks, other.tasks, strict=True)):
            if (ours.task_id, ours.order) != (theirs.task_id, theirs.order):
                return f"output task {number} is {ours.task_id} at {ours.order} and {theirs.task_id} at {theirs.order}"
            with_rows = isinstance(ours, TableTask) and isinstance(theirs, TableTask)
            if with_rows and (found := _first_difference(_rows(ours), _rows(theirs))):
                return f"output task {number}, {found}"
            if not with_rows and not _same(ours.data, theirs.data):
                return f"output task {number} holds {ours.data!r} and {theirs.data!r}"
        for name in sorted({*self.files, *other.files}):
            if self.files.get(name) != other.files.get(name):
                missing = " (it is only there once)" if name not in self.files or name not in other.files else ""
                return f"the file {name}{missing}"
        return ""


def _executors(workers: int) -> list[LocalExecutor]:
    return [
        LocalExecutor(workers=0),
        LocalExecutor(workers=1, substrate="threads"),
        LocalExecutor(workers=workers, substrate="threads"),
        LocalExecutor(workers=1, substrate="processes"),
        LocalExecutor(workers=workers, substrate="processes"),
    ]


def _files(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in (MARKER, *CARD_FILES)]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _tasks(given: Batches) -> list[Task[Any]]:
    """Tasks to run on: copies without an identity, because a run gives its tasks one."""
    if isinstance(given, Task):
        return _tasks([given])
    if isinstance(given, pa.Table):
        return [DocumentBatch(given)]
    items = list(given)
    if not all(isinstance(item, Task) for item in items):
        return [DocumentBatch(_table(items))]
    tasks = [copy.copy(item) for item in items]
    for task in tasks:
        task.task_id, task.order = "", ()
    return tasks


def _table(rows: list[Any]) -> pa.Table:
    """Rows as a table that has every column of any of them."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})


def _rows(given: Batches) -> list[Row]:
    if isinstance(given, Task):
        return _rows([given])
    if isinstance(given, pa.Table):
        rows: list[Row] = given.to_pylist()
        return rows
    rows = []
    for item in given:
        if isinstance(item, Task):
            rows += item.data.to_pylist() if isinstance(item, TableTask) else []
        else:
            rows.append(dict(item))
    return rows


def _dropped_rows(task: Task[Any]) -> list[DroppedRow]:
    rows = _rows([task])
    ours = ("dropped_by", "dropped_because")
    return [DroppedRow({k: v for k, v in row.items() if k not in ours}, row["dropped_because"]) for row in rows]


def _in_memory(task: Task[Any]) -> Task[Any]:
    """The task with its table in memory, not in a file of the run that will be removed."""
    if not isinstance(task, TableTask):
        return task
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, task.data.schema) as writer:
        writer.write_table(task.data)
    return task.with_table(pa.ipc.open_stream(sink.getvalue()).read_all())


def _first_difference(left: list[Row], right: list[Row]) -> str:
    for number, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        for column in dict.fromkeys([*ours, *theirs]):
            if column not in ours or column not in theirs:
                return f"row {number}: only {'left' if column in ours else 'right'} has the column {column!r}"
            if not _same(ours[column], theirs[column]):
                return f"row {number}, column {column!r}:\n  left:  {ours[column]!r}\n  right: {theirs[column]!r}"
    if len(left) == len(right):
        return ""
    side, longer, shared = ("left", left, len(right)) if len(left) > len(right) else ("right", right, len(left))
    return f"left has {len(left)} rows, right {len(right)}. The first that only {side} has:\n  {longer[shared]!r}"


def _unordered_difference(left: list[Row], right: list[Row]) -> str:
    keys_left, keys_right = [_key(row) for row in left], [_key(row) for row in right]
    for sides, ours, keys, others in (
        (("left", "right"), left, keys_left, keys_right),
        (("right", "left"), right, keys_right, keys_left),
    ):
        only_here = Counter(keys) - Counter(others)
        for number, key in enumerate(keys):
            if key in only_here:
                return f"row {number} of {sides[0]} has no counterpart in {sides[1]}:\n  {ours[number]!r}"
    return ""


def _key(row: Row) -> str:
    """A text that is equal for equal rows: reprs tell 1 from 1.0 and write every NaN the same."""
    return repr(sorted(row.items()))


def _same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) or (left != left and right != right)
