"""What a run was like, found from what its workers noted: the same way for every engine."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from streaming_parts.scenarios import CPUS, GPUS, Job
from streaming_parts.work import Event

__all__ = ["Figures", "measure"]

WARM, LATE = 0.2, 0.95
"""The part of the outputs that is looked at where the pipeline is to be warm and not yet running empty."""


@dataclass(frozen=True)
class Figures:
    """A run in figures.

    Args:
        total: Ideal time / time from call to return.
        from_first: The same from the first output on.
        busy: Busy seconds of the bottleneck stage / (the workers it has in the ideal allocation x time), after
            warm-up. It can exceed 1: workers that also serve other stages can give more to the bottleneck than any
            fixed allocation, which leaves the odd CPU idle.
        cpus_busy, gpus_busy: Busy worker-seconds x what a worker holds / all there is, after warm-up, all stages.
        best_busy: What the ideal allocation reaches there, of the kind that the bottleneck needs (the last one, if
            it changes), over the whole run.
        peak_cpus, peak_gpus: The most that were busy at the same time: more than there are would be cheating.
        wall_s, first_s: From the call to the return, and to the first output.
        cpu_s, driver_cpu_s, services_cpu_s: CPU seconds of all processes; of the driver from call to return; of the
            cluster's own processes.
        setups: How often a worker of a GPU stage was set up.
        doubles: How often a stage began a task that it had begun before.
        double_outputs: How often the last stage finished a task that it had finished before.
        missing: Tasks that did not come out.
    """

    total: float
    from_first: float
    busy: float
    cpus_busy: float
    gpus_busy: float
    best_busy: float
    peak_cpus: float
    peak_gpus: float
    wall_s: float
    first_s: float
    cpu_s: float
    driver_cpu_s: float
    services_cpu_s: float
    setups: int
    doubles: int
    double_outputs: int
    missing: int


def measure(
    job: Job, events: Sequence[Event], began: float, ended: float, cpu_s: float, driver_cpu_s: float, services: float
) -> Figures:
    """The figures of a run that was called and returned at these times."""
    work = [e for e in events if e.task is not None]
    last = len(job.stages) - 1
    finished = [e for e in work if e.stage == last and e.ended is not None]
    first_end: dict[int | None, float] = {}
    for event in finished:
        assert event.ended is not None
        first_end[event.task] = min(event.ended, first_end.get(event.task, event.ended))
    outputs = sorted(first_end.values())
    if not outputs:
        raise RuntimeError("nothing came out")
    share = len(outputs) / job.tasks  # of the ideal time, if not everything came out
    window = _at(outputs, WARM), _at(outputs, LATE)
    starts = Counter((e.stage, e.task) for e in work)
    phase = job.ideal.phases[-1]
    kind = "gpus" if job.stages[phase.bottleneck].gpus else "cpus"
    return Figures(
        total=share * job.ideal.seconds / (ended - began),
        from_first=(len(outputs) - 1) / job.tasks * job.ideal.seconds / max(ended - outputs[0], 1e-9),
        busy=_bottleneck_busy(job, work, window),
        cpus_busy=_kind_busy(job, work, window, "cpus", CPUS),
        gpus_busy=_kind_busy(job, work, window, "gpus", GPUS),
        best_busy=_best_busy(job, kind),
        peak_cpus=_peak(job, work, "cpus"),
        peak_gpus=_peak(job, work, "gpus"),
        wall_s=ended - began,
        first_s=outputs[0] - began,
        cpu_s=cpu_s,
        driver_cpu_s=driver_cpu_s,
        services_cpu_s=services,
        setups=sum(e.task is None for e in events),
        doubles=sum(starts.values()) - len(starts),
        double_outputs=len(finished) - len(outputs),
        missing=job.tasks - len(outputs),
    )


def _at(outputs: list[float], fraction: float) -> float:
    return outputs[min(len(outputs) - 1, int(fraction * len(outputs)))]


def _overlap(event: Event, window: tuple[float, float]) -> float:
    """Seconds of the work that lie in the window."""
    begin, end = window
    return max(0.0, min(event.ended or 0.0, end) - max(event.began, begin))


def _bottleneck_busy(job: Job, work: Sequence[Event], window: tuple[float, float]) -> float:
    """Busy seconds of the bottleneck, each divided by the workers it should have, per second of the window.

    Which stage is the bottleneck, and how many workers it should have, is a matter of the task where service times
    change: the work on a task counts at the stage that holds up tasks like it.
    """
    busy = 0.0
    for event in work:
        assert event.task is not None
        phase = job.ideal.phase_of(event.task)
        if event.stage == phase.bottleneck:
            busy += _overlap(event, window) / phase.workers[event.stage]
    return busy / max(window[1] - window[0], 1e-9)


def _kind_busy(job: Job, work: Sequence[Event], window: tuple[float, float], kind: str, there: int) -> float:
    busy = sum(_overlap(e, window) * getattr(job.stages[e.stage], kind) for e in work)
    return busy / there / max(window[1] - window[0], 1e-9)


def _peak(job: Job, work: Sequence[Event], kind: str) -> float:
    """The most of a kind that was busy at once."""
    changes = []
    for event in work:
        if event.ended is not None:
            need = getattr(job.stages[event.stage], kind)
            changes += [(event.began, need), (event.ended, -need)]
    return float(max(itertools.accumulate(need for _, need in sorted(changes)), default=0.0))


def _best_busy(job: Job, kind: str) -> float:
    """What the ideal allocations keep busy of a kind: rounding to whole workers leaves some idle."""
    there = {"cpus": CPUS, "gpus": GPUS}[kind]
    needs = [getattr(stage, kind) for stage in job.stages]
    work = sum(job.seconds(s, t) * need for s, need in enumerate(needs) for t in range(job.tasks))
    return float(work / there / job.ideal.seconds)
