"""Histograms of the scores that filters compute, for the rows that are kept and for those that are dropped.

A bin is a sixteenth of an octave: 16 bins from 1 to 2, 16 from 2 to 4, and so on, likewise below 1 and below 0. The
number of a bin is the upper sixteen bits of the floating-point number, so counting costs about 3 ns per score: less
than 1 % of the time of a run with 28 filters (benchmarks/bench_scores.py). Histograms of workers add up exactly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.tasks.scored import Bounds

if TYPE_CHECKING:
    from tamis.runs.stats import StageStats

SCORES_FILE: Final = "scores.json"
"""The file of a run directory that holds the histograms."""

_PER_OCTAVE: Final = 16
_SMALLEST: Final = -20
"""Values closer to zero than two to this power are counted as zero."""

_BASE: Final = (1023 + _SMALLEST) * _PER_OCTAVE - 1
_LAST: Final = 64 * _PER_OCTAVE
_HIGH_WORD: Final = 3 if sys.byteorder == "little" else 0


class Bin(NamedTuple):
    """Scores from ``low`` up to but not ``high``: how many rows were kept, and how many dropped."""

    low: float
    high: float
    kept: int
    dropped: int


@dataclass
class _Counts:
    """Counts of consecutive bins, the first of which has a number."""

    first: int = 0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, first: int, counts: NDArray[np.int64]) -> None:
        if not len(counts):
            return
        if not len(self.counts):
            self.first, self.counts = first, counts.copy()
            return
        begin, end = min(self.first, first), max(self.first + len(self.counts), first + len(counts))
        if begin < self.first or end > self.first + len(self.counts):
            wider = np.zeros(end - begin, np.int64)
            wider[self.first - begin : self.first - begin + len(self.counts)] = self.counts
            self.first, self.counts = begin, wider
        self.counts[first - self.first : first - self.first + len(counts)] += counts

    def items(self) -> Iterator[tuple[int, int]]:
        for place in np.flatnonzero(self.counts).tolist():
            yield self.first + place, int(self.counts[place])

    def packed(self) -> list[int]:
        """The bins that have rows, one after the other: how far each is from the one before, and its count."""
        places = np.flatnonzero(self.counts)
        flat = np.empty(2 * len(places), np.int64)
        flat[0::2] = np.diff(places + self.first, prepend=0)
        flat[1::2] = self.counts[places]
        return flat.tolist()

    def add_packed(self, flat: Sequence[int]) -> None:
        """Add what :meth:`packed` gives."""
        if not flat:
            return
        places = np.cumsum(flat[0::2])
        if len(flat) % 2 or np.any(np.abs(places) > _LAST):
            raise ValueError(f"these are not the bins of a histogram: {flat[:8]}")
        counts = np.zeros(places[-1] - places[0] + 1, np.int64)
        counts[places - places[0]] = flat[1::2]
        self.add(int(places[0]), counts)

    @property
    def total(self) -> int:
        return int(self.counts.sum())


@dataclass
class ScoreHistogram:
    """How often each score was given, by one criterion of one stage.

    Args:
        bounds: The scores that are kept, where that is known.
        inverted: Whether scores within the bounds are dropped instead.

    >>> histogram = ScoreHistogram((2, None))
    >>> histogram.count(np.array([1.0, 5.0, 5.1]), np.array([False, True, True]))
    >>> histogram.rows_kept, histogram.rows_dropped, list(histogram.bins())
    (2, 1, [Bin(low=1.0, high=1.0625, kept=0, dropped=1), Bin(low=5.0, high=5.25, kept=2, dropped=0)])
    """

    bounds: Bounds = (None, None)
    inverted: bool = False
    _all: _Counts = field(default_factory=_Counts)
    _dropped: _Counts = field(default_factory=_Counts)

    @classmethod
    def like(cls, other: ScoreHistogram) -> ScoreHistogram:
        """An empty histogram of the same criterion."""
        return cls(other.bounds, other.inverted)

    def count(self, scores: NDArray[np.float64], kept: NDArray[np.bool_] | None = None) -> None:
        """Count the scores of some rows, of which all were kept if nothing else is said."""
        if not len(scores):
            return
        self._all.add(*_counted(scores))
        if kept is not None and not kept.all():
            self._dropped.add(*_counted(scores[~kept]))

    def add(self, other: ScoreHistogram) -> None:
        """Add the counts of another worker."""
        self._all.add(other._all.first, other._all.counts)
        self._dropped.add(other._dropped.first, other._dropped.counts)

    @property
    def rows_kept(self) -> int:
        """Rows that were scored and kept."""
        return self._all.total - self._dropped.total

    @property
    def rows_dropped(self) -> int:
        """Rows that were scored and dropped."""
        return self._dropped.total

    def record(self) -> dict[str, Any]:
        """Plain values for the ledger, as few as possible.

        >>> histogram = ScoreHistogram((2, None))
        >>> histogram.count(np.array([1.0, 5.0, 5.1]), np.array([False, True, True]))
        >>> histogram.record()
        {'low': 2, 'all': [321, 1, 36, 2], 'dropped': [321, 1]}
        """
        low, high = self.bounds
        values = {"low": low, "high": high, "inverted": self.inverted or None}
        counts = {"all": self._all.packed(), "dropped": self._dropped.packed() or None}
        return {name: value for name, value in {**values, **counts}.items() if value is not None}

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> ScoreHistogram:
        """The reverse of :meth:`record`."""
        made = cls((values.get("low"), values.get("high")), bool(values.get("inverted")))
        made._all.add_packed(values["all"])
        made._dropped.add_packed(values.get("dropped", ()))
        return made

    def bins(self) -> Iterator[Bin]:
        """The bins that have rows, ascending."""
        dropped = dict(self._dropped.items())
        for code, count in self._all.items():
            yield Bin(*_edges(code), count - dropped.get(code, 0), dropped.get(code, 0))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        low, high = self.bounds
        return {
            "low": low,
            "high": high,
            "inverted": self.inverted,
            "kept": self.rows_kept,
            "dropped": self.rows_dropped,
            "bins": [list(each) for each in self.bins()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ScoreHistogram:
        """The reverse of :meth:`to_dict`."""
        made = cls((values.get("low"), values.get("high")), bool(values.get("inverted")))
        for low, high, kept, dropped in values.get("bins", ()):
            code = _code_between(float(low), float(high))
            made._all.add(code, np.array([int(kept) + int(dropped)], np.int64))
            if dropped:
                made._dropped.add(code, np.array([int(dropped)], np.int64))
        return made


def write_scores(run_dir: str, stages: Sequence[StageStats]) -> None:
    """Write the histograms of a run into its directory, if it has any."""
    from tamis.tasks.storage import write_whole

    found = {s.name: {name: h.to_dict() for name, h in s.scores.items()} for s in stages if s.scores}
    if found:
        text = json.dumps({"version": 1, "stages": found}, ensure_ascii=False)
        write_whole(str(Path(run_dir, SCORES_FILE)), text.encode("utf-8", "backslashreplace"))


def read_scores(run_dir: str) -> dict[str, dict[str, ScoreHistogram]]:
    """The histograms of a run, by stage and criterion; empty if there are none, or the file is damaged.

    >>> read_scores("no-such-run")
    {}
    """
    try:
        stages = json.loads(Path(run_dir, SCORES_FILE).read_text(encoding="utf-8"))["stages"]
        return {
            stage: {name: ScoreHistogram.from_dict(values) for name, values in of_stage.items()}
            for stage, of_stage in stages.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return {}


def _counted(scores: NDArray[np.float64]) -> tuple[int, NDArray[np.int64]]:
    """The number of the first bin that has scores, and how many it and the following ones have."""
    words = np.ascontiguousarray(scores, np.float64).view(np.int16)[_HIGH_WORD::4]
    codes = words.copy()
    has_negative = int(codes.min()) < 0
    if has_negative:
        codes &= 0x7FFF
    codes -= _BASE
    np.clip(codes, 0, _LAST, out=codes)
    if has_negative:
        codes[words < 0] *= -1
    first = int(codes.min())
    codes -= first
    return first, np.bincount(codes)


def _edges(code: int) -> tuple[float, float]:
    """The lowest score of a bin, and the lowest of the next."""
    if code < 0:
        low, high = _edges(-code)
        return -high, -low
    return (_value(code) if code else 0.0), _value(code + 1)


def _value(code: int) -> float:
    bits = np.array([(code + _BASE) << 48], np.int64)
    return float(bits.view(np.float64)[0])


def _code_between(low: float, high: float) -> int:
    middle = low if low == 0 else (low + high) / 2
    return _counted(np.array([middle]))[0]
