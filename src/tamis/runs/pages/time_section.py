"""The run over time: how fast each stage was, memory, workers, GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.html import cell, escaped, html_table
from tamis.runs.pages.charts import area
from tamis.runs.pages.run_view import RunView
from tamis.runs.pages.timeline import Sample, rates

_SHOWN_GPUS: Final = 16


def throughput_section(view: RunView, steps: Sequence[Step]) -> str:
    """A small chart for each stage: rows per second over the time of the run."""
    if len(view.samples) < 2:
        return ""
    rows = []
    for step in steps:
        name = step.stage.name
        speeds = rates(view.samples, name)
        if not speeds or not any(speeds):
            continue
        last = view.samples[-1]
        peak, mean = max(speeds), last.through(name) / last.seconds if last.seconds else 0.0
        workers = max(sample.count(name, "workers") for sample in view.samples)
        tasks = last.count(name, "tasks_in")
        label = f"rows per second of {name} over time, at most {figures.rate(peak, 1)}"
        waited = last.count(name, "queue_s") / tasks if tasks else None
        rows.append(
            f'<tr><td class="name">{escaped(name)}</td>'
            f'<td class="area">{area(speeds, label)}</td>'
            f"{cell(figures.rate(mean, 1), mean)}{cell(figures.rate(peak, 1), peak)}"
            f"{cell(figures.number(workers) if workers else '', workers)}"
            f"{cell('' if waited is None else figures.duration(waited), waited or 0.0)}</tr>"
        )
    if not rows:
        return ""
    seconds = figures.duration(view.samples[-1].seconds)
    heads = ("Stage", "Rows/s over time", "Mean", "Peak", "Workers", "Wait per task")
    table = html_table(heads, rows, "sortable", words=("Rows/s over time",))
    return f"<h2>Throughput<small>over {seconds}; each chart has a scale of its own</small></h2>{table}"


def resources_section(view: RunView) -> str:
    """Memory, workers and GPUs over time."""
    samples = view.samples
    if len(samples) < 2:
        return ""
    charts = []
    held, budget = [sample.held_bytes for sample in samples], max(sample.budget_bytes for sample in samples)
    if any(held):
        title = f"Data between stages, at most {figures.size(max(held))}"
        title += f" of {figures.size(budget)}" if budget else ""
        charts.append(_chart(title, held, budget if budget and budget < 8 * max(held) else None, samples))
    workers = max(sample.workers for sample in samples)
    if workers:
        busy = [min(sample.running, sample.workers or sample.running) for sample in samples]
        charts.append(_chart(f"Busy workers, at most {max(busy)} of {workers}", busy, workers, samples))
    memory = [sample.memory_bytes for sample in samples]
    if any(memory):
        charts.append(_chart(f"Memory, at most {figures.size(max(memory))}", memory, None, samples))
    gpus = _gpus(samples)
    if not charts and not gpus:
        return ""
    return f'<h2>Resources</h2><div class="charts">{"".join(charts)}</div>{gpus}'


def _chart(title: str, values: Sequence[float], limit: float | None, samples: Sequence[Sample]) -> str:
    axis = f'<div class="axis"><span>0 s</span><span>{escaped(figures.duration(samples[-1].seconds))}</span></div>'
    return f"<div><h3>{escaped(title)}</h3>{area(values, title, limit=limit, tall=True)}{axis}</div>"


def _gpus(samples: Sequence[Sample]) -> str:
    """What each GPU did at the last sample that says so, as a table: the fields are those that were reported."""
    known = [sample.gpus for sample in samples if sample.gpus and all(isinstance(gpu, dict) for gpu in sample.gpus)]
    if not known:
        return ""
    gpus: list[dict[str, Any]] = list(known[-1])[:_SHOWN_GPUS]
    names = list(dict.fromkeys(name for gpu in gpus for name in gpu))[:8]
    rows = ["".join(f"<td>{escaped(gpu.get(name, ''), 60)}</td>" for name in names) for gpu in gpus]
    heads = [escaped(name.replace("_", " "), 40) for name in names]
    return f"<h3>GPUs</h3>{html_table(heads, [f'<tr>{row}</tr>' for row in rows])}"
