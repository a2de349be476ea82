"""The driver's side: one event loop that feeds, dispatches, retries, publishes and drains.

It moves envelopes, never data, and knows nothing of threads, processes or clusters: those are substrates. What it
guarantees, on any of them:

- every task is worked on until it is done, and its files are published once;
- tasks in memory between stages stay within the budget (a task that cannot fit runs alone);
- the pipeline cannot lock up: the most downstream work that is ready is always let through when nothing else moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.backends.contracts import Journal, Limits, Stop, Watcher
from tamis.backends.crew import Crew, Pool, Worker
from tamis.backends.payload import Envelope, discard, enclose, unpack
from tamis.backends.queues import OrderedBatches, ReadyQueue, source_key
from tamis.backends.runner import Failure, Outcome
from tamis.backends.substrates.base import Event, Substrate, WorkerDied
from tamis.errors import StageError, TamisError, WorkerDiedError
from tamis.plan import END, Group, Plan
from tamis.runs.stats import Snapshot, StageStats
from tamis.stages.base import SourceStage
from tamis.stages.spill import Spilled
from tamis.tasks import FileGroup, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order

POLL_S = 0.1
"""How long the loop waits for news before it looks around again."""

LOOKAHEAD = 64
"""How many tasks of a source are made ready ahead of the workers."""

MAX_DEATHS_IN_A_ROW = 20
"""Workers that may die one after the other before the run is given up (a machine out of memory, a broken install)."""


@dataclass
class _Assignment:
    worker: Worker
    group: int
    batch: list[Envelope]
    reserved: int


@dataclass
class _GroupState:
    """What the coordinator knows of one group."""

    group: Group
    ready: ReadyQueue
    ordered: OrderedBatches | None
    live: int = 0  # tasks waiting or being worked on
    running: int = 0  # assignments given out
    source: Iterator[Task[Any]] | None = None
    started: bool = False
    exhausted: bool = False
    complete: bool = False
    out_ratio: float = 1.0  # bytes made per byte of weight, the highest seen
    service_s: float | None = None
    fed: int = 0


class Coordinator:
    """Carries out a plan on a substrate.

    Args:
        plan: What to do.
        substrate: Where.
        pools: The workers to start.
        journal: Where finished work goes.
        limits: What may be used.
        scratch: The run's directory for data between stages.
        initial: Tasks for the first stage when it is no source.
        stop: Tells when the user wants to stop.
        watcher: Is shown the state now and then.
    """

    def __init__(
        self,
        plan: Plan,
        substrate: Substrate,
        pools: Sequence[Pool],
        journal: Journal,
        limits: Limits,
        *,
        scratch: str = "",
        initial: Sequence[Task[Any]] = (),
        stop: Stop,
        watcher: Watcher | None = None,
    ) -> None:
        self.stats = [StageStats(v.name, internal=v.stage.internal) for v in plan.vertices]
        self.held_bytes = 0
        self.reserved_bytes = 0
        self._plan, self._substrate = plan, substrate
        self._crew = Crew(substrate, pools, limits.cpus)
        self._journal, self._limits, self._scratch = journal, limits, scratch
        self._initial, self._stop, self._watcher = initial, stop, watcher
        self._upstream = _ancestors(plan.groups)
        self._groups = [self._state(g) for g in plan.groups]
        self._followers = [self._ordered_after(g) for g in plan.groups]
        self._barriers = _numbered_barriers(plan)
        self._tickets = itertools.count()
        self._assignments: dict[int, _Assignment] = {}
        self._deaths = 0  # since a task was last finished
        self._draining = False
        self._weight_fed = self._weight_done = 0
        self._began = self._shown = substrate.now()
        self.total_weight: int | None = None

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Run to the end; return whether it got there (``False``: the user stopped it)."""
        self._crew.start()
        self._begin()
        while True:
            self._heed_stop()
            self._advance()
            if not self._assignments and not any(s.ready for s in self._groups):
                break
            for event in self._substrate.poll(POLL_S):
                self._on(event)
            self._journal.flush()
            self._show()
        self._journal.flush()
        return not self._draining

    def _begin(self) -> None:
        first = self._groups[0]
        if not first.group.is_source:
            first.source = iter(self._initial)
            first.started = True
            self._complete_sources()

    def _heed_stop(self) -> None:
        if self._stop.level >= 2:
            raise KeyboardInterrupt
        if self._stop.level == 1 and not self._draining:
            self._draining = True
            for state in self._groups:
                self._give_back(state)
            if self._watcher:
                self._watcher.message("Stopping: finishing what is in flight. Press Ctrl-C again to stop at once.")

    def _give_back(self, state: _GroupState) -> None:
        """Forget tasks that come straight from a source and were not begun."""
        if all(self._groups[i].group.is_source for i in state.group.inputs):
            while state.ready:
                for envelope in state.ready.pop():
                    self._leave(state, envelope)

    def _advance(self) -> None:
        """Feed and dispatch until nothing more can be given out."""
        while True:
            self._feed()
            self._dispatch()
            if not self._complete_sources():
                return

    def snapshot(self, state: str = "") -> Snapshot:
        """The state of the run."""
        total = self.total_weight
        if total is None and all(s.exhausted or not s.source for s in self._groups):
            total = self._weight_fed
        return Snapshot(
            elapsed_s=self._substrate.now() - self._began,
            stages=self.stats,
            fraction=min(1.0, self._weight_done / total) if total else None,
            held_bytes=self.held_bytes,
            budget_bytes=self._limits.budget_bytes,
            running=len(self._assignments),
            workers=len(self._crew),
            state=state or ("draining" if self._draining else "running"),
        )

    def _show(self) -> None:
        now = self._substrate.now()
        if self._watcher and now - self._shown >= POLL_S:
            self._shown = now
            self._watcher.update(self.snapshot())

    # -- sources and barriers ----------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Make the next tasks of the sources that are open, as many as are wanted soon."""
        for state in self._groups:
            if state.source is None or state.exhausted or self._draining:
                continue
            limit = LOOKAHEAD + 4 * len(self._crew)
            while self._queued_behind(state) < limit:
                task = next(state.source, None)
                if task is None:
                    state.exhausted = True
                    break
                self._feed_one(state, task)

    def _queued_behind(self, state: _GroupState) -> int:
        """How many tasks wait behind a source. Those that do not make up a batch yet do not count."""
        targets = [self._groups[t] for t in state.group.targets] if state.group.is_source else [state]
        for target in targets:
            if target.ordered is not None:
                self._release(target, last=False)
        return max((t.ready.tasks for t in targets), default=0)

    def _feed_one(self, state: _GroupState, task: Task[Any]) -> None:
        """Give a task of a source its identity and put it in its queue."""
        entry = self._plan.vertices[state.group.entry]
        number, state.fed = state.fed, state.fed + 1
        if not task.order:
            task.order = (-self._barriers[state.group.index], number) if state.group.inputs else (number,)
        # Behind a barrier the place says it all: what is listed there lies in the run's own directory.
        content = None if state.group.inputs else task.get_deterministic_id()
        place = "" if content and state.group.is_source else format_order(task.order)
        task.task_id = digest(content, place, entry.name)
        behind = [state.ordered] if state.ordered is not None else self._followers[state.group.index]
        for queue in behind:
            queue.open(source_key(task.order))
        if not state.group.inputs:
            self._weight_fed += task.weight
        if state.group.is_source:
            stats = self.stats[entry.index]
            stats.tasks_out += 1
            stats.rows_out += task.num_items
            for target in entry.edges.values():
                self._send(enclose(task, target))
        else:
            self._enqueue(enclose(task, entry.index))
        for queue in behind:
            queue.close(source_key(task.order))

    def _complete_sources(self) -> bool:
        """Mark groups behind which nothing can come any more; open barriers that this frees. True if one opened."""
        opened = False
        for state in self._groups:
            if state.complete:
                continue
            before = all(self._groups[i].complete for i in state.group.inputs)
            if before and state.ordered is not None:
                self._release(state, last=True)
            if state.group.is_source and before and not state.started and not self._draining:
                stage = self._plan.vertices[state.group.entry].stage
                assert isinstance(stage, SourceStage)
                self._journal.flush()  # what the barrier waited for must be there to be listed
                state.source, state.started, opened = iter(stage.splits(self._scratch)), True, True
            fed = state.source is None or state.exhausted
            ended = (state.started and fed) if state.group.is_source else fed
            state.complete = before and ended and not state.live
        return opened

    # -- queues ------------------------------------------------------------------------------------------------------

    def _state(self, group: Group) -> _GroupState:
        ordered = None
        if group.ordered:
            before = [self._plan.groups[i] for i in self._upstream[group.index]]
            sources = [g for g in before if g.is_source or not g.inputs]
            ordered = OrderedBatches(group.batch_size, group.batch_bytes, at_the_end=len(sources) > 1)
        last = all(
            t == END for v in group.vertices for t in self._plan.vertices[v].edges.values() if t not in group.vertices
        )
        return _GroupState(group, ReadyQueue(), ordered, out_ratio=0.0 if last else 1.0)

    def _ordered_after(self, group: Group) -> list[OrderedBatches]:
        """The ordered queues that tasks of this group may still reach."""
        return [
            s.ordered for s in self._groups if s.ordered is not None and group.index in self._upstream[s.group.index]
        ]

    def _send(self, envelope: Envelope) -> None:
        """Send a task where it is addressed to."""
        if envelope.vertex == END:
            self._journal.output(envelope)
        elif self._plan.vertices[envelope.vertex].is_source:
            discard(envelope.payload)  # a barrier takes nothing from hand to hand
        else:
            self._enqueue(envelope)

    def _enqueue(self, envelope: Envelope) -> None:
        state = self._groups[self._plan.group_of[envelope.vertex]]
        state.live += 1
        self.held_bytes += envelope.nbytes
        for queue in self._followers[state.group.index]:
            queue.open(source_key(envelope.order))
        if state.ordered is None:
            state.ready.push([envelope])
        else:
            state.ordered.push(envelope)

    def _leave(self, state: _GroupState, envelope: Envelope) -> None:
        """A task is done with; its children, if any, are queued already."""
        state.live -= 1
        self.held_bytes -= envelope.nbytes
        for queue in self._followers[state.group.index]:
            queue.close(source_key(envelope.order))
        discard(envelope.payload)

    def _release(self, state: _GroupState, *, last: bool) -> None:
        assert state.ordered is not None
        for batch in state.ordered.batches(last=last and not self._draining):
            state.ready.push(batch)

    # -- dispatch ----------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give out work, the most downstream first, so that what is begun is finished before more is read."""
        downstream_busy = False
        for state in reversed(self._groups):
            if state.ordered is not None:
                self._release(state, last=False)
            forced = not downstream_busy and not state.running
            while state.ready and self._room_in_group(state):
                batch = state.ready.peek()
                cost = self._cost(state, batch)
                if cost and not forced and self.held_bytes + self.reserved_bytes + cost > self._limits.budget_bytes:
                    break
                worker = self._crew.free(state.group.index, self._cpus(state), self._depth(state))
                if worker is None:
                    break
                self._assign(worker, state, state.ready.pop(), cost)
                forced = False
            downstream_busy = downstream_busy or bool(state.running or state.ready)

    def _room_in_group(self, state: _GroupState) -> bool:
        return state.group.num_workers is None or state.running < state.group.num_workers

    def _cost(self, state: _GroupState, batch: list[Envelope]) -> int:
        """Memory that working on the batch will take beyond what it holds already."""
        weight = sum(e.weight for e in batch)
        held = sum(e.nbytes for e in batch)
        reading = weight - held if state.group.batch_bytes is None else 0  # batches by bytes are worked off piecewise
        return int(max(reading, state.out_ratio * weight, 0))

    def _depth(self, state: _GroupState) -> int:
        """How many assignments a worker may hold: more when they are short, so that it need not wait for us."""
        if state.service_s is None or len(state.ready) < self._crew.size_for(state.group.index):
            return 1
        return 8 if state.service_s < 0.005 else 2

    def _cpus(self, state: _GroupState) -> float:
        return min(max(1.0, state.group.resources.cpus), self._limits.cpus)

    def _assign(self, worker: Worker, state: _GroupState, batch: list[Envelope], cost: int) -> None:
        ticket = next(self._tickets)
        self._crew.give(worker, ticket, self._cpus(state))
        state.running += 1
        self.reserved_bytes += cost
        self._assignments[ticket] = _Assignment(worker, state.group.index, batch, cost)
        self._substrate.submit(worker.index, ticket, state.group.index, batch)

    # -- what comes back ---------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        if isinstance(event, WorkerDied):
            self._on_death(event)
            return
        assignment = self._take_back(event.ticket)
        if assignment is None:  # the work of a worker that was given up: somebody else does it
            self._journal.forget(event.outcome.published)
            for envelope in event.outcome.outputs:
                discard(envelope.payload)
            return
        self._crew.take(assignment.worker, event.ticket)
        if event.outcome.failure is not None:
            self._on_failure(assignment, event.outcome.failure)
        else:
            self._on_success(assignment, event.outcome)

    def _take_back(self, ticket: int) -> _Assignment | None:
        assignment = self._assignments.pop(ticket, None)
        if assignment is not None:
            self._groups[assignment.group].running -= 1
            self.reserved_bytes -= assignment.reserved
        return assignment

    def _on_success(self, assignment: _Assignment, outcome: Outcome) -> None:
        state = self._groups[assignment.group]
        self._deaths = 0
        for vertex, stats in outcome.stats.items():
            self.stats[vertex].add(stats)
        name = self._plan.vertices[state.group.entry].name
        self._journal.record(name, [e.task_id for e in assignment.batch], outcome.published)
        made = 0
        for envelope in outcome.outputs:
            made += envelope.nbytes
            self._send(envelope)
        weight = sum(e.weight for e in assignment.batch)
        if weight and made:
            state.out_ratio = max(state.out_ratio, made / weight)
        state.service_s = outcome.seconds if state.service_s is None else 0.8 * state.service_s + 0.2 * outcome.seconds
        if not self._upstream_sources(state):
            self._weight_done += weight
        for envelope in assignment.batch:
            self._leave(state, envelope)

    def _upstream_sources(self, state: _GroupState) -> bool:
        """Whether the group is behind another one that does work (then its input was counted there)."""
        return any(not self._groups[i].group.is_source or self._groups[i].group.inputs for i in state.group.inputs)

    def _on_failure(self, assignment: _Assignment, failure: Failure) -> None:
        state = self._groups[assignment.group]
        for envelope in assignment.batch:
            envelope.deaths += failure.died
            envelope.attempt += not failure.died
        first = assignment.batch[0]
        too_often = first.deaths > self._limits.death_retries or first.attempt > self._limits.retries
        if failure.permanent or too_often:
            raise self._error(assignment.batch, failure, first.deaths + first.attempt)
        self.stats[state.group.entry].retries += 1
        state.ready.push(assignment.batch)

    def _on_death(self, event: WorkerDied) -> None:
        """Give the dead worker's tasks to others; only the one it was working on is held against."""
        for ticket in self._crew.lose(event.worker):
            assignment = self._take_back(ticket)
            assert assignment is not None
            if ticket == event.running:
                self._on_failure(assignment, Failure(self._entry_name(assignment), event.why, died=True))
            else:
                self._groups[assignment.group].ready.push(assignment.batch)
        self._deaths += 1
        if self._deaths > MAX_DEATHS_IN_A_ROW:
            raise WorkerDiedError(
                f"{self._deaths} workers died one after the other without finishing a task: {event.why}"
            )

    def _entry_name(self, assignment: _Assignment) -> str:
        return self._plan.vertices[self._groups[assignment.group].group.entry].name

    def _error(self, batch: list[Envelope], failure: Failure, attempts: int) -> Exception:
        tried = "" if attempts == 1 else f", tried {attempts} times"
        where = f"stage {failure.stage!r}, task {format_order(batch[0].order)}{_of_files(batch[0])}{tried}"
        if isinstance(failure.exception, TamisError):
            failure.exception.add_note(f"  in {where}")
            return failure.exception
        kind = WorkerDiedError if failure.died else StageError
        error = kind(f"{where}: {failure.error}")
        if failure.frames:
            error.add_note(failure.frames.rstrip())
        return error


def _of_files(envelope: Envelope) -> str:
    """The input file, when the task is a group of files."""
    if envelope.nbytes > 2**20:
        return ""
    task = unpack(envelope.payload)
    if not isinstance(task, FileGroup) or not task.data:
        return ""
    more = f" and {len(task.data) - 1} more" if len(task.data) > 1 else ""
    return f" ({task.data[0]}{more})"


def _numbered_barriers(plan: Plan) -> dict[int, int]:
    """The barriers that give tasks new places, counted from 1; batch mode adds others, which keep the old ones."""
    found = [g.index for g in plan.groups if g.is_source and not isinstance(plan.vertices[g.entry].stage, Spilled)]
    return {group: number for number, group in enumerate(found)}


def _ancestors(groups: list[Group]) -> list[set[int]]:
    """For each group the groups whose tasks may still reach it without passing a barrier."""
    found: list[set[int]] = []
    for group in groups:
        before: set[int] = set()
        if not group.is_source:
            for i in group.inputs:
                before |= {i} | found[i]
        found.append(before)
    return found


__all__ = ["Coordinator"]
