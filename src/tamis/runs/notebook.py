"""What notebooks show: a bar while a run goes on, and the result as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from tamis.printable import MESSAGE_CHARACTERS, printable
from tamis.runs import figures
from tamis.runs.html import escaped
from tamis.runs.progress import NoProgress, status_line
from tamis.runs.stats import RunSummary, Snapshot

_EVERY_S: Final = 0.5
_SHOWN_STAGES: Final = 60
_SHOWN_REASONS: Final = 3
_LEFT, _RIGHT = "text-align:left", "text-align:right"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. Nothing is imported to find out."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


class Shown:
    """Something that a notebook shows as HTML, and everything else as text."""

    def __init__(self, html: str, text: str) -> None:
        self._html, self._text = html, text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


class NotebookProgress(NoProgress):
    """A bar in the output of a notebook's cell, which is drawn again in its place."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last_s = 0.0
        self._messages: list[str] = []

    def start(self, snapshot: Snapshot) -> None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]  # it is there in a notebook

        self._handle = display(self._shown(snapshot), display_id=True)
        self._last_s = snapshot.elapsed_s

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.elapsed_s - self._last_s >= _EVERY_S:
            self._draw(snapshot)

    def finish(self, snapshot: Snapshot) -> None:
        self._draw(snapshot)

    def message(self, text: str) -> None:
        self._messages.append(printable(text, MESSAGE_CHARACTERS))

    def _draw(self, snapshot: Snapshot) -> None:
        self._last_s = snapshot.elapsed_s
        if self._handle is not None:
            self._handle.update(self._shown(snapshot))

    def _shown(self, snapshot: Snapshot) -> Shown:
        return Shown(progress_html(snapshot, self._messages), status_line(snapshot))


def progress_html(snapshot: Snapshot, messages: Sequence[str] = ()) -> str:
    """The bar, a line about the run, and its messages.

    >>> snapshot = Snapshot(10.0, [], 0.25, 0, 2**30, running=1, workers=2)
    >>> '<progress max="1" value="0.2500"' in progress_html(snapshot)
    True
    """
    fraction = 1.0 if snapshot.state == "done" else snapshot.fraction
    value = "" if fraction is None else f' value="{fraction:.4f}"'
    bar = f'<progress max="1"{value} style="width:16em" aria-label="Progress of the run"></progress>'
    line = escaped(f"{figures.duration(snapshot.elapsed_s)} | {status_line(snapshot)}")
    told = "".join(f"<div>{escaped(message)}</div>" for message in messages[-20:])
    return f"<div>{bar} <span>{line}</span>{told}</div>"


def result_html(summary: RunSummary, run_dir: str) -> str:
    """The result of a run: its figures, what each stage kept and why it dropped rows, and where the report is."""
    from tamis.runs.pages.drop_section import losses
    from tamis.runs.report_sections import closing_line

    steps = figures.steps(summary.stages)
    rows = []
    for step in steps[:_SHOWN_STAGES]:
        found = list(losses(step))
        reasons = "; ".join(f"{reason}: {figures.number(count)}" for reason, count in found[:_SHOWN_REASONS])
        more = f"; and {len(found) - _SHOWN_REASONS} more" if len(found) > _SHOWN_REASONS else ""
        cells = (step.shown_before, step.shown_after, figures.percent(step.kept_share))
        numbers = "".join(f'<td style="{_RIGHT}">{escaped(cell)}</td>' for cell in cells)
        numbers += f'<td style="{_RIGHT}">{escaped(figures.duration(step.seconds))}</td>'
        rows.append(
            f'<tr><td style="{_LEFT}">{escaped(step.stage.name)}</td>{numbers}'
            f'<td style="{_LEFT}">{escaped(reasons + more, 400)}</td></tr>'
        )
    if len(steps) > _SHOWN_STAGES:
        rows.append(f'<tr><td style="{_LEFT}" colspan="6">and {len(steps) - _SHOWN_STAGES} more stages</td></tr>')
    names = (
        ("Stage", _LEFT),
        ("Rows in", _RIGHT),
        ("Out", _RIGHT),
        ("Kept", _RIGHT),
        ("Time", _RIGHT),
        ("Dropped", _LEFT),
    )
    heads = "".join(f'<th scope="col" style="{align}">{name}</th>' for name, align in names)
    return (
        f"<div><p>{escaped(closing_line(summary))}</p><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table><p>Report: <code>{escaped(run_dir)}/report.html</code></p></div>"
    )
