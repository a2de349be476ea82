"""What analyses of texts and of images say about the scores of filters: figures, tables, part of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import polars as pl

from tamis.analysis.thresholds import Proposal
from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.figures import shown_bounds, shown_score
from tamis.runs.html import cell, escaped
from tamis.runs.terminal import rendered
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.tasks.scored import Bounds

__all__ = [
    "NO_BOUNDS",
    "PERCENTILES",
    "Scored",
    "figures_of_filters",
    "score_rows",
    "scores_part",
    "table_of",
    "verdict",
]

PERCENTILES: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99)
NO_BOUNDS: Final[Bounds] = (None, None)


class Scored(Protocol):
    """What an analysis knows of scores and thresholds; the two kinds of analysis say what each member is."""

    @property
    def filters(self) -> Sequence[ThresholdFilter]: ...
    @property
    def alone(self) -> dict[str, Proposal]: ...
    @property
    def together(self) -> Sequence[Proposal]: ...
    @property
    def keep_rate(self) -> float: ...
    def percentile(self, measure: str, percent: float) -> float: ...
    def kept_share(self, filter_name: str) -> float: ...
    def dropped_alone_share(self, filter_name: str) -> float: ...
    def kept_share_of_all(self) -> float: ...
    def proposed_share(self) -> float: ...


def figures_of_filters(analysis: Scored) -> dict[str, Any]:
    """The shares that thresholds keep, and the scores of each filter, for programs."""
    proposed = {proposal.filter.name: proposal.filter.bounds() for proposal in analysis.together}
    return {
        "keep_rate": analysis.keep_rate,
        "kept_by_defaults": analysis.kept_share_of_all(),
        "kept_by_proposal": analysis.proposed_share(),
        "filters": {
            one.name: {
                "default": one.bounds(),
                "kept": analysis.kept_share(one.name),
                "dropped_alone": analysis.dropped_alone_share(one.name),
                "percentiles": {str(p): analysis.percentile(one.name, p) for p in PERCENTILES},
                "proposed_alone": analysis.alone[one.name].filter.bounds() if one.name in analysis.alone else None,
                "proposed_together": proposed.get(one.name),
            }
            for one in analysis.filters
        },
    }


def score_rows(
    analysis: Scored, unit: str, measures: Iterable[str], bins: Callable[[str], Iterable[dict[str, Any]]]
) -> pl.DataFrame:
    """All distributions in one table, a row for each figure.

    ``kind`` says what a row is: a ``percentile`` (``low`` is the value), a ``bin`` (values from ``low`` up to but not
    ``high``, and how many documents or images are in it) or a threshold (scores from ``low`` to ``high`` are kept,
    which is a ``share`` of all): ``default``, ``proposed alone`` or ``proposed together``.

    Args:
        analysis: The analysis.
        unit: What is counted: ``"documents"`` or ``"images"``.
        measures: What is measured.
        bins: The bins of a measure: ``low``, ``high`` and the count, under the name of the unit.
    """
    rows: list[dict[str, Any]] = []
    for measure in measures:
        rows += (
            {"measure": measure, "kind": "percentile", "percentile": p, "low": analysis.percentile(measure, p)}
            for p in PERCENTILES
        )
        rows += ({"measure": measure, "kind": "bin", **row} for row in bins(measure))
    thresholds = [("default", one, analysis.kept_share(one.name)) for one in analysis.filters]
    thresholds += [("proposed alone", p.filter, p.kept) for p in analysis.alone.values()]
    thresholds += [("proposed together", p.filter, p.kept) for p in analysis.together]
    for kind, one, share in thresholds:
        low, high = one.bounds()
        rows.append({"measure": one.name, "kind": kind, "low": low, "high": high, "share": share})
    number = pl.Float64
    columns = {"measure": pl.String, "kind": pl.String, "percentile": number, "low": number, "high": number}
    return pl.DataFrame(rows, schema={**columns, unit: pl.Int64, "share": number})


def table_of(analysis: Scored, headline: Iterable[str], *, width: int, color: bool) -> str:
    """The main figures as a table for terminals, below some lines."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("filter", overflow="fold", min_width=12)
    for name in ("median", "default", "drops", "alone", "proposed"):
        table.add_column(name, justify="left" if name in ("default", "proposed") else "right", no_wrap=True)
    proposed = {proposal.filter.name: proposal.filter.bounds() for proposal in analysis.together}
    for one in analysis.filters:
        name = one.name
        table.add_row(
            Text(name),
            shown_score(analysis.percentile(name, 50)),
            shown_bounds(one.bounds()),
            figures.percent(1 - analysis.kept_share(name)),
            figures.percent(analysis.dropped_alone_share(name)),
            shown_bounds(proposed[name]) if name in proposed else "",
        )
    return rendered(*(Text(printable(line)) for line in headline), Text(), table, width=width, color=color)


def verdict(analysis: Scored) -> str:
    """The shares that the thresholds keep, in a sentence."""
    return (
        f"The default thresholds together keep {figures.percent(analysis.kept_share_of_all())}, the proposed ones "
        f"{figures.percent(analysis.proposed_share())} ({figures.percent(analysis.keep_rate)} was requested)."
    )


def scores_part(
    analysis: Scored,
    unit: str,
    chart: Callable[[Any, Bounds], str],
    examples: Callable[[Any, ThresholdFilter | None], str],
) -> str:
    """The part of a page with the scores of each filter.

    Args:
        analysis: The analysis.
        unit: What is counted: ``"documents"`` or ``"images"``.
        chart: Draws the scores of a filter, given the bounds that are proposed.
        examples: What is shown below that, given the filter with the proposed bounds, if there is one.
    """
    proposed = {proposal.filter.name: proposal.filter for proposal in analysis.together}
    parts = [
        f"<h2>Scores<small>bars: the root of the number of {unit}; red: dropped by default; line: default threshold; "
        "dashed: proposed with the others</small></h2>"
    ]
    for one in analysis.filters:
        other = proposed.get(one.name)
        heads = "".join(f'<th scope="col">{p}%</th>' for p in PERCENTILES)
        values = "".join(cell(shown_score(analysis.percentile(one.name, p))) for p in PERCENTILES)
        facts = f"default: {shown_bounds(one.bounds())}, keeps {figures.percent(analysis.kept_share(one.name))}"
        if other is not None:
            facts += f"; proposed: {shown_bounds(other.bounds())}"
        parts.append(
            f'<h3 id="{escaped(one.name)}">{escaped(one.name)} <small class="soft">{escaped(facts)}</small></h3>'
            f"{chart(one, other.bounds() if other else NO_BOUNDS)}"
            f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody><tr>{values}</tr></tbody></table></div>'
            f"{examples(one, other)}"
        )
    return "".join(parts)
