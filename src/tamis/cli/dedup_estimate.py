"""``tamis dedup estimate``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tamis.cli.dedup import reader_of, stage_settings
from tamis.cli.output import print_json, show, write

if TYPE_CHECKING:
    from rich.table import Table

    from tamis.analysis.deduplication import DeduplicationEstimate


def run(arguments: argparse.Namespace) -> int:
    """Show what fuzzy deduplication would remove at which threshold, and what it would need."""
    from tamis.analysis.deduplication import estimate_deduplication

    estimate = estimate_deduplication(
        reader_of(arguments),
        stage_settings(arguments, "fuzzy"),
        sample=None if arguments.all else arguments.sample,
        cores=arguments.cores,
        gpus=arguments.gpus_beside,
        workers=arguments.workers,
    )
    if arguments.json:
        print_json(estimate.to_dict())
    else:
        _show(estimate)
    return 0


def _show(estimate: DeduplicationEstimate) -> None:
    from rich.text import Text

    from tamis.runs import figures

    part = "all of it" if estimate.is_whole else figures.percent(estimate.sample_bytes / estimate.input_bytes)
    looked = f"{figures.number(estimate.documents)} documents, {figures.size(estimate.sample_bytes)} ({part})"
    show(Text(f"What would be removed, from {looked}"), Text(), _thresholds(estimate), Text(), _costs(estimate))
    if not estimate.is_whole:
        write(
            "note: documents were compared within the sample only, which shows fewer duplicates than there are. The "
            "column 'whole' is computed from how often documents occur in the sample. --all looks at everything"
        )
    write("note: 'removed' joins all pairs of that similarity; 'found' is the chance that these bands find such a pair")
    for note in estimate.notes:
        write(f"note: {note}")


def _thresholds(estimate: DeduplicationEstimate) -> Table:
    from rich.table import Table

    from tamis.runs import figures

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    heads = ["similarity", "removed", "share", *([] if estimate.is_whole else ["whole"]), "found"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for one in estimate.thresholds:
        whole = [] if estimate.is_whole else [figures.percent(one.whole_share)]
        row = [figures.number(one.removed), figures.percent(one.share), *whole, figures.percent(one.found)]
        table.add_row(f"{one.threshold:.2f}", *row)
    return table


def _costs(estimate: DeduplicationEstimate) -> Table:
    from rich.table import Table

    from tamis.runs import figures

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    cost = estimate.cost
    for number, time in enumerate(estimate.times):
        low, high = cost.seconds_range
        span = f" ({figures.rough_duration(low)} to {figures.rough_duration(high)})" if not number else ""
        table.add_row("time" if not number else "", f"{figures.duration(time.seconds)}{span} on {time.target}")
    budget = figures.size(estimate.memory_budget)
    table.add_row("memory", f"{figures.size(cost.memory_bytes)}, and at most {budget} for tables (--memory-budget)")
    table.add_row("scratch disk", figures.size(cost.scratch_bytes))
    table.add_row("run directory", figures.size(cost.record_bytes))
    table.add_row("signatures", f"{figures.size(estimate.signatures_per_s)} of text per second on one core")
    return table
