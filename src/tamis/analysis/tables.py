"""The tables that an analysis writes: scores as Parquet, and what a terminal shows."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from tamis.analysis.result import PERCENTILES, Analysis
from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.figures import shown_bounds, shown_score
from tamis.runs.terminal import rendered
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.stages.text.statistics.measures import BYTES, LENGTHS, bin_edges, is_share

_NOTABLE_LOSS: Final = 0.01

_SCHEMA: dict[str, Any] = {
    "measure": pl.String,
    "kind": pl.String,
    "percentile": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "documents": pl.Int64,
    "share": pl.Float64,
}


def measures_of(analysis: Analysis) -> dict[str, bool]:
    """Everything that is measured, and whether its values are from 0 to 1."""
    return dict.fromkeys(LENGTHS, False) | {one.name: is_share(one) for one in analysis.filters}


def bins_of(analysis: Analysis, measure: str) -> pl.DataFrame:
    """The bins of a measure that have documents: ``low``, ``high`` (null for the last) and ``documents``."""
    edges = pl.DataFrame({"low": bin_edges(measures_of(analysis)[measure])}).with_row_index("bin")
    edges = edges.with_columns(pl.col("bin").cast(pl.Int64), high=pl.col("low").shift(-1))
    found = analysis.summary.histogram.filter(pl.col("measure") == measure)
    return found.join(edges, on="bin", how="left").sort("bin").select("low", "high", "documents")


def score_table(analysis: Analysis) -> pl.DataFrame:
    """All distributions in one table, a row for each figure.

    ``kind`` says what a row is: a ``percentile`` (``low`` is the value), a ``bin`` (values from ``low`` up to but not
    ``high``, and how many ``documents`` are in it) or a threshold (scores from ``low`` to ``high`` are kept, which is a
    ``share`` of the documents): ``default``, ``proposed alone`` or ``proposed together``.
    """
    rows: list[dict[str, Any]] = []
    for measure in measures_of(analysis):
        rows += (
            {"measure": measure, "kind": "percentile", "percentile": p, "low": analysis.percentile(measure, p)}
            for p in PERCENTILES
        )
        rows += ({"measure": measure, "kind": "bin", **row} for row in bins_of(analysis, measure).iter_rows(named=True))
    thresholds: list[tuple[str, ThresholdFilter, float]] = [
        ("default", one, analysis.kept_share(one.name)) for one in analysis.filters
    ]
    thresholds += [("proposed alone", p.filter, p.kept) for p in analysis.alone.values()]
    thresholds += [("proposed together", p.filter, p.kept) for p in analysis.together]
    for kind, one, share in thresholds:
        low, high = one.bounds()
        rows.append({"measure": one.name, "kind": kind, "low": low, "high": high, "share": share})
    return pl.DataFrame(rows, schema=_SCHEMA)


def terminal_table(analysis: Analysis, *, width: int = 100, color: bool = False) -> str:
    """The main figures as a table for terminals."""
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
    return rendered(*(Text(printable(line)) for line in headline(analysis)), Text(), table, width=width, color=color)


def headline(analysis: Analysis) -> list[str]:
    """The main figures of the data set, in a few lines."""
    summary, distinct = analysis.summary, analysis.summary.distinct()
    documents = figures.number(analysis.documents)
    if not analysis.coverage.is_whole:
        documents += f" of about {figures.number(analysis.documents_in_all)}"
    lengths = ", ".join(f"{shown_score(analysis.percentile(BYTES, p))}" for p in (10, 50, 90))
    lines = [
        f"{documents} documents, {figures.size(summary.total(BYTES))}, {figures.number(summary.total('words'))} words",
        f"lengths in bytes (10%, 50%, 90%): {lengths}",
        f"without a word: {figures.percent(summary.total('empty') / analysis.documents)}; "
        f"exact duplicates: {figures.percent(distinct.duplicate_share)}"
        + (f" (± {figures.percent(2 * distinct.share_error)})" if distinct.share_error else ""),
    ]
    for name, column in (("languages", "language"), ("scripts", "script")):
        shares = analysis.shares(column)
        if shares:
            top = ", ".join(f"{value} {figures.percent(count / len(analysis.sample))}" for value, count in shares[:6])
            lines.append(f"{name}: {top}" + (", ..." if len(shares) > 6 else ""))
    return lines


def closing_line(analysis: Analysis) -> str:
    """The shares that the thresholds keep, in a sentence or two."""
    text = (
        f"The default thresholds together keep {figures.percent(analysis.kept_share_of_all())}, the proposed ones "
        f"{figures.percent(analysis.proposed_share())} ({figures.percent(analysis.keep_rate)} was requested)."
    )
    return f"{text} {small_sample_note(analysis)}".rstrip()


def small_sample_note(analysis: Analysis) -> str:
    """A warning if the sample is too small for its thresholds; empty if it is not."""
    loss = analysis.unseen_loss()
    if loss < _NOTABLE_LOSS:
        return ""
    least = figures.percent(analysis.proposed_share() - loss)
    return f"The sample is small for so many thresholds: of the whole input they may keep no more than {least}."
