"""Counts, records and publishes the results of tasks, whichever engine did the work.

The coordinator and the driver of external engines decide what is done when; both report it to a bookkeeper.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tamis.backends.contracts import FailurePolicy, Journal, Watcher
from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import Envelope, Maker, decode_payload, output_entry, output_from, release_payload
from tamis.backends.task_records import quarantine_file
from tamis.errors import FailureBudgetError, PlanError, StageError, TamisError, WorkerDiedError, redacted
from tamis.plan import END, Group, Plan
from tamis.plan.keys import group_keys
from tamis.runs.finished_work import FinishedBatch
from tamis.runs.set_aside import DATA, SetAsideTask
from tamis.runs.stats import StageStats
from tamis.tasks import FileGroup, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order

__all__ = ["ALWAYS_RAISE", "Bookkeeper", "setup_error", "stage_error"]

ALWAYS_RAISE = FailurePolicy("raise", "raise")


class Bookkeeper:
    """Counts, records and publishes the results of a run's tasks.

    Args:
        plan: The plan.
        journal: Where finished work is recorded and published.
        quarantine: The directory for tasks that are set aside; without one, a failure always ends the run.
        watcher: Receives messages for the user.
        failures: How many rows may fail.

    Attributes:
        stats: The counts of each stage, in the order of the plan.
        weight_fed: Bytes of input that the sources have listed.
        weight_done: Bytes of input that have been processed.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        quarantine: str = "",
        watcher: Watcher | None = None,
        failures: FailurePolicy | None = None,
    ) -> None:
        self.stats = [StageStats(v.name, internal=v.stage.internal) for v in plan.vertices]
        self.weight_fed = self.weight_done = 0
        self._plan, self._journal, self._quarantine, self._watcher = plan, journal, quarantine, watcher
        self._from_source = [_is_from_source(plan, g) for g in plan.groups]
        self._writes = [has_sink(plan, g) for g in plan.groups]
        self._done: Counter[int] = Counter()  # tasks by group
        self._set_aside: Counter[int] = Counter()
        self._worked: set[int] = set()  # groups that have made something
        self._first_problem = ""
        self._first_error: Exception | None = None
        self._failures, self._failed_rows = failures or FailurePolicy(), 0
        self._keys = group_keys(plan)
        self._vertices = {v.name: v.index for v in plan.vertices}
        self._input = 0  # of all tasks that the sources of the pipeline have listed
        self._numbers: dict[int, int] = {}  # the next number of each source

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def number(self, group: Group, task: Task[Any]) -> int:
        """The number of a task that the driver lists: the one it got in an earlier start of the run, or the next one.

        A file keeps its number when others are added or removed, and with it the names of the files made of it.
        """
        name = self._plan.vertices[group.entry].name
        known = self._journal.finished.numbers.get(name, {}) if not group.inputs else {}
        following = self._numbers.get(group.index)
        if following is None:
            following = 1 + max((number for some in known.values() for number in some), default=-1)
        content = (task.get_deterministic_id() if known else None) or ""
        if known.get(content):
            self._numbers[group.index] = following
            return known[content].popleft()
        self._numbers[group.index] = following + 1
        return following

    def fed(self, group: Group, task: Task[Any]) -> None:
        """A source has listed a task, or the first stage is given one."""
        if not group.inputs:
            self.weight_fed += task.weight
            self._input ^= int(digest(task.task_id, format_order(task.order)), 16)
        if group.is_source:
            stats = self.stats[group.entry]
            stats.tasks_out += 1
            stats.rows_out += task.num_items
        content = task.get_deterministic_id() if group.is_source and not group.inputs else None
        if content is not None:
            self._journal.fed(self._plan.vertices[group.entry].name, content, task.order[0], _input_files(task))

    def succeeded(
        self, group: Group, batch: Sequence[Envelope], outcome: Outcome, inside: Sequence[Envelope] = ()
    ) -> None:
        """A batch is done: count it, record it, publish its files. The caller sends its outputs on.

        Args:
            group: The group that ran it.
            batch: Its tasks.
            outcome: What became of them.
            inside: Outputs that an engine has sent on by itself.
        """
        finished = FinishedBatch(
            self.key(group, batch),
            self._plan.vertices[group.entry].name,
            [e.task_id for e in batch],
            outputs=[output_entry(e, self._plan) for e in (*outcome.outputs, *inside)],
            counts={self._plan.vertices[v].name: stats.record() for v, stats in outcome.stats.items()},
        )
        self._journal.record(finished, outcome.published, outcome.drops)
        if self._writes[group.index] and any(e.vertex != END for e in outcome.outputs):
            self._journal.flush()  # the outputs name files, which the next stage must find under these names
        self._count(group, batch, outcome.stats)
        if outcome.outputs or inside or outcome.published or any(s.dropped for s in outcome.stats.values()):
            self._worked.add(group.index)

    def recall(self, group: Group, batch: list[Envelope]) -> list[Envelope] | None:
        """What an earlier start of the run made of a batch; ``None`` if it has to be processed.

        The data of tasks between stages was not kept: if it is needed, the batch is processed again.
        """
        key = self.key(group, batch)
        finished = self._journal.finished.find(key, [e.task_id for e in batch])
        if finished is None:
            if self._journal.finished.is_needed_as_it_was(key):
                raise _cannot_repeat("output of the run is gone")
            return None
        made = self._outputs(group, batch, finished)
        counts = {self._vertices[name]: StageStats.from_record(name, kept) for name, kept in finished.counts.items()}
        self._journal.recalled(finished)
        if made or finished.files or any(stats.dropped for stats in counts.values()):
            self._worked.add(group.index)
        self._count(group, batch, counts, set_aside=finished.set_aside)
        return made

    def peek(self, group: Group, batch: list[Envelope]) -> list[Envelope] | None:
        """The same as :meth:`recall`, but nothing is counted yet."""
        finished = self._journal.finished.peek(self.key(group, batch), [e.task_id for e in batch])
        return None if finished is None else self._outputs(group, batch, finished)

    def _outputs(self, group: Group, batch: list[Envelope], finished: FinishedBatch) -> list[Envelope]:
        maker = Maker(group.index, batch)
        targets = [(self._vertices[entry["to"]] if entry["to"] else END, entry) for entry in finished.outputs]
        return [output_from(entry, vertex, maker) for vertex, entry in targets]

    def check_repetition(self, group: Group, batch: Sequence[Envelope]) -> None:
        """Refuse to process a batch again of which rows were run again separately: they would come out twice."""
        if self._journal.finished.was_retried(self.key(group, batch)):
            raise _cannot_repeat("the data that the run needs to go on was in memory only")

    def key(self, group: Group, batch: Sequence[Envelope]) -> str:
        """Identifies a batch: the same in every start of a run, as long as its input and the stages are the same."""
        # The tasks after a barrier are numbered; what they hold follows from all of the input.
        after_barrier = self._input if batch[0].order[:1] < (0,) else 0
        places = (f"{e.task_id}:{format_order(e.order)}" for e in batch)
        return digest(self._keys[group.index], after_barrier, *places)

    def _count(
        self, group: Group, batch: Sequence[Envelope], counts: Mapping[int, StageStats], *, set_aside: bool = False
    ) -> None:
        for vertex, stats in counts.items():
            self.stats[vertex].add(stats)
            self._failed_rows += stats.quarantined + stats.tasks_uncounted
        (self._set_aside if set_aside else self._done)[group.index] += len(batch)
        if self._from_source[group.index]:
            self.weight_done += sum(e.weight for e in batch)

    def output(self, envelope: Envelope) -> None:
        """A task has reached the end of the pipeline."""
        self._journal.output(envelope)

    def retried(self, group: Group, times: int = 1) -> None:
        """A batch was tried again."""
        self.stats[group.entry].retries += times

    def failed(
        self,
        group: Group,
        batch: Sequence[Envelope],
        failure: Failure,
        attempts: int,
        policy: FailurePolicy,
        store: Callable[[Envelope, str], None],
    ) -> None:
        """A batch has failed for good: raise, or set it aside.

        Args:
            group: The group that ran it.
            batch: Its tasks.
            failure: The cause.
            attempts: How often it was tried.
            policy: Whether to raise or to set it aside.
            store: Writes the data of a task to a file.
        """
        if policy.action(failure) == "raise" or not self._quarantine:
            raise stage_error(batch, failure, attempts)
        os.makedirs(self._quarantine, exist_ok=True)
        files: list[dict[str, Any]] = []
        for envelope in batch:
            record = quarantine_file(self._quarantine, failure.stage, envelope.task_id)
            aside = SetAsideTask(
                stage=failure.stage,
                first_stage=self._plan.vertices[group.entry].name,
                task=envelope.task_id,
                place=format_order(envelope.order),
                rows=envelope.rows,
                files=source_files(envelope),
                error="WorkerDied" if failure.died else failure.kind,
                message=failure.error,
                traceback=failure.frames,
                attempts=attempts,
                data=os.path.basename(record).removesuffix(".jsonl") + DATA,
                directory=self._quarantine,
            )
            store(envelope, os.path.join(self._quarantine, aside.data))
            files += aside.write()
        counts, rows = self._set_aside_counts(group, batch, failure)
        name = self._plan.vertices[group.entry].name
        records = {self._plan.vertices[v].name: stats.record() for v, stats in counts.items()}
        key, ids = self.key(group, batch), [e.task_id for e in batch]
        self._journal.record(FinishedBatch(key, name, ids, files, counts=records, set_aside=True), [])
        self._count(group, batch, counts, set_aside=True)
        self._first_problem = self._first_problem or f"stage {failure.stage!r}: {failure.error}"
        if self._first_error is None and not failure.died:
            self._first_error = stage_error(batch, failure, attempts)
        places = ", ".join(format_order(e.order) for e in batch[:3])
        shown = "an unknown number of rows" if rows is None else "1 row" if rows == 1 else f"{rows} rows"
        task = f"task {places}{_shown_files(source_files(batch[0]))}"
        self.tell(f"stage {failure.stage!r}: {task}, {shown}, is set aside in {self._quarantine}: {failure.error}")

    def has_worked(self, group: Group) -> bool:
        """Whether a group has made something: tasks, files or dropped rows."""
        return group.index in self._worked

    @property
    def has_result(self) -> bool:
        """Whether something has come to the end of the pipeline."""
        return bool(self._journal.outputs or self._journal.file_count)

    def check_budget(self) -> None:
        """End the run if more rows have failed than it allows."""
        read = max(stats.rows_in for stats in self.stats)
        if not self._failed_rows or not self._failures.exceeded(self._failed_rows, read):
            return
        self._journal.flush()
        worst = sorted(self.stats, key=lambda s: -s.quarantined - s.tasks_uncounted)
        named = ", ".join(f"{s.quarantined + s.tasks_uncounted} in {s.name!r}" for s in worst[:3] if s.quarantined)
        raise FailureBudgetError(
            f"{self._failed_rows} of {read} rows could not be processed ({named}), more than "
            f"failure_budget={self._failures.budget:g} allows. {self._quarantine} has the rows and the causes. When "
            "the cause is mended, the same command goes on where it stopped"
        )

    def discard(self, outcome: Outcome) -> None:
        """Remove the files and outputs of an attempt that does not count."""
        self.repeated(outcome)
        for envelope in outcome.outputs:
            release_payload(envelope.payload)

    def repeated(self, outcome: Outcome) -> None:
        """A recorded batch was repeated because its outputs were lost: remove the files it made again."""
        self._journal.discard(outcome.published)

    # -- the run -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything recorded so far is durable and published."""
        self._journal.flush()

    def open_barrier(self, before: Iterable[int]) -> None:
        """Everything before a barrier is done. Files between stages that no longer belong to the run are removed.

        Args:
            before: The groups before the barrier.
        """
        self._journal.flush()  # the files that the barrier lists must have their final names
        self._journal.forget([self._plan.vertices[self._plan.groups[g].entry].name for g in before])

    def finish(self) -> None:
        """Flush a complete run. Raises if every task was set aside: then the run has failed."""
        self._journal.flush()
        self._journal.forget()
        last = [g.index for g in self._plan.groups if not g.is_source and _leads_out(self._plan, g)]
        lost = [index for index, count in self._set_aside.items() if count and not self._done[index]]
        if lost and not any(self._done[index] for index in last):
            if self._first_error is not None:
                raise self._first_error
            count = sum(self._set_aside[index] for index in lost)
            tasks = f"all {count} tasks were" if count > 1 else "the only task was"
            raise StageError(
                f"{tasks} set aside, so the run has no result. {self._quarantine} has the data and the causes; the "
                f"first one: {self._first_problem}"
            )

    def takes_input(self, group: int) -> bool:
        """Whether the tasks of a group are the input of the run."""
        return self._from_source[group]

    def fraction(self, total: int | None, running: int = 0) -> float | None:
        """The share of the input that has been processed, 0 to 1.

        Args:
            total: The size of the input in bytes, if it is known.
            running: Bytes that were processed of tasks that are still running.
        """
        return min(1.0, (self.weight_done + running) / total) if total else None

    def tell(self, text: str) -> None:
        """Show a message to the user."""
        if self._watcher:
            self._watcher.message(text)

    def _set_aside_counts(
        self, group: Group, batch: Sequence[Envelope], failure: Failure
    ) -> tuple[dict[int, StageStats], int | None]:
        """The counts of a batch that is set aside, at the stage that failed; and its rows if they are known."""
        names = self._plan.vertices
        failed = next((v for v in group.vertices if names[v].name == failure.stage), group.entry)
        known = [e.rows for e in batch if e.rows is not None]
        entry = StageStats(names[group.entry].name, tasks_in=len(batch), rows_in=sum(known))
        counts = {group.entry: entry}
        at = counts.setdefault(failed, StageStats(names[failed].name))
        at.quarantined, at.tasks_set_aside, at.tasks_uncounted = sum(known), len(batch), len(batch) - len(known)
        return counts, sum(known) if len(known) == len(batch) else None


def stage_error(batch: Sequence[Envelope], failure: Failure, attempts: int) -> Exception:
    """The error that ends a run because a batch failed."""
    tried = "" if attempts == 1 else f", tried {attempts} times"
    of_files = _shown_files(source_files(batch[0]))
    where = f"stage {failure.stage!r}, task {format_order(batch[0].order)}{of_files}{tried}"
    return _error(failure, where, f"{where}: {failure.error}")


def setup_error(failure: Failure, attempts: int) -> Exception:
    """The error that ends a run because a stage cannot be set up."""
    where = f"setup() of stage {failure.stage!r}"
    message = f"stage {failure.stage!r} could not be set up, tried in {attempts} workers in a row: {failure.error}"
    return _error(failure, where, message)


def _error(failure: Failure, where: str, message: str) -> Exception:
    """The exception itself if it is a TamisError, with a note that says where; else a new one with this message."""
    if isinstance(failure.exception, TamisError):
        failure.exception.add_note(f"  in {where}")
        return failure.exception
    error = (WorkerDiedError if failure.died else StageError)(message)
    if failure.frames:
        error.add_note(failure.frames.rstrip())
    return error


def source_files(envelope: Envelope) -> list[str]:
    """The input files, if the task is a group of files or is known to be made from one."""
    while envelope.maker is not None:
        envelope = envelope.maker.batch[0]
    if envelope.nbytes > 2**20 or not isinstance(envelope.payload, FileGroup | bytes):
        return []
    task = decode_payload(envelope.payload)
    return [redacted(str(path)) for path in task.data] if isinstance(task, FileGroup) else []


def _input_files(task: Task[Any]) -> list[dict[str, Any]]:
    """The files that a task of a source stands for. Of a file in several tasks, the first one has it."""
    if not isinstance(task, FileGroup):
        return []
    begun = (s for s in task.slices if s.start == 0)
    return [{"path": redacted(s.path), "size": s.size, "version": s.version} for s in begun]


def _shown_files(files: list[str]) -> str:
    if not files:
        return ""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f" ({files[0]}{more})"


def _is_from_source(plan: Plan, group: Group) -> bool:
    """Whether all input of a group comes straight from sources that read the pipeline's own input."""
    before = [plan.groups[i] for i in group.inputs]
    return all(g.is_source and not g.inputs for g in before)


def has_sink(plan: Plan, group: Group) -> bool:
    """Whether a stage of the group writes output files."""
    return any(plan.vertices[v].stage.is_sink_stage for v in group.vertices)


def _leads_out(plan: Plan, group: Group) -> bool:
    """Whether the pipeline may end after a group."""
    edges = [plan.vertices[v].edges for v in group.vertices]
    return has_sink(plan, group) or any(not ways or END in ways.values() for ways in edges)


def _cannot_repeat(problem: str) -> PlanError:
    return PlanError(
        f"{problem}, and making it again would repeat rows that 'tamis quarantine --retry' has processed since. Start "
        "over with --fresh, run(fresh=True)"
    )
