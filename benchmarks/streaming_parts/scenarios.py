"""The pipelines that are simulated, and the best that a fixed number of workers per stage could do on them.

Nothing but the standard library: the peers' environments import this too.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["CPUS", "GPUS", "SCENARIOS", "Ideal", "Job", "Phase", "Scenario", "Stage"]

CPUS, GPUS = 16, 4
"""The simulated node."""

SETUP_S = 5.0
"""What a new worker of a GPU stage takes before its first task (weights are loaded)."""


@dataclass(frozen=True)
class Stage:
    """A stage that sleeps.

    Args:
        name: Its name.
        seconds: How long it takes for a task, on average.
        later: The same for the second half of the tasks, where that is different.
        cpus, gpus: What one worker holds.
    """

    name: str
    seconds: float
    later: float | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    @property
    def setup_s(self) -> float:
        return SETUP_S if self.gpus else 0.0


@dataclass(frozen=True)
class Scenario:
    """A pipeline.

    Args:
        title: What is special about it.
        stages: Its stages.
        scale: What all times are multiplied by, so that 2,000 tasks ideally take about 130 s.
        sigma: Spread of the service times (log-normal around the same mean); 0: always the same.
    """

    title: str
    stages: tuple[Stage, ...]
    scale: float
    sigma: float = 0.0


SCENARIOS = {
    "A": Scenario(
        "slow CPU stage before a fast GPU stage",
        (Stage("read", 0.2), Stage("heavy", 2.0), Stage("gpu", 0.25, gpus=1), Stage("write", 0.1)),
        scale=0.36,
    ),
    "B": Scenario(
        "fast CPU stages before a slow GPU stage",
        (Stage("read", 0.2), Stage("prep", 0.4), Stage("gpu", 2.0, cpus=0, gpus=1), Stage("write", 0.1)),
        scale=0.13,
    ),
    "C": Scenario(
        "uneven stages, a quarter of a GPU beside a whole one",
        (
            Stage("read", 0.2),
            Stage("gpu a", 1.0, cpus=0, gpus=0.25),
            Stage("gpu b", 1.0, cpus=0, gpus=1),
            Stage("write", 0.1),
        ),
        scale=0.2,
    ),
    "D": Scenario(
        "service times that change at half of the tasks",
        (
            Stage("read", 0.2),
            Stage("heavy", 0.5, later=2.0),
            Stage("gpu", 1.0, later=0.25, gpus=1),
            Stage("write", 0.1),
        ),
        scale=0.3,
    ),
    "E": Scenario(
        "heavy-tailed service times",
        (Stage("read", 0.2), Stage("heavy", 2.0), Stage("gpu", 0.25, gpus=1), Stage("write", 0.1)),
        scale=0.36,
        sigma=1.0,
    ),
}


@dataclass(frozen=True)
class Phase:
    """Tasks with the same mean service times, and the best fixed allocation for them.

    Args:
        tasks: Which.
        workers: Workers of each stage.
        rate: Tasks per second.
        bottleneck: The stage that holds it up.
    """

    tasks: range
    workers: tuple[int, ...]
    rate: float
    bottleneck: int


@dataclass(frozen=True)
class Ideal:
    """The best that fixed allocations can do: one for each phase, changed at no cost."""

    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        return sum(len(phase.tasks) / phase.rate for phase in self.phases)

    def phase_of(self, task: int) -> Phase:
        return next(phase for phase in self.phases if task in phase.tasks)


@dataclass(frozen=True)
class Job:
    """A scenario with a number of tasks.

    Args:
        letter: Which scenario.
        tasks: How many tasks go through it.
        scale: What all times are multiplied by.
        events: The folder where workers note what they did.
    """

    letter: str
    tasks: int
    scale: float
    events: str = ""

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.letter]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.scenario.stages

    def seconds(self, stage: int, task: int) -> float:
        """How long a stage takes for a task: the same for every engine."""
        spec = self.stages[stage]
        mean = spec.seconds if spec.later is None or 2 * task < self.tasks else spec.later
        sigma = self.scenario.sigma
        if sigma:
            mean *= random.Random(f"{stage} {task}").lognormvariate(-sigma * sigma / 2, sigma)
        return mean * self.scale

    @cached_property
    def ideal(self) -> Ideal:
        """The best fixed allocation of whole workers, found by trying them all.

        The means are those of the times drawn, not of the distribution, so that luck is nobody's merit. Filling and
        emptying the pipeline and setting up workers is not part of it.
        """
        half = (self.tasks + 1) // 2
        drifts = any(stage.later is not None for stage in self.stages)
        parts = [range(half), range(half, self.tasks)] if drifts else [range(self.tasks)]
        return Ideal(tuple(self._best(part) for part in parts))

    def _best(self, tasks: range) -> Phase:
        means = [sum(self.seconds(s, t) for t in tasks) / len(tasks) for s in range(len(self.stages))]
        choices = [range(1, self._most(stage) + 1) for stage in self.stages]

        def merit(workers: Sequence[int]) -> tuple[float, int]:
            rate = min(n / mean for n, mean in zip(workers, means, strict=True))
            return round(rate, 9), -sum(workers)  # the fewest workers of those that are equally fast

        best = max((w for w in itertools.product(*choices) if self._fits(w)), key=merit)
        rate = merit(best)[0]
        # What holds it up is the slowest stage that cannot have one more worker.
        one_more = [tuple(n + (s == t) for t, n in enumerate(best)) for s in range(len(best))]
        stuck = [s for s, workers in enumerate(one_more) if not self._fits(workers)]
        return Phase(tasks, best, rate, min(stuck, key=lambda s: best[s] / means[s]))

    def _most(self, stage: Stage) -> int:
        by_cpu = CPUS / stage.cpus if stage.cpus else math.inf
        by_gpu = GPUS / stage.gpus if stage.gpus else math.inf
        return int(min(by_cpu, by_gpu))

    def _fits(self, workers: Sequence[int]) -> bool:
        pairs = list(zip(self.stages, workers, strict=True))
        cpus = sum(stage.cpus * n for stage, n in pairs)
        # Cards are either given away whole or shared by workers of one stage: no scenario has two that could share.
        cards = sum(math.ceil(n / (1 // s.gpus)) if s.gpus < 1 else n * s.gpus for s, n in pairs if s.gpus)
        return cpus <= CPUS and cards <= GPUS
