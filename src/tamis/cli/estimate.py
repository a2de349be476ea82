"""``tamis plan --estimate``: shows what a run would need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.cli.output import show, terminal_width, write
from tamis.printable import printable

if TYPE_CHECKING:
    from tamis.pipeline.estimate import Estimate

__all__ = ["show_estimate"]


def show_estimate(estimate: Estimate) -> None:
    """Write an estimate to stdout, as tables."""
    from rich.table import Table
    from rich.text import Text

    from tamis.runs import figures

    stages = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    stages.add_column("stage", overflow="fold", min_width=12)
    for name in ("cpu time", "share", "rows out"):
        stages.add_column(name, justify="right", no_wrap=True)
    for stage in estimate.stages:
        rows = figures.percent(None) if stage.rows_out is None else figures.number(stage.rows_out)
        name = figures.short_name(printable(stage.name), max(20, terminal_width() - 40))
        stages.add_row(Text(name), figures.duration(stage.cpu_seconds), figures.percent(stage.share), rows)
    low, high = estimate.seconds_range
    totals = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    totals.add_column(no_wrap=True)
    totals.add_column(overflow="fold")
    total = figures.duration(estimate.seconds)
    span = f"{figures.rough_duration(low)} to {figures.rough_duration(high)}"
    totals.add_row("time", f"{total} ({span}), {figures.duration(estimate.startup_seconds)} of it to start")
    totals.add_row("limited by", {"cpu": "processors", "gpu": "GPUs", "disk": "the disk"}[estimate.limit])
    totals.add_row("memory", figures.size(estimate.memory_bytes))
    totals.add_row("scratch disk", figures.size(estimate.scratch_bytes))
    totals.add_row("run directory", figures.size(estimate.record_bytes))
    totals.add_row("output", f"{figures.number(estimate.output_rows)} rows, {figures.size(estimate.output_bytes)}")
    head = (
        f"Estimate of {printable(estimate.pipeline)!r} on {estimate.target}, for {figures.size(estimate.input_bytes)} "
        f"in {figures.number(estimate.input_tasks)} tasks. The sample: {figures.size(estimate.sample_bytes)} in "
        f"{figures.number(estimate.sample_tasks)} parts, {figures.duration(estimate.sample_seconds)}"
    )
    show(Text(head), Text(), stages, Text(), totals)
    for note in estimate.notes:
        write(f"note: {note}")
