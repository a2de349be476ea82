"""The tables that an analysis writes: scores as Parquet, and what a terminal shows."""

from __future__ import annotations

import functools
from typing import Final

import polars as pl

from tamis.analysis.result import Analysis
from tamis.analysis.scores import score_rows, table_of, verdict
from tamis.runs import figures
from tamis.runs.figures import shown_score
from tamis.stages.text.statistics.measures import BYTES, LENGTHS, bin_edges, is_share

_NOTABLE_LOSS: Final = 0.01


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
    """All distributions in one table; see :func:`~tamis.analysis.scores.score_rows`."""
    bins = functools.partial(bins_of, analysis)
    return score_rows(analysis, "documents", measures_of(analysis), lambda name: bins(name).iter_rows(named=True))


def terminal_table(analysis: Analysis, *, width: int = 100, color: bool = False) -> str:
    """The main figures as a table for terminals."""
    return table_of(analysis, headline(analysis), width=width, color=color)


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
    return f"{verdict(analysis)} {small_sample_note(analysis)}".rstrip()


def small_sample_note(analysis: Analysis) -> str:
    """A warning if the sample is too small for its thresholds; empty if it is not."""
    loss = analysis.unseen_loss()
    if loss < _NOTABLE_LOSS:
        return ""
    least = figures.percent(analysis.proposed_share() - loss)
    return f"The sample is small for so many thresholds: of the whole input they may keep no more than {least}."
