"""Histograms as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from tamis.analysis.tables import shown_score
from tamis.runs import figures
from tamis.runs.html import escaped

Bounds = tuple[float | None, float | None]

_WIDTH, _HEIGHT, _FOOT, _BARS = 640, 110, 22, 64
_TICKS: Final = 5


@dataclass(frozen=True)
class Scale:
    """The range of values that a chart shows; what is above is shown at its end. In a log scale steps are ratios."""

    low: float
    high: float
    is_log: bool

    @classmethod
    def of(cls, is_share: bool, lowest: float, most: float, bounds: Sequence[float | None]) -> Scale:
        """A scale for values of which nearly all are below ``most``; a bound that is not far off is shown, too."""
        near = [bound for bound in bounds if bound is not None and bound <= 3 * most]
        high = max([most, *(1.15 * bound for bound in near)])
        if is_share:
            return cls(0.0, min(max(high, 0.01), 1.001), False)
        low = max(min([lowest, *near]), 0.0)
        is_log = high > 50 * max(low, 1)
        return cls(max(low, 1.0) if is_log else low, max(high, low + 1), is_log)

    def place(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        if self.is_log:
            place = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return min(max(place, 0.0), 1.0)

    def value(self, place: float) -> float:
        """The value at a place."""
        if self.is_log:
            return float(self.low * (self.high / self.low) ** place)
        return self.low + (self.high - self.low) * place


def histogram(name: str, bins: pl.DataFrame, scale: Scale, default: Bounds, proposed: Bounds) -> str:
    """A histogram with thresholds in it. The height of a bar is the root of its documents, so that rare ones show.

    Args:
        name: What is measured.
        bins: ``low``, ``high`` and ``documents`` of each bin.
        scale: The range to show.
        default: The bounds of what is kept by default; bars outside have another colour.
        proposed: The bounds that are proposed.
    """
    kept, lost = [0] * _BARS, [0] * _BARS
    for low, high, documents in bins.iter_rows():
        middle = low if high is None or low == 0 else (low + high) / 2
        bar = min(int(scale.place(middle) * _BARS), _BARS - 1)
        # The middle of a bin may be on the other side of a threshold in it; its lower edge is a value of the bin.
        is_kept = (default[0] is None or low >= default[0]) and (default[1] is None or low <= default[1])
        (kept if is_kept else lost)[bar] += documents
    tallest = math.sqrt(max(a + b for a, b in zip(kept, lost, strict=True)) or 1)
    parts, step = [], _WIDTH / _BARS
    for bar in range(_BARS):
        together = kept[bar] + lost[bar]
        if not together:
            continue
        height = max(_HEIGHT * math.sqrt(together) / tallest, 1.0)
        red = height * lost[bar] / together
        begin, end = (shown_score(_short(scale.value((bar + i) / _BARS))) for i in (0, 1))
        title = f"<title>{escaped(begin)} to {escaped(end)}: {figures.number(together)} documents</title>"
        for kind, top, tall in (("bar", _HEIGHT - height + red, height - red), ("bar lost", _HEIGHT - height, red)):
            if tall > 0:
                parts.append(
                    f'<rect class="{kind}" x="{bar * step:.1f}" y="{top:.1f}" width="{step - 1:.1f}" '
                    f'height="{tall:.1f}">{title}</rect>'
                )
    parts.append(f'<path class="rule" d="M0 {_HEIGHT + 0.5} H{_WIDTH}"/>')
    parts += [_mark(scale, bound, "mark") for bound in default]
    parts += [_mark(scale, bound, "mark proposed") for bound in proposed]
    for tick in range(_TICKS):
        place = tick / (_TICKS - 1)
        anchor = {0.0: "start", 1.0: "end"}.get(place, "middle")
        shown = escaped(shown_score(_short(scale.value(place))))
        parts.append(f'<text x="{place * _WIDTH:.0f}" y="{_HEIGHT + 15}" text-anchor="{anchor}">{shown}</text>')
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT + _FOOT}" role="img" '
        f'aria-label="Distribution of {escaped(name)}">{"".join(parts)}</svg>'
    )


def _short(value: float) -> float:
    """A value for a label: three digits."""
    return float(f"{value:.3g}")


def _mark(scale: Scale, bound: float | None, kind: str) -> str:
    if bound is None or not scale.low <= bound <= scale.high:
        return ""
    x = scale.place(bound) * _WIDTH
    return f'<path class="{kind}" d="M{x:.1f} 0 V{_HEIGHT}"/>'
