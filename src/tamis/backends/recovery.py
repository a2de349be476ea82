"""Lost data is made again: the assignment that made it is repeated, and those before it, as far back as needed.

Every task whose payload can get lost knows what it was made of, back to the tasks of the source, which the driver
holds. Stages give the same for the same task, so what comes out is the very task that was lost; whatever else the
repetition makes or publishes was there already and is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tamis.backends.payload import GONE, Envelope, Maker, release_payload
from tamis.backends.runner import Outcome
from tamis.errors import StageError


@dataclass(eq=False)
class _Repetition:
    maker: Maker
    missing: int = 0
    wanted: list[tuple[Envelope, Callable[[], None]]] = field(default_factory=list)
    restored: list[Envelope] = field(default_factory=list)


class Recovery:
    """Repeats assignments whose results got lost.

    Args:
        repeat: Called with an assignment to be done again.
    """

    def __init__(self, repeat: Callable[[Maker], None]) -> None:
        self._repeat = repeat
        self._open: dict[int, _Repetition] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def restore(self, envelope: Envelope, then: Callable[[], None]) -> None:
        """Make a task's payload again; ``then`` is called when it is there."""
        envelope.payload = GONE
        maker = envelope.maker
        if maker is None:
            raise StageError(
                f"the data of task {envelope.task_id} is lost, and nothing is known that it could be made of again"
            )
        repetition = self._open.get(id(maker.batch))
        if repetition is not None:
            repetition.wanted.append((envelope, then))
            return
        repetition = self._open[id(maker.batch)] = _Repetition(maker, wanted=[(envelope, then)])
        repetition.restored = [e for e in maker.batch if e.payload is GONE]
        repetition.missing = len(repetition.restored)
        for before in repetition.restored:
            self.restore(before, lambda: self._one_is_back(repetition))
        if not repetition.missing:
            self._repeat(maker)

    def repeats(self, batch: list[Envelope]) -> bool:
        """Whether a batch is worked on for the sake of what was lost."""
        return id(batch) in self._open

    def lost_again(self, batch: list[Envelope], lost: list[Envelope]) -> None:
        """Inputs of a repetition got lost themselves."""
        repetition = self._open[id(batch)]
        repetition.missing += len(lost)
        for envelope in lost:
            self.restore(envelope, lambda: self._one_is_back(repetition))

    def done(self, batch: list[Envelope], outcome: Outcome) -> None:
        """A repetition is done: put what it made in the place of what was lost."""
        repetition = self._open.pop(id(batch))
        made = {(e.vertex, e.task_id): e for e in outcome.outputs}
        for envelope, _ in repetition.wanted:
            again = made.pop((envelope.vertex, envelope.task_id), None)
            if again is None:
                raise StageError(
                    f"the data of task {envelope.task_id} was lost with its machine, and the stages before it made "
                    "something else when they were repeated: they must give the same for the same task"
                )
            envelope.payload, envelope.home = again.payload, again.home
        for envelope in [*made.values(), *repetition.restored]:
            envelope.payload = release_payload(envelope.payload)
        for _, then in repetition.wanted:
            then()

    def _one_is_back(self, repetition: _Repetition) -> None:
        repetition.missing -= 1
        if not repetition.missing:
            self._repeat(repetition.maker)
