"""Heterogeneous pipelines on tamis' streaming executor, Ray Data and Xenna, against the ideal.

    python benchmarks/streaming.py [--tasks 2000] [--scenarios ABCDE] [--engines tamis,ray-data,xenna] [--out FILE]

One logical node of 16 CPUs and 4 GPUs; stages sleep (``streaming_parts/scenarios.py``):

    A  a slow CPU stage before a fast GPU stage          the CPUs are the limit
    B  fast CPU stages before a slow GPU stage           the GPUs are the limit
    C  a quarter of a GPU beside a whole one             packing is the limit
    D  A, with service times that change at half time    the limit moves from GPUs to CPUs
    E  A, with heavy-tailed service times

Every run has a process and a fresh cluster of its own. The cluster is started before, and has had one driver; from the
call of the engine to its return the clock runs, workers' starts and set-ups included. The ideal is the best fixed
allocation of whole workers, found by trying all of them, with no time for filling, emptying and setting up.

All times of a scenario are scaled so that 2,000 tasks ideally take about 130 s (``--scale`` says otherwise; 1 is the
times as they are written there). The engines' own time constants are not scaled, except in ``xenna-scaled``.
Sleeping needs no CPU, but engines do: where ``cores`` comes near the number of this machine's cores, a figure says
more about what the engine costs than about how it balances. ``--xenna-python`` names an interpreter that has
cosmos-xenna (0.4 and later need Python 3.12: ``pip install cosmos-xenna==0.5.12 tqdm ray[default]==2.60.0``).

Columns: fraction of the ideal throughput in total, and from the first output on; busy fraction of the bottleneck
stage after warm-up, against the workers that the ideal allocation gives it; all busy CPUs or GPUs (of the kind that is
the limit) of those there are, and what the ideal allocation would reach; seconds to the first output; CPU seconds of
the driver, of the cluster's own processes, and of everything; real cores used; set-ups of GPU workers; tasks begun
twice at some stage, and written twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from streaming_parts.cluster import cluster
from streaming_parts.measure import Figures, measure
from streaming_parts.scenarios import CPUS, GPUS, SCENARIOS, Job
from streaming_parts.work import read_events


@dataclass(frozen=True)
class Engine:
    """An engine in one of its forms.

    Args:
        module: ``streaming_parts/engine_MODULE.py``.
        variant: The form.
        dashboard: Whether it needs Ray's dashboard; the others run without, as they can.
    """

    module: str
    variant: str = ""
    dashboard: bool = False


ENGINES = {
    "tamis": Engine("tamis"),
    "tamis-unfused": Engine("tamis", "unfused"),
    "ray-data": Engine("ray_data"),
    "ray-data-actors": Engine("ray_data", "actors"),
    "xenna": Engine("xenna", dashboard=True),
    "xenna-scaled": Engine("xenna", "scaled", dashboard=True),
}
DEFAULT_ENGINES = "tamis,ray-data,ray-data-actors,xenna,xenna-scaled"
PATIENCE = 6
"""A run may take this many times the ideal, and two minutes."""

Cell = Figures | str
"""A run's figures, or why there are none."""


def run(job: Job, engine: Engine, python: str) -> Cell:
    """Run a job on an engine, on a cluster of its own."""
    folder = Path(tempfile.mkdtemp(prefix="tamis-bench-"))
    try:
        (folder / "events").mkdir()
        job = Job(job.letter, job.tasks, job.scale, str(folder / "events"))
        (folder / "job.json").write_text(json.dumps(asdict(job)))
        with cluster(python, dashboard=engine.dashboard) as running:
            cpu, services = running.meter.seconds(), running.services_cpu_s()
            arguments = [engine.module, engine.variant, str(folder / "job.json"), str(folder / "answer.json")]
            limit_s = PATIENCE * job.ideal.seconds + 120
            status = running.run(["-m", "streaming_parts.drive", *arguments], folder / "log", limit_s)
            cpu, services = running.meter.seconds() - cpu, running.services_cpu_s() - services
        if status == -1:
            return f"not done after {limit_s:.0f} s"
        if status:
            return f"failed: {(folder / 'log').read_text(errors='replace').strip()[-1500:]}"
        answer = json.loads((folder / "answer.json").read_text())
        events = list(read_events(folder / "events"))
        return measure(job, events, answer["began"], answer["ended"], cpu, answer["driver_cpu_s"], services)
    finally:
        shutil.rmtree(folder)


COLUMNS = [
    ("total", 8),
    ("from 1st", 10),
    ("busy", 8),
    ("kind busy", 19),
    ("first", 9),
    ("driver", 9),
    ("services", 10),
    ("all CPU", 10),
    ("cores", 7),
    ("set-ups", 9),
    ("doubles", 9),
]


def cells(job: Job, figures: Figures) -> list[str]:
    gpu = job.stages[job.ideal.phases[-1].bottleneck].gpus
    kind, busy = ("gpu", figures.gpus_busy) if gpu else ("cpu", figures.cpus_busy)
    return [
        f"{figures.total:.3f}",
        f"{figures.from_first:.3f}",
        f"{figures.busy:.3f}",
        f"{kind} {busy:.2f} of {figures.best_busy:.2f}",
        f"{figures.first_s:.1f} s",
        f"{figures.driver_cpu_s:.1f} s",
        f"{figures.services_cpu_s:.1f} s",
        f"{figures.cpu_s:.1f} s",
        f"{figures.cpu_s / figures.wall_s:.2f}",
        f"{figures.setups}",
        f"{figures.doubles}/{figures.double_outputs}",
    ]


def complain(name: str, figures: Figures) -> None:
    """Say what makes a run's figures worthless."""
    if figures.missing:
        print(f"   {name}: {figures.missing} tasks did not come out")
    if figures.peak_cpus > CPUS or figures.peak_gpus > GPUS:
        print(f"   {name}: up to {figures.peak_cpus:g} CPUs and {figures.peak_gpus:g} GPUs were busy at once")


def describe(job: Job) -> str:
    phases = [
        f"{list(phase.workers)}, {phase.rate:.2f}/s, held up by {job.stages[phase.bottleneck].name}"
        for phase in job.ideal.phases
    ]
    return (
        f"{job.letter}. {job.scenario.title}: {job.tasks:,} tasks, times x {job.scale:g}\n"
        f"   ideal {job.ideal.seconds:.1f} s: {'; then '.join(phases)}"
    )


def line(label: str, parts: list[str]) -> None:
    widths = [width for _, width in COLUMNS]
    print(
        f"   {label:<17}{''.join(f'{part:>{width}}' for part, width in zip(parts, widths, strict=False))}", flush=True
    )


def summary(results: dict[str, dict[str, Cell]]) -> None:
    """Ours against each peer: total throughput and CPU time."""
    print("\ntamis against its peers: throughput in total, CPU time of all processes (theirs / ours)")
    peers = [name for name in dict.fromkeys(n for cells in results.values() for n in cells) if name != "tamis"]
    print(f"   {'':<4}{'tamis':>8}{''.join(f'{peer:>26}' for peer in peers)}")
    for letter, row in results.items():
        ours = row.get("tamis")
        if not isinstance(ours, Figures):
            continue
        shown = ""
        for peer in peers:
            theirs = row.get(peer)
            ratio = "-"
            if isinstance(theirs, Figures):
                ratio = f"{ours.total / theirs.total:.2f} x, CPU 1/{theirs.cpu_s / ours.cpu_s:.1f}"
            shown += f"{ratio:>26}"
        print(f"   {letter:<4}{ours.total:>8.3f}{shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--scenarios", default="".join(SCENARIOS), help="letters")
    parser.add_argument("--engines", default=DEFAULT_ENGINES, help="names, with commas")
    parser.add_argument("--scale", type=float, help="times of all scenarios; by default each has its own")
    parser.add_argument("--xenna-python", default=sys.executable, help="an interpreter that has cosmos-xenna")
    parser.add_argument("--out", type=Path, help="a JSON file for all figures")
    arguments = parser.parse_args()
    engines = arguments.engines.split(",")
    if unknown := [name for name in engines if name not in ENGINES]:
        parser.error(f"no engine {', '.join(unknown)}; there are {', '.join(ENGINES)}")
    if unknown := [letter for letter in arguments.scenarios if letter not in SCENARIOS]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    print(f"{CPUS} logical CPUs and {GPUS} logical GPUs on {len(os.sched_getaffinity(0))} real cores")
    results: dict[str, dict[str, Cell]] = {}
    for letter in arguments.scenarios:
        job = Job(letter, arguments.tasks, arguments.scale or SCENARIOS[letter].scale)
        print(f"\n{describe(job)}")
        line("", [name for name, _ in COLUMNS])
        results[letter] = {}
        for name in engines:
            python = arguments.xenna_python if ENGINES[name].module == "xenna" else sys.executable
            cell = results[letter][name] = run(job, ENGINES[name], python)
            if isinstance(cell, Figures):
                line(name, cells(job, cell))
                complain(name, cell)
            else:
                print(f"   {name:<17}{cell}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(as_json(results), indent=1))
    if "tamis" in engines:
        summary(results)


def as_json(results: dict[str, dict[str, Cell]]) -> dict[str, dict[str, object]]:
    return {
        letter: {name: asdict(cell) if isinstance(cell, Figures) else cell for name, cell in row.items()}
        for letter, row in results.items()
    }


if __name__ == "__main__":
    main()
