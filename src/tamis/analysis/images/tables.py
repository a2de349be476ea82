"""The tables that an analysis of images writes, and what a terminal shows of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from tamis.analysis.images.result import SIZES, ImageAnalysis
from tamis.analysis.result import PERCENTILES
from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.figures import shown_bounds, shown_score
from tamis.runs.terminal import rendered

__all__ = ["image_closing_line", "image_score_table", "image_terminal_table"]

_BINS: Final = 64

_SCHEMA: dict[str, Any] = {
    "measure": pl.String,
    "kind": pl.String,
    "percentile": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "images": pl.Int64,
    "share": pl.Float64,
}


def image_score_table(analysis: ImageAnalysis) -> pl.DataFrame:
    """All distributions in one table, a row for each figure.

    ``kind`` says what a row is: a ``percentile`` (``low`` is the value), a ``bin`` (values from ``low`` up to but not
    ``high``, the last one inclusive, and how many ``images`` are in it) or a threshold (scores from ``low`` to ``high``
    are kept, which is a ``share`` of the images): ``default``, ``proposed alone`` or ``proposed together``.
    """
    rows: list[dict[str, Any]] = []
    for measure in [*SIZES, *(one.name for one in analysis.filters)]:
        values = analysis.scores(measure)
        rows += (
            {"measure": measure, "kind": "percentile", "percentile": p, "low": analysis.percentile(measure, p)}
            for p in PERCENTILES
        )
        if len(values):
            counts, edges = np.histogram(values, _BINS)
            rows += (
                {"measure": measure, "kind": "bin", "low": low, "high": high, "images": count}
                for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
                if count
            )
    thresholds: list[tuple[str, Any, float]] = [
        ("default", one, analysis.kept_share(one.name)) for one in analysis.filters
    ]
    thresholds += [("proposed alone", p.filter, p.kept) for p in analysis.alone.values()]
    thresholds += [("proposed together", p.filter, p.kept) for p in analysis.together]
    for kind, one, share in thresholds:
        low, high = one.bounds()
        rows.append({"measure": one.name, "kind": kind, "low": low, "high": high, "share": share})
    return pl.DataFrame(rows, schema=_SCHEMA)


def image_terminal_table(analysis: ImageAnalysis, *, width: int = 100, color: bool = False) -> str:
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
    lines = (Text(printable(line)) for line in _headline(analysis))
    return rendered(*lines, Text(), table, width=width, color=color)


def image_closing_line(analysis: ImageAnalysis) -> str:
    """The shares that the thresholds keep, in a sentence."""
    return (
        f"The default thresholds together keep {figures.percent(analysis.kept_share_of_all())}, the proposed ones "
        f"{figures.percent(analysis.proposed_share())} ({figures.percent(analysis.keep_rate)} was requested)."
    )


def _headline(analysis: ImageAnalysis) -> list[str]:
    """The main figures of the images, in a few lines."""
    nbytes = int(analysis.table["nbytes"].sum() or 0)
    images = figures.number(analysis.images)
    if analysis.fraction < 1:
        images += f" ({figures.percent(analysis.fraction)} of all)"
    formats = ", ".join(f"{name} {figures.number(count)}" for name, count in analysis.counts("image_format"))
    sides = "; ".join(
        f"{name} {', '.join(shown_score(analysis.percentile(name, p)) for p in (10, 50, 90))}"
        for name in ("width", "height")
    )
    return [
        f"{images} images, {figures.size(nbytes)}; {figures.number(len(analysis.broken))} broken",
        f"formats: {formats}",
        f"pixels (10%, 50%, 90%): {sides}",
        f"duplicates: {figures.number(analysis.exact.removed)} with the same bytes, "
        f"{figures.number(analysis.pixels.removed)} with the same pixels, "
        f"{figures.number(analysis.near.removed)} nearly the same",
    ]
