"""A run as a screen of a terminal: how far it is, and what each stage does, from the files of the run directory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.pages.findings import find_bottleneck
from tamis.runs.pages.run_view import RunView
from tamis.runs.pages.timeline import Sample

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_WINDOW_S: Final = 5.0
_COLUMNS: Final = ("rows in", "out", "kept", "rows/s", "workers", "wait")
_LEFT_OUT_FIRST: Final = ("wait", "workers", "rows in", "kept", "rows/s")
_LEAST_NAME: Final = 16
_FRAME_LINES: Final = 7
"""Lines of the screen that are not stages."""


class RunScreen:
    """Draws a run again and again.

    Attributes:
        first: The first stage that is shown, for runs with more stages than lines.
    """

    def __init__(self) -> None:
        self.first = 0
        self._seen: deque[Sample] = deque()

    def scroll(self, lines: int, stages: int, height: int) -> None:
        """Show later stages, or earlier ones if negative."""
        self.first = max(0, min(self.first + lines, stages - self.room(height)))

    @staticmethod
    def room(height: int) -> int:
        """How many stages fit on a screen of some lines."""
        return max(height - _FRAME_LINES, 1)

    def draw(self, view: RunView, width: int, height: int, keys: str = "") -> RenderableType:
        """The screen.

        Args:
            view: The run as it is now.
            width, height: Columns and lines of the terminal.
            keys: What the keys do, for the last line.
        """
        from rich.console import Group
        from rich.text import Text

        steps = figures.steps(view.summary.stages)
        self._note(view.samples)
        room = self.room(height)
        self.first = max(0, min(self.first, len(steps) - room))
        shown = steps[self.first : self.first + room]
        lines: list[RenderableType] = [
            Text(_title(view), style="bold", no_wrap=True, overflow="ellipsis"),
            _bar(view, width),
            Text(_load(view), style="dim", no_wrap=True, overflow="ellipsis"),
            self._table(shown, width),
        ]
        if not view.samples:
            lines.append(Text("This run has written no metrics.", style="dim"))
        bottleneck = find_bottleneck(view.summary.stages, view.samples)
        lines.append(Text("" if bottleneck is None else printable(str(bottleneck)), no_wrap=True, overflow="ellipsis"))
        hidden = len(steps) - len(shown)
        more = f"stages {self.first + 1} to {self.first + len(shown)} of {len(steps)}  " if hidden else ""
        lines.append(Text(f"{more}{keys}", style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)

    def _note(self, samples: Sequence[Sample]) -> None:
        """Keep the samples of the last seconds, for speeds."""
        if not samples:
            return
        now = samples[-1]
        if not self._seen:
            self._seen.extend(sample for sample in samples if sample.seconds >= now.seconds - 2 * _WINDOW_S)
        elif now.seconds < self._seen[-1].seconds:
            self._seen.clear()  # the run was started again
        if not self._seen or now.seconds > self._seen[-1].seconds:
            self._seen.append(now)
        while len(self._seen) > 2 and self._seen[1].seconds <= now.seconds - _WINDOW_S:
            self._seen.popleft()

    def _table(self, steps: Sequence[Step], width: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        rows = [(step.stage.name, self._cells(step)) for step in steps]
        columns = list(_COLUMNS)
        needed = {name: 2 + max([len(name), *(len(cells[name]) for _, cells in rows)]) for name in columns}
        for name in _LEFT_OUT_FIRST:
            if _LEAST_NAME + sum(needed[left] for left in columns) <= width:
                break
            columns.remove(name)
        table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim", expand=True)
        table.add_column("stage", ratio=1, no_wrap=True, overflow="ellipsis")
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True, min_width=needed[name] - 2)
        room = max(width - sum(needed[name] for name in columns), _LEAST_NAME)
        for name, cells in rows:
            short = figures.short_name(printable(name).replace("\n", " "), room)
            table.add_row(Text(short), *(Text(cells[column]) for column in columns))
        return table

    def _cells(self, step: Step) -> dict[str, str]:
        stage, share = step.stage, step.kept_share
        speed = workers = wait = ""
        if self._seen:
            first, last = self._seen[0], self._seen[-1]
            if len(self._seen) > 1:
                grown = max(last.through(stage.name) - first.through(stage.name), 0)
                speed = figures.rate(grown, last.seconds - first.seconds)
            count = last.count(stage.name, "workers")
            workers = figures.number(count) if count else ""
            tasks = last.count(stage.name, "tasks_in")
            wait = figures.duration(last.count(stage.name, "queue_s") / tasks) if tasks else ""
        shown = (step.shown_before, step.shown_after, figures.percent(share), speed, workers, wait)
        return dict(zip(_COLUMNS, shown, strict=True))


def _title(view: RunView) -> str:
    summary = view.summary
    return f"{printable(summary.pipeline)}  {printable(summary.state)}  {figures.duration(summary.seconds)}"


def _bar(view: RunView, width: int) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    fraction = view.samples[-1].fraction if view.samples else None
    if view.summary.state.startswith("done"):
        fraction = 1.0
    left = ""
    if view.is_running and fraction and fraction < 1:
        left = f", {figures.rough_duration(view.samples[-1].seconds * (1 - fraction) / fraction)} left"
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=1.0, completed=fraction or 0.0, width=min(40, width // 2))
    words = "" if fraction is None else f"{figures.percent(fraction)}{left}"
    grid.add_row(bar, Text(words, no_wrap=True))
    return grid


def _load(view: RunView) -> str:
    """Rows, memory and workers, in a line."""
    stages = view.summary.stages
    parts = [f"{figures.number(figures.rows_read(stages))} rows read"]
    parts += [f"{figures.number(dropped)} dropped"] if (dropped := sum(s.rows_dropped for s in stages)) else []
    parts += [f"{figures.number(view.summary.rows_set_aside)} set aside"] if view.summary.rows_set_aside else []
    if view.samples and view.is_running:
        last = view.samples[-1]
        parts.append(f"{min(last.running, last.workers)} of {last.workers} workers busy")
        parts.append(f"memory {figures.size(last.held_bytes)} of {figures.size(last.budget_bytes)}")
    return " | ".join(parts)
