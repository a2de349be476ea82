"""The state of the tasks between the groups of a plan: sources, barriers, queues, and the memory they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.backends.bookkeeper import Bookkeeper
from tamis.backends.payload import GONE, Envelope, enclose, release_payload
from tamis.backends.queues import OrderedBatches, ReadyQueue, source_key
from tamis.plan import END, Group, Plan
from tamis.stages.base import SourceStage
from tamis.stages.spill import Spilled
from tamis.tasks import EmptyTask, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import content_id, format_order

Restore = Callable[[Envelope, Callable[[], None]], None]


@dataclass
class GroupState:
    """The state of one group.

    Args:
        group: The group.
        ready: Batches that can be dispatched.
        ordered: The queue that makes batches of consecutive tasks, if the group takes such batches.
        live: Tasks that wait or are being processed.
        running: Assignments that workers hold.
        source: The tasks that the driver lists for it, if any.
        started: Whether listing them has begun.
        exhausted: Whether all of them are listed.
        complete: Whether no more tasks can arrive.
        out_ratio: Bytes of output per byte of weight, the highest value seen.
        sent: Tasks sent to each target group.
        done: Tasks done.
    """

    group: Group
    ready: ReadyQueue
    ordered: OrderedBatches | None
    live: int = 0
    running: int = 0
    source: Iterator[Task[Any]] | None = None
    started: bool = False
    exhausted: bool = False
    complete: bool = False
    out_ratio: float = 1.0
    sent: dict[int, int] = field(default_factory=dict)
    done: int = 0


class SchedulerState:
    """Moves envelopes from group to group and tracks which groups may still receive tasks.

    Args:
        plan: The groups and the edges between them.
        books: Where listed tasks are counted, and where tasks at the end of the pipeline go.
        scratch: The run's directory for data between stages.
        restore: Makes the data of a task again that an earlier start of the run did not keep, and calls back.
    """

    def __init__(self, plan: Plan, books: Bookkeeper, scratch: str, restore: Restore) -> None:
        self._plan, self._books, self._scratch, self._restore = plan, books, scratch, restore
        self.held_bytes = 0
        self.draining = False
        self.upstream = _ancestors(plan.groups)
        self.groups = [self._state(g) for g in plan.groups]
        self._followers = [self._ordered_after(g) for g in plan.groups]
        self._barriers = numbered_barriers(plan)
        self._open: list[GroupState] = []  # groups whose source has more
        self._changed = True  # whether a group may have become complete

    # -- sources and barriers ----------------------------------------------------------------------------------------

    def begin(self, initial: Sequence[Task[Any]]) -> None:
        """Start with the given tasks, if the first stage is not a source."""
        first = self.groups[0]
        if not first.group.is_source:
            first.source = iter(initial)
            first.started = True
            self._open.append(first)
            self.complete_sources()

    def feed(self, limit: int) -> None:
        """List the next tasks of the open sources, until ``limit`` of each are waiting."""
        for state in [] if self.draining else list(self._open):
            assert state.source is not None
            while self._queued_after(state) < limit:
                task = next(state.source, None)
                if task is None:
                    state.exhausted = self._changed = True
                    self._open.remove(state)
                    break
                self._feed_one(state, task)

    def drain(self, keep: Callable[[list[Envelope]], bool]) -> None:
        """Begin nothing new: drop tasks that come straight from a source and have not begun.

        Args:
            keep: Returns whether a batch must stay, since tasks that have begun depend on it.
        """
        self.draining = self._changed = True
        for state in self.groups:
            if all(self.groups[i].group.is_source for i in state.group.inputs):
                waiting = [state.ready.pop() for _ in range(len(state.ready))]
                for batch in waiting:
                    if keep(batch):
                        state.ready.push(batch)
                        continue
                    for envelope in batch:
                        self.leave(state, envelope)

    def complete_sources(self) -> bool:
        """Mark the groups that can receive no more tasks, and open the barriers after them; whether one opened."""
        if not self._changed:
            return False
        self._changed = opened = False
        for state in self.groups:
            if state.complete:
                continue
            before = all(self.groups[i].complete for i in state.group.inputs)
            if before and state.ordered is not None:
                self.release(state, last=True)
            if state.group.is_source and before and not state.started and not self.draining:
                stage = self._plan.vertices[state.group.entry].stage
                assert isinstance(stage, SourceStage)
                self._books.open_barrier(self._before_barrier(state))
                state.source, state.started, opened = iter(stage.splits(self._scratch)), True, True
                self._open.append(state)
            fed = state.source is None or state.exhausted
            ended = (state.started and fed) if state.group.is_source else fed
            state.complete = before and ended and not state.live
        return opened

    def _before_barrier(self, state: GroupState) -> set[int]:
        """The groups whose tasks end at a barrier."""
        return set(state.group.inputs).union(*(self.upstream[i] for i in state.group.inputs))

    def exhausted(self) -> bool:
        """Whether the sources that have begun have no more tasks."""
        return all(s.exhausted or not s.source for s in self.groups)

    def expects_work(self, state: GroupState) -> bool:
        """Whether the group has tasks, or will receive some before another barrier has to open."""
        if state.complete or state.group.is_source:
            return False
        before = [self.groups[i] for i in self.upstream[state.group.index]]
        return state.live > 0 or state.started or any(s.started or s.live for s in before)

    def work_left(self, state: GroupState) -> int | None:
        """How many tasks the group has left, once all groups before it are complete; ``None`` until then."""
        before = [self.groups[i] for i in self.upstream[state.group.index]]
        ended = all(s.complete for s in before) and (state.source is None or state.exhausted)
        return state.live if ended else None

    # -- queues ------------------------------------------------------------------------------------------------------

    def state_of(self, envelope: Envelope) -> GroupState:
        """The group an envelope is addressed to."""
        return self.groups[self._plan.group_of[envelope.vertex]]

    def send(self, envelope: Envelope) -> None:
        """Send a task to the group it is addressed to."""
        if envelope.vertex == END:
            self._books.output(envelope)
        elif self._plan.vertices[envelope.vertex].is_source:
            release_payload(envelope.payload)  # a barrier lists files; it receives no tasks
        else:
            self._enqueue(envelope)

    def leave(self, state: GroupState, envelope: Envelope) -> None:
        """A task is finished; its children, if any, are queued already."""
        state.live -= 1
        self._changed = self._changed or not state.live
        self.held_bytes -= envelope.nbytes
        for queue in self._followers[state.group.index]:
            queue.close(source_key(envelope.order))
        envelope.payload = release_payload(envelope.payload)

    def release(self, state: GroupState, *, last: bool) -> None:
        """Move complete batches to the ready queue; with ``last``, incomplete ones too."""
        assert state.ordered is not None
        for batch in state.ordered.batches(last=last and not self.draining):
            self._ready(state, batch)

    def _ready(self, state: GroupState, batch: list[Envelope]) -> None:
        """Queue a batch, unless an earlier start of the run has finished it: then go on with what it made."""
        made = self._books.recall(state.group, batch)
        if made is not None:
            for envelope in made:
                self.send(envelope)
            for envelope in batch:
                self.leave(state, envelope)
            return
        lost = [e for e in batch if e.payload is GONE]
        missing = len(lost)
        if not lost:
            state.ready.push(batch)

        def one_restored() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                self.held_bytes += sum(e.nbytes for e in lost)
                state.ready.push(batch)

        for envelope in lost:
            self._restore(envelope, one_restored)

    def begin_repetition(self, state: GroupState, batch: list[Envelope]) -> None:
        """A finished batch must be repeated: its group is no longer complete."""
        state.live += len(batch)
        state.complete = False
        state.ready.push(batch)

    def end_repetition(self, state: GroupState, batch: list[Envelope]) -> None:
        """A repeated batch is finished."""
        state.live -= len(batch)
        self._changed = True

    def _queued_after(self, state: GroupState) -> int:
        """How many tasks of a source wait, not counting those in incomplete batches."""
        targets = [self.groups[t] for t in state.group.targets] if state.group.is_source else [state]
        for target in targets:
            if target.ordered is not None:
                self.release(target, last=False)
        return max((t.ready.tasks for t in targets), default=0)

    def _feed_one(self, state: GroupState, task: Task[Any]) -> None:
        """Give a task of a source its identity and put it in its queue."""
        entry = self._plan.vertices[state.group.entry]
        number = self._books.number(state.group, task)
        identify(task, entry.name, number, state.group, self._barriers.get(state.group.index, 0))
        following = [state.ordered] if state.ordered is not None else self._followers[state.group.index]
        for queue in following:
            queue.open(source_key(task.order))
        self._books.fed(state.group, task)
        if state.group.is_source:
            for target in entry.edges.values():
                self.send(enclose(task, target))
        else:
            self._enqueue(enclose(task, entry.index))
        for queue in following:
            queue.close(source_key(task.order))

    def _enqueue(self, envelope: Envelope) -> None:
        state = self.state_of(envelope)
        state.live += 1
        self.held_bytes += envelope.nbytes
        for queue in self._followers[state.group.index]:
            queue.open(source_key(envelope.order))
        if state.ordered is None:
            self._ready(state, [envelope])
        else:
            state.ordered.push(envelope)

    def _state(self, group: Group) -> GroupState:
        ordered = None
        if group.ordered:
            before = [self._plan.groups[i] for i in self.upstream[group.index]]
            sources = [g for g in before if g.is_source or not g.inputs]
            at_the_end = len(sources) > 1
            ordered = OrderedBatches(group.batch_size, group.batch_bytes, group.batch_rows, at_the_end=at_the_end)
        last = all(
            t == END for v in group.vertices for t in self._plan.vertices[v].edges.values() if t not in group.vertices
        )
        return GroupState(group, ReadyQueue(), ordered, out_ratio=0.0 if last else 1.0)

    def _ordered_after(self, group: Group) -> list[OrderedBatches]:
        """The ordered queues that tasks of this group may reach."""
        return [s.ordered for s in self.groups if s.ordered is not None and group.index in self.upstream[s.group.index]]


def identify(task: Task[Any], stage: str, number: int, group: Group, barrier: int) -> None:
    """Give a task that the driver lists its place in the order and its id.

    Args:
        task: The task.
        stage: The name of the source that lists it, or of the stage it is given to.
        number: Its number among the tasks listed there.
        group: The group of that stage.
        barrier: The barrier's number, see :func:`numbered_barriers`.
    """
    if not task.order:
        task.order = (-barrier, number) if group.inputs else (number,)
    # After a barrier the place identifies the task: the files listed there are in the run's own directory.
    known = None if group.inputs else task.get_deterministic_id()
    place = "" if known and group.is_source else format_order(task.order)
    unknown = group.inputs or isinstance(task, EmptyTask)
    task.task_id = digest(known or (None if unknown else content_id(task)), place, stage)


def numbered_barriers(plan: Plan) -> dict[int, int]:
    """The barriers that give tasks new places, numbered from 1. Those that batch mode adds keep the old places."""
    found = [g.index for g in plan.groups if g.is_source and not isinstance(plan.vertices[g.entry].stage, Spilled)]
    return {group: number for number, group in enumerate(found)}


def _ancestors(groups: list[Group]) -> list[set[int]]:
    """For each group, the groups whose tasks may reach it without passing a barrier."""
    found: list[set[int]] = []
    for group in groups:
        before: set[int] = set()
        if not group.is_source:
            for i in group.inputs:
                before |= {i} | found[i]
        found.append(before)
    return found
