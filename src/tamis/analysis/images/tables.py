"""The tables that an analysis of images writes, and what a terminal shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from tamis.analysis.images.result import SIZES, ImageAnalysis
from tamis.analysis.scores import score_rows, table_of
from tamis.runs import figures
from tamis.runs.figures import shown_score

__all__ = ["image_score_table", "image_terminal_table"]

_BINS: Final = 64


def image_score_table(analysis: ImageAnalysis) -> pl.DataFrame:
    """All distributions in one table; see :func:`~tamis.analysis.scores.score_rows`. The last bin has its end, too."""

    def bins(measure: str) -> Iterator[dict[str, Any]]:
        values = analysis.scores(measure)
        counts, edges = np.histogram(values, _BINS) if len(values) else (np.zeros(0), np.zeros(1))
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True):
            if count:
                yield {"low": low, "high": high, "images": count}

    return score_rows(analysis, "images", [*SIZES, *(one.name for one in analysis.filters)], bins)


def image_terminal_table(analysis: ImageAnalysis, *, width: int = 100, color: bool = False) -> str:
    """The main figures as a table for terminals."""
    return table_of(analysis, _headline(analysis), width=width, color=color)


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
