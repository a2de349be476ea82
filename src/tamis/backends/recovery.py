"""Recomputes lost data: repeats the assignment that made it, and those before it, as far back as needed.

Every task whose payload can get lost records which tasks it was made of, back to the tasks of the source, which the
driver has. A stage makes the same output from the same task, so a repetition makes the lost task again. Its other
outputs and files exist already and are discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tamis.backends.outcome import Outcome
from tamis.backends.payload import GONE, Envelope, Maker, release_payload
from tamis.errors import StageError


@dataclass(eq=False)
class _Repetition:
    """An assignment that is repeated.

    Args:
        maker: The assignment.
        missing: How many of its inputs must be restored before it can begin.
        wanted: The outputs that were lost, each with the function to call once it is restored.
        restored: Its inputs that were restored for it, to be freed afterwards.
    """

    maker: Maker
    missing: int = 0
    wanted: list[tuple[Envelope, Callable[[], None]]] = field(default_factory=list)
    restored: list[Envelope] = field(default_factory=list)


class Recovery:
    """Repeats assignments whose results were lost.

    Args:
        repeat: Called with an assignment that must be repeated.
    """

    def __init__(self, repeat: Callable[[Maker], None]) -> None:
        self._repeat = repeat
        self._open: dict[int, _Repetition] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def restore(self, envelope: Envelope, then: Callable[[], None]) -> None:
        """Make a task's payload again and call ``then`` once it exists."""
        envelope.payload = GONE
        maker = envelope.maker
        if maker is None:
            raise StageError(f"the data of task {envelope.task_id} is lost, and it is not known what it was made of")
        repetition = self._open.get(id(maker.batch))
        if repetition is not None:
            repetition.wanted.append((envelope, then))
            return
        repetition = self._open[id(maker.batch)] = _Repetition(maker, wanted=[(envelope, then)])
        repetition.restored = [e for e in maker.batch if e.payload is GONE]
        repetition.missing = len(repetition.restored)
        for before in repetition.restored:
            self.restore(before, lambda: self._one_restored(repetition))
        if not repetition.missing:
            self._repeat(maker)

    def repeats(self, batch: list[Envelope]) -> bool:
        """Whether a batch is a repetition."""
        return id(batch) in self._open

    def lost_again(self, batch: list[Envelope], lost: list[Envelope]) -> None:
        """Inputs of a repetition were lost in turn."""
        repetition = self._open[id(batch)]
        repetition.missing += len(lost)
        for envelope in lost:
            self.restore(envelope, lambda: self._one_restored(repetition))

    def done(self, batch: list[Envelope], outcome: Outcome) -> None:
        """A repetition is finished: its outputs replace the ones that were lost."""
        repetition = self._open.pop(id(batch))
        made = {(e.vertex, e.task_id): e for e in outcome.outputs}
        for envelope, _ in repetition.wanted:
            again = made.pop((envelope.vertex, envelope.task_id), None)
            if again is None:
                raise StageError(
                    f"the data of task {envelope.task_id} was lost with its machine, and the stages before it made "
                    "something else when they were repeated: a stage must make the same output from the same task"
                )
            envelope.payload, envelope.home = again.payload, again.home
            envelope.nbytes = envelope.nbytes or again.nbytes
        for envelope in [*made.values(), *repetition.restored]:
            envelope.payload = release_payload(envelope.payload)
        for _, then in repetition.wanted:
            then()

    def _one_restored(self, repetition: _Repetition) -> None:
        repetition.missing -= 1
        if not repetition.missing:
            self._repeat(repetition.maker)
