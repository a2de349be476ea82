"""Charts as SVG: histograms, and areas over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tamis.runs import figures
from tamis.runs.figures import shown_score
from tamis.runs.histograms import Bin
from tamis.runs.html import escaped
from tamis.tasks.scored import Bounds

_WIDTH, _HEIGHT, _BARS = 640, 110, 64
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

    @classmethod
    def around(cls, bins: Sequence[Bin], bounds: Bounds) -> Scale:
        """A scale for the bins of a histogram: nearly all scores, and the bounds if they are not far off."""
        total, seen, most = sum(each.kept + each.dropped for each in bins), 0, 0.0
        for each in bins:
            seen += each.kept + each.dropped
            most = each.high
            if seen >= 0.995 * total:
                break
        lowest = bins[0].low if bins else 0.0
        if lowest < 0:
            near = [bound for bound in bounds if bound is not None and lowest * 3 <= bound <= max(most, 1) * 3]
            return cls(min([lowest, *near]), max([most, lowest + 1e-9, *near]), False)
        if all(each.high <= 1.0625 for each in bins):
            inside = [min(bound, 1.0) for bound in bounds if bound is not None]
            return cls(0.0, min(max([most, 0.01, *(1.15 * bound for bound in inside)]), 1.0), False)
        return cls.of(False, lowest, most, bounds)

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


def histogram(
    name: str,
    bins: Iterable[Bin],
    scale: Scale,
    bounds: Bounds,
    proposed: Bounds = (None, None),
    rows: str = "rows",
    inverted: bool = False,
) -> str:
    """A histogram with thresholds in it. The height of a bar is the root of its rows, so that rare ones show.

    Args:
        name: What is measured.
        bins: The rows that were kept and dropped, by score; bars of dropped ones have another colour.
        scale: The range to show.
        bounds: The bounds of what is kept.
        proposed: Bounds that are proposed instead.
        rows: What is counted, in the plural.
        inverted: Whether scores within the bounds are dropped instead.
    """
    kept, lost = [0.0] * _BARS, [0.0] * _BARS
    for each in bins:
        whole = each.low, each.high
        _spread(kept, scale, whole if inverted else _part_within(each, bounds), each.kept)
        _spread(lost, scale, whole if inverted else _part_outside(each, bounds), each.dropped)
    tallest = math.sqrt(max(a + b for a, b in zip(kept, lost, strict=True)) or 1)
    parts, step = [], _WIDTH / _BARS
    for bar in range(_BARS):
        together = kept[bar] + lost[bar]
        if together <= 0:
            continue
        height = max(_HEIGHT * math.sqrt(together) / tallest, 1.0)
        red = height * lost[bar] / together
        begin, end = (shown_score(_short(scale.value((bar + i) / _BARS))) for i in (0, 1))
        title = (
            f"<title>{escaped(begin)} to {escaped(end)}: {figures.number(together)} {rows}, "
            f"{figures.number(lost[bar])} dropped</title>"
        )
        for kind, top, tall in (("bar", _HEIGHT - height + red, height - red), ("bar lost", _HEIGHT - height, red)):
            if tall > 0:
                parts.append(
                    f'<rect class="{kind}" x="{bar * step:.1f}" y="{top:.1f}" width="{step - 1:.1f}" '
                    f'height="{tall:.1f}">{title}</rect>'
                )
    parts.append(f'<path class="rule" d="M0 {_HEIGHT + 0.5} H{_WIDTH}"/>')
    parts += [_mark(scale, bound, "mark") for bound in bounds]
    parts += [_mark(scale, bound, "mark proposed") for bound in proposed]
    ticks = (escaped(shown_score(_short(scale.value(tick / (_TICKS - 1))))) for tick in range(_TICKS))
    axis = "".join(f"<span>{tick}</span>" for tick in ticks)
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT + 1}" preserveAspectRatio="none" role="img" '
        f'aria-label="Distribution of {escaped(name)}">{"".join(parts)}</svg><div class="axis">{axis}</div>'
    )


def _spread(bars: list[float], scale: Scale, values: tuple[float, float], rows: int) -> None:
    """Add the rows of a bin to the bars that it covers."""
    if not rows:
        return
    low, high = values
    first = scale.place(low) * _BARS
    last = scale.place(high) * _BARS
    if low == 0 or last - first <= 1:  # the lower edge is a value of the bin, and zero is the only one of the first bin
        bars[min(int(first if low == 0 else (first + last) / 2), _BARS - 1)] += rows
        return
    for bar in range(int(first), min(math.ceil(last), _BARS)):
        bars[bar] += rows * (min(bar + 1, last) - max(bar, first)) / (last - first)


def _part_within(each: Bin, bounds: Bounds) -> tuple[float, float]:
    """The part of a bin within the bounds, if one of them cuts the bin."""
    low, high = bounds
    if low is not None and each.low < low < each.high:
        return low, each.high
    if high is not None and each.low < high < each.high:
        return each.low, high
    return each.low, each.high


def _part_outside(each: Bin, bounds: Bounds) -> tuple[float, float]:
    low, high = bounds
    if low is not None and each.low < low < each.high:
        return each.low, low
    if high is not None and each.low < high < each.high:
        return high, each.high
    return each.low, each.high


def area(
    values: Sequence[float], label: str, most: float | None = None, limit: float | None = None, tall: bool = False
) -> str:
    """An area over time: values at equal distances.

    Args:
        values: The values, at least one.
        label: What it shows, for those who cannot see it.
        most: The value at the upper edge; the highest one when not given.
        limit: A value to draw a dashed line at.
        tall: Whether it is a chart of its own, not one in a row of a table.
    """
    top = max([most or 0.0, *values, *([limit] if limit else [])]) or 1.0
    step = 1000 / max(len(values) - 1, 1)
    points = " ".join(f"L{i * step:.1f} {100 - 100 * value / top:.1f}" for i, value in enumerate(values))
    line = "" if limit is None else f'<path class="limit" d="M0 {100 - 100 * limit / top:.1f} H1000"/>'
    return (
        f'<svg class="area{" tall" if tall else ""}" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escaped(label)}"><path class="rule" d="M0 100 H1000"/>'
        f'<path d="M0 100 {points} L1000 100 Z"/>{line}</svg>'
    )


def _short(value: float) -> float:
    """A value for a label: three digits."""
    return float(f"{value:.3g}")


def _mark(scale: Scale, bound: float | None, kind: str) -> str:
    if bound is None or not scale.low <= bound <= scale.high:
        return ""
    x = scale.place(bound) * _WIDTH
    return f'<path class="{kind}" d="M{x:.1f} 0 V{_HEIGHT}"/>'
