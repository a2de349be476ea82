"""The figures that displays show: computed from a run's counts, and formatted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tamis.runs.stats import StageStats

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_NOTHING = "\N{EN DASH}"

LEAST_MEASURED_S = 0.01
"""Time below which a speed says nothing: starting a stage takes about as long."""

MOST_BYTES_PER_S = 50e9
"""No stage that looks at its data is faster: a higher figure means that data was only passed on."""


@dataclass(frozen=True)
class Step:
    """How many rows entered and left one stage.

    A stage counts the items of the tasks it takes and hands on; at the ends of a pipeline, and around a shuffle, these
    are files on one side and rows on the other. A step counts rows on both sides wherever they are known.

    Args:
        stage: The counts.
        before: Rows that entered the stage.
        after: Rows that it kept.
        counts_rows: Whether these are rows: not so for a stage that lists files or that hands nothing on.
        inner_seconds: The time of the internal stages that the stage is made of, which are not shown.
    """

    stage: StageStats
    before: int
    after: int
    counts_rows: bool = True
    inner_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The time of the stage and of the internal stages that it is made of."""
        return self.stage.seconds + self.inner_seconds

    @property
    def lost(self) -> int:
        """Rows that ended here, dropped or quarantined."""
        return self.before - self.after

    @property
    def kept_share(self) -> float | None:
        """The share of the rows that was kept, 0 to 1; ``None`` where there are no rows."""
        return self.after / self.before if self.counts_rows and self.before else None

    @property
    def shown_before(self) -> str:
        """The rows that entered, for a table."""
        return number(self.before) if self.stage.rows_in or self.counts_rows else _NOTHING

    @property
    def shown_after(self) -> str:
        """The rows that were kept, for a table."""
        return number(self.after) if self.counts_rows else _NOTHING


def steps(stages: Sequence[StageStats]) -> list[Step]:
    """How many rows entered and left each stage.

    Internal stages are left out. Their time counts for the stage they are part of, which their names begin with:
    ``"deduplicate (hash)"`` is part of ``"deduplicate"``.

    >>> reader = StageStats("read", tasks_in=1, rows_in=1, rows_out=90, bytes_out=9000, quarantined=10)
    >>> words = StageStats("words", tasks_in=1, rows_in=90, rows_out=60, dropped={"words < 50": 30})
    >>> [(s.before, s.after) for s in steps([reader, words])]
    [(100, 90), (90, 60)]
    >>> hashing = StageStats("deduplicate (hash)", internal=True, seconds=2.0)
    >>> [step.seconds for step in steps([hashing, StageStats("deduplicate", seconds=1.0)])]
    [3.0]
    """
    inner: defaultdict[str, float] = defaultdict(float)
    for stage in stages:
        if stage.internal:
            inner[stage.name.rpartition(" (")[0]] += stage.seconds
    return [_step(stage, inner[stage.name]) for stage in stages if not stage.internal]


def _step(stage: StageStats, inner_seconds: float) -> Step:
    lost = stage.rows_dropped + stage.quarantined
    hands_nothing_on = not stage.rows_out and not stage.files and not lost
    counts_rows = stage.tasks_in > 0 and not hands_nothing_on  # the input of a source is names of files
    if stage.rows_out + lost <= stage.rows_in:  # a writer hands on files, not the rows it took
        return Step(stage, stage.rows_in, stage.rows_in - lost, counts_rows, inner_seconds)
    return Step(stage, stage.rows_out + lost, stage.rows_out, counts_rows, inner_seconds)


def rows_read(stages: Sequence[StageStats]) -> int:
    """How many rows came into the pipeline: those that its first stage with rows saw.

    >>> listing = StageStats("list", rows_out=2, bytes_out=400)
    >>> reader = StageStats("read", tasks_in=1, rows_in=2, rows_out=90, bytes_out=9000, quarantined=10)
    >>> rows_read([listing, reader])
    100
    """
    return next((step.before for step in steps(stages) if step.before and step.counts_rows), 0)


def number(count: float) -> str:
    """A count with separators between the thousands.

    >>> number(1234567)
    '1,234,567'
    """
    return f"{count:,.0f}"


def percent(share: float | None) -> str:
    """A share as a percentage; never "100%" for less than all, nor "0%" for more than none.

    >>> percent(0.5), percent(0.99999), percent(1.0), percent(0.00001)
    ('50.0%', '>99.9%', '100%', '<0.1%')
    """
    if share is None:
        return _NOTHING
    if share in (0, 1):
        return f"{share:.0%}"
    return "<0.1%" if share < 0.0005 else ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def size(nbytes: float) -> str:
    """A size in memory or on disk.

    >>> size(999), size(1536), size(5 * 2**30)
    ('999 B', '1.5 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def short_name(name: str, width: int) -> str:
    """A stage's name for a narrow column. Of the way to a stage in a branch the end says most.

    >>> short_name("Route[de] / quality[dropped] / JsonlWriter", 30), short_name("a_long_name_without_branches", 12)
    ('… / JsonlWriter', 'a_long_name…')
    """
    if len(name) <= width:
        return name
    last = f"{ELLIPSIS} / {name.rpartition(' / ')[2]}"
    return last if " / " in name and len(last) <= width else f"{name[: width - 1]}{ELLIPSIS}"


def speeds(rows: float, nbytes: float, seconds: float) -> tuple[str, str]:
    """Rows and megabytes per second; a dash where too little time was measured, or data was only passed on.

    >>> speeds(1000, 2e6, 2), speeds(1000, 2e6, 0.001), speeds(1000, 539e9, 1.0)
    (('500', '1.00'), ('–', '–'), ('–', '–'))
    """  # noqa: RUF002 - the dash is what is shown
    if seconds <= 0 or nbytes > MOST_BYTES_PER_S * seconds:
        return _NOTHING, _NOTHING
    return rate(rows, seconds), rate(nbytes / 1e6, seconds)


def rate(amount: float, seconds: float) -> str:
    """An amount per second, with three digits while it is small; a dash where too little time was measured.

    >>> rate(1000, 2), rate(5, 10), rate(5, 0.001)
    ('500', '0.50', '–')
    """  # noqa: RUF002 - the dash is what is shown
    if seconds < LEAST_MEASURED_S:
        return _NOTHING
    speed = amount / seconds
    return f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}" if speed >= 10 else f"{speed:.2f}" if speed else "0"


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(0.314), duration(12.34), duration(187), duration(3725)
    ('0.31 s', '12.3 s', '3 min 07 s', '1 h 02 min')
    """
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def rough_duration(seconds: float) -> str:
    """A time that is only an estimate.

    >>> rough_duration(7.31), rough_duration(187)
    ('7 s', '3 min 07 s')
    """
    return f"{seconds:.0f} s" if seconds < 99.5 else duration(seconds)


def shown_score(value: float | None) -> str:
    """A score, formatted.

    >>> shown_score(0.123456), shown_score(1234567.0), shown_score(3.0), shown_score(None)
    ('0.1235', '1,234,567', '3', '–')
    """  # noqa: RUF002 - the dash is what is shown
    if value is None:
        return percent(None)
    if float(value).is_integer() or abs(value) >= 1000:
        return number(value)
    return f"{value:.4g}"


def shown_bounds(bounds: tuple[float | None, float | None]) -> str:
    """The scores that are kept.

    >>> shown_bounds((50, 100000)), shown_bounds((None, 0.2)), shown_bounds((2, None))
    ('50 to 100,000', 'at most 0.2', 'at least 2')
    """
    low, high = bounds
    if low is not None and high is not None:
        return f"{shown_score(low)} to {shown_score(high)}"
    return f"at most {shown_score(high)}" if low is None else f"at least {shown_score(low)}"
