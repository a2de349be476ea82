"""What limits a run: the stage that takes most of the time, and workers that wait for a few long tasks at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tamis.runs import figures
from tamis.runs.pages.run_view import RunView
from tamis.runs.pages.timeline import Sample
from tamis.runs.stats import StageStats

_LEAST_SHARE: Final = 0.25
"""A stage with a smaller share of the working time is not what limits a run."""

_LEAST_TAIL_S: Final = 2.0
_LEAST_TAIL_SHARE: Final = 0.05
_SHOWN_STAGES: Final = 3


@dataclass(frozen=True)
class Bottleneck:
    """The stage that takes most of the time.

    Args:
        stage: Its name.
        share: Its share of the time that all workers spent in stages.
        busy: How much of the time its workers were busy, 0 to 1, where that is known.
        waiting_s: How long a task waited for it on average, where that is known.
    """

    stage: str
    share: float
    busy: float | None = None
    waiting_s: float | None = None

    def __str__(self) -> str:
        text = f"Bottleneck: {self.stage} takes {figures.percent(self.share)} of the working time"
        if self.busy is not None:
            text += f"; its workers were busy {figures.percent(self.busy)} of the time"
        if self.waiting_s is not None and self.waiting_s >= 0.05:
            text += f"; a task waited {figures.duration(self.waiting_s)} for it on average"
        return f"{text}."


@dataclass(frozen=True)
class Stragglers:
    """The time at the end of a run in which most workers had nothing to do.

    Args:
        seconds: How long it was.
        share: Its share of the run.
        running, workers: The most tasks that ran in that time, and the workers there were.
        stages: The stages that finished tasks in that time.
    """

    seconds: float
    share: float
    running: int
    workers: int
    stages: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = (
            f"Stragglers: in the last {figures.duration(self.seconds)} ({figures.percent(self.share)} of the run) "
            f"at most {self.running} of {self.workers} workers had something to do"
        )
        if self.stages:
            text += f", in {', '.join(self.stages)}"
        return f"{text}. Smaller tasks (blocksize) spread the work."


def findings(view: RunView) -> list[str]:
    """What limits a run, in sentences."""
    found: list[Bottleneck | Stragglers | None] = [find_bottleneck(view.summary.stages, view.samples)]
    if not view.is_running:
        found.append(find_stragglers(view.samples, [s.name for s in view.summary.stages if not s.internal]))
    return [str(each) for each in found if each is not None]


def find_bottleneck(stages: Sequence[StageStats], samples: Sequence[Sample] = ()) -> Bottleneck | None:
    """The stage that takes most of the time, if one stands out.

    >>> str(find_bottleneck([StageStats("read", seconds=1), StageStats("embed", seconds=3)]))
    'Bottleneck: embed takes 75.0% of the working time.'
    """
    total = sum(stage.seconds for stage in stages)
    if total < 0.1:
        return None
    steps = [step for step in figures.steps(stages) if step.seconds > 0]
    slowest = max(steps, key=lambda step: step.seconds, default=None)
    if slowest is None or len(steps) < 2:
        return None
    name, share = slowest.stage.name, slowest.seconds / total
    if share < _LEAST_SHARE:
        return None
    if not samples or slowest.inner_seconds:  # samples are of single stages, not of those that one is made of
        return Bottleneck(name, share)
    last = samples[-1]
    workers = max((sample.count(name, "workers") for sample in samples), default=0)
    worked = last.count(name, "seconds")
    busy = min(worked / (workers * last.seconds), 1.0) if workers and last.seconds else None
    tasks = last.count(name, "tasks_in")
    waiting = last.count(name, "queue_s") / tasks if tasks else None
    return Bottleneck(name, share, busy, waiting)


def find_stragglers(samples: Sequence[Sample], stages: Sequence[str]) -> Stragglers | None:
    """The end of a run in which less than half of the workers had something to do."""
    if len(samples) < 3:
        return None
    last = samples[-1]
    most_workers = max(sample.workers for sample in samples)
    busy = [number for number, sample in enumerate(samples) if 2 * sample.running >= max(sample.workers, 1)]
    if most_workers < 2 or not busy:
        return None
    begin = samples[busy[-1]]
    tail = [sample for sample in samples[busy[-1] + 1 :] if sample.running]
    seconds = last.seconds - begin.seconds
    if not tail or seconds < max(_LEAST_TAIL_S, _LEAST_TAIL_SHARE * last.seconds):
        return None
    worked = [name for name in stages if last.count(name, "tasks_in") > begin.count(name, "tasks_in")]
    running = max(sample.running for sample in tail)
    return Stragglers(seconds, seconds / last.seconds, running, most_workers, tuple(worked[:_SHOWN_STAGES]))
