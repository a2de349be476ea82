"""Progress displays: they show on stderr how far a run has come."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, runtime_checkable

from tamis.errors import did_you_mean
from tamis.printable import MESSAGE_CHARACTERS, printable
from tamis.runs import figures
from tamis.runs.stats import Snapshot, StageStats

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

ProgressKind = Literal["auto", "live", "plain", "off"]
"""The names of the displays; ``"auto"`` is a bar in a notebook, live on a terminal and plain elsewhere."""

_WINDOW_S = 5.0
_MIN_NAME, _NAME_WIDTH = 10, 36
_COLUMNS = ("tasks", "rows in", "", "out", "kept", "rows/s", "MB/s")
_LEFT_OUT_FIRST = ("MB/s", "rows/s", "tasks", "", "rows in")
_STATES = {"running": "green", "draining": "yellow", "done": "bold", "failed": "red"}


@runtime_checkable
class Observer(Protocol):
    """Receives progress updates from the driver's loop. Its methods are called from one thread and must be quick."""

    def start(self, snapshot: Snapshot) -> None:
        """The run begins."""

    def update(self, snapshot: Snapshot) -> None:
        """The state now. Called a few times a second."""

    def finish(self, snapshot: Snapshot) -> None:
        """The run has ended: done, failed or interrupted. May be called twice."""

    def message(self, text: str) -> None:
        """A message for the user, to be shown at once."""


def choose_progress(kind: ProgressKind = "auto") -> Observer:
    """The display of that name.

    >>> type(choose_progress("off")).__name__
    'NoProgress'
    """
    if kind == "auto" and "IPython" in sys.modules:
        from tamis.runs.notebook import NotebookProgress, in_notebook

        if in_notebook():
            return NotebookProgress()
    if kind == "auto":
        on_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        kind = "live" if on_terminal else "plain"
    displays: dict[str, type[Observer]] = {"live": LiveProgress, "plain": PlainProgress, "off": NoProgress}
    if kind not in displays:
        known = ["auto", *displays]
        raise ValueError(f"progress={kind!r} is not one of {', '.join(known)}.{did_you_mean(kind, known)}")
    return displays[kind]()


class NoProgress:
    """Shows nothing. Messages go to the log, as warnings.

    >>> NoProgress().update(Snapshot(1.0, [], None, 0, 0, 0, 0))
    """

    def start(self, snapshot: Snapshot) -> None:
        pass

    def update(self, snapshot: Snapshot) -> None:
        pass

    def finish(self, snapshot: Snapshot) -> None:
        pass

    def message(self, text: str) -> None:
        logging.getLogger("tamis").warning("%s", printable(text, MESSAGE_CHARACTERS))


class PlainProgress:
    """One line every few seconds, for logs and pipes; on stderr unless another file is given.

    >>> display = PlainProgress(interval_s=0, file=sys.stdout)
    >>> read = StageStats("read", tasks_in=1, rows_in=1, rows_out=500, bytes_out=10**6)
    >>> display.update(Snapshot(10.0, [read], 0.25, 2**20, 2**30, running=2, workers=2))
    [10.0 s] 25.0%, 30 s left | 500 rows read, 50.0/s | memory 1.0 MiB of 1.0 GiB | 2 of 2 workers busy
    """

    def __init__(self, interval_s: float = 10.0, file: TextIO | None = None) -> None:
        self.interval_s = interval_s
        self._file = file
        self._last_s = 0.0
        self._finished = False

    def start(self, snapshot: Snapshot) -> None:
        self._last_s = snapshot.elapsed_s

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.elapsed_s - self._last_s >= self.interval_s:
            self._last_s = snapshot.elapsed_s
            self.message(f"[{figures.duration(snapshot.elapsed_s)}] {status_line(snapshot)}")

    def finish(self, snapshot: Snapshot) -> None:
        if not self._finished:
            self._finished = True
            self.message(f"[{figures.duration(snapshot.elapsed_s)}] {status_line(snapshot)}")

    def message(self, text: str) -> None:
        file = self._file or sys.stderr
        if file is not None:
            file.write(f"{printable(text, MESSAGE_CHARACTERS)}\n")
            file.flush()


class LiveProgress:
    """A table that is redrawn in place, for terminals: on stderr unless another ``rich.console.Console`` is given."""

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._live: Any = None
        self._finished = False
        self._speeds = Speeds()

    def start(self, snapshot: Snapshot) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = self._console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="ellipsis")
        self._live.start()
        self.update(snapshot)

    def update(self, snapshot: Snapshot) -> None:
        if self._live is not None and not self._finished:
            self._speeds.take(snapshot)
            self._live.update(live_view(snapshot, self._speeds, self._console.width), refresh=True)

    def finish(self, snapshot: Snapshot) -> None:
        if self._live is not None and not self._finished:
            self.update(snapshot)
            self._finished = True
            self._live.stop()

    def message(self, text: str) -> None:
        text = printable(text, MESSAGE_CHARACTERS)
        if self._console is None:
            sys.stderr.write(f"{text}\n")
        else:
            from rich.text import Text

            self._console.print(Text(text, style="yellow"))


class Speeds:
    """Rows and bytes per second of each stage over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, list[tuple[int, int]]]] = deque()

    def take(self, snapshot: Snapshot) -> None:
        """Record the counts of a snapshot."""
        self._seen.append((snapshot.elapsed_s, [_through(stage) for stage in snapshot.stages if not stage.internal]))
        while len(self._seen) > 2 and self._seen[1][0] <= snapshot.elapsed_s - _WINDOW_S:
            self._seen.popleft()

    def of(self, index: int) -> tuple[float, float, float]:
        """Rows and bytes of a stage within the window, and its length in seconds."""
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        before = first[index] if len(self._seen) > 1 else (0, 0)
        seconds = last_s - first_s if len(self._seen) > 1 else last_s
        return last[index][0] - before[0], last[index][1] - before[1], seconds


def _through(stage: StageStats) -> tuple[int, int]:
    """Rows and bytes that went through a stage: the larger of input and output, since one of them may be file names."""
    return max(stage.rows_in, stage.rows_out), max(stage.bytes_in, stage.bytes_out)


def status_line(snapshot: Snapshot) -> str:
    """One line about the whole run."""
    rows = figures.rows_read(snapshot.stages)
    parts = [
        _how_far(snapshot),
        f"{figures.number(rows)} rows read, {figures.rate(rows, snapshot.elapsed_s)}/s",
        *_losses(snapshot.stages),
        *_load(snapshot),
    ]
    return " | ".join(part for part in parts if part)


def _how_far(snapshot: Snapshot) -> str:
    if _is_over(snapshot):
        return snapshot.state
    parts = ["finishing what is in flight"] if snapshot.state == "draining" else []
    if snapshot.fraction is not None:
        parts.append(figures.percent(snapshot.fraction))
    if snapshot.eta_s is not None and snapshot.state == "running":
        parts.append(f"{figures.rough_duration(snapshot.eta_s)} left")
    return ", ".join(parts)


def _is_over(snapshot: Snapshot) -> bool:
    return snapshot.state not in ("running", "draining")


def _load(snapshot: Snapshot) -> list[str]:
    """Memory and workers, while the run goes on."""
    if _is_over(snapshot):
        return []
    return [
        f"memory {figures.size(snapshot.held_bytes)} of {figures.size(snapshot.budget_bytes)}",
        f"{min(snapshot.running, snapshot.workers)} of {snapshot.workers} workers busy",
    ]


def _losses(stages: Sequence[StageStats]) -> list[str]:
    dropped = sum(stage.rows_dropped for stage in stages)
    quarantined = sum(stage.quarantined for stage in stages)
    return [
        f"{figures.number(count)} {what}"
        for count, what in ((dropped, "dropped"), (quarantined, "quarantined"))
        if count
    ]


def live_view(snapshot: Snapshot, speeds: Speeds, width: int) -> RenderableType:
    """The table of stages below a line with the bar, for a terminal of some columns."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 2))
    is_over = _is_over(snapshot)
    bar = ProgressBar(
        total=1.0,
        completed=1.0 if snapshot.state == "done" else snapshot.fraction or 0.0,
        width=min(24, width // 4),
        pulse=snapshot.fraction is None and not is_over,
        complete_style="cyan",
        finished_style="green",
    )
    line = [_how_far(snapshot) or snapshot.state, figures.duration(snapshot.elapsed_s), *_load(snapshot)]
    head.add_row(bar, Text(" | ".join(line), style=_STATES.get(snapshot.state, ""), no_wrap=True, overflow="ellipsis"))

    lines: list[tuple[str, dict[str, Text]]] = []
    for index, step in enumerate(figures.steps(snapshot.stages)):
        stage, (rows, nbytes, seconds) = step.stage, speeds.of(index)
        if is_over:
            (rows, nbytes), seconds = _through(stage), snapshot.elapsed_s
        share, (rows_per_s, mb_per_s) = step.kept_share, figures.speeds(rows, nbytes, seconds)
        cells = [
            Text(figures.number(stage.tasks_in)),
            Text(step.shown_before),
            Text("\N{RIGHTWARDS ARROW}"),
            Text(step.shown_after),
            Text(figures.percent(share), style="yellow" if share is not None and share < 1 else "dim"),
            Text(rows_per_s),
            Text(mb_per_s),
        ]
        lines.append((figures.short_name(printable(stage.name), _NAME_WIDTH), dict(zip(_COLUMNS, cells, strict=True))))

    shown = _columns_that_fit([cells for _, cells in lines], width)
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("stage", max_width=_NAME_WIDTH)  # the one that shrinks on a narrow terminal
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for stage_name, cells_of in lines:
        table.add_row(Text(stage_name, no_wrap=True, overflow="ellipsis"), *(cells_of[name] for name in shown))
    return Group(head, table)


def _columns_that_fit(lines: Sequence[dict[str, Text]], width: int) -> list[str]:
    """The columns of numbers that fit beside the names of the stages."""
    shown = list(_COLUMNS)
    needed = {name: 2 + max([len(name), *(len(cells[name]) for cells in lines)]) for name in shown}
    for name in _LEFT_OUT_FIRST:
        if _MIN_NAME + sum(needed[left] for left in shown) <= width:
            break
        shown.remove(name)
    return shown
