"""``tamis why``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Final

from tamis.cli.output import complain, print_json, show
from tamis.printable import printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tamis.runs.why import RowEnd, RowStory

_TEXT_CHARACTERS: Final = 1_000
_VALUE_CHARACTERS: Final = 200
_STYLES: Final = {"kept": "green", "dropped": "yellow", "set aside": "red"}


def run(arguments: argparse.Namespace) -> int:
    """Show what became of a row."""
    from tamis.runs.why import why

    if bool(arguments.row) == (arguments.where is not None):
        complain("give the row, as FILE:POSITION or with --id COLUMN=VALUE", ["  See tamis why --help"])
        return 2
    story = why(arguments.run_dir, arguments.row, line=arguments.line, where=arguments.where)
    if arguments.json:
        print_json(story.to_dict())
    else:
        show(*_shown(story))
    return 0


def _shown(story: RowStory) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    line = f", line {story.line:,}" if story.line is not None else ""
    grid.add_row("row", Text(printable(story.row)))
    grid.add_row("from", Text(printable(f"{story.source}, position {story.position:,}{line}")))
    if story.problem:
        grid.add_row("not read", Text(printable(story.problem)))
    else:
        grid.add_row("text", Text(printable(shortened(story.text, _TEXT_CHARACTERS))))
        for name, value in story.values.items():
            if value != story.text:
                shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
                grid.add_row(Text(printable(name, 40)), Text(printable(shortened(shown, _VALUE_CHARACTERS))))
    stages = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    stages.add_column("stage", overflow="fold")
    stages.add_column("what happened", overflow="fold")
    for step in story.stages:
        is_quiet = step.events in (("not reached",), ())
        stages.add_row(
            Text(printable(step.stage), style="dim" if is_quiet else ""),
            Text(", ".join(map(_event, step.events)), style="dim" if is_quiet else ""),
        )
    return [grid, Text(), stages, Text(), *(_end(end, len(story.ends) > 1) for end in story.ends)]


def _event(event: str) -> str:
    return "in a branch that the row may have taken" if event == "maybe" else event


def _end(end: RowEnd, is_one_of_several: bool) -> RenderableType:
    from rich.text import Text

    told = Text()
    if end.copy:
        told.append(f"the copy of {printable(end.copy)}: ")
    elif is_one_of_several:
        told.append(f"{printable(end.row)}: ")
    told.append(end.fate, style=_STYLES.get(end.fate, "bold"))
    if end.stage:
        words = {"kept": ", written by", "set aside": " at"}.get(end.fate, " by")
        told.append(f"{words} {printable(end.stage)}")
    if end.reason:
        told.append(f": {printable(shortened(end.reason, _TEXT_CHARACTERS))}")
    told.append(shown_score_of_drop(end.score, end.original, end.low, end.high))
    for name, value in end.scores.items():
        told.append(f"\n  {printable(name, 60)}: {printable(shown_number(value), 60)}")
    if len(end.files) == 1:
        place = f", line {end.line:,}" if end.line is not None else ""
        told.append(f"\n  in {printable(end.files[0])}{place}")
    elif end.files:
        told.append("\n  in one of these files; they do not tell which row it is:")
        for path in end.files:
            told.append(f"\n    {printable(path)}")
    return told


def shown_score_of_drop(score: float | str | None, original: str, low: float | None, high: float | None) -> str:
    """What is known of a drop beside its reason: the score, the row that is kept instead, the scores that are kept."""
    told = ""
    if score is not None and score != original:
        told += f", score {printable(shown_number(score), 60)}"
    if original:
        told += f", kept in its place: {printable(original, 300)}"
    if low is not None or high is not None:
        told += f", kept are scores {shown_bounds(low, high)}"
    return told


def shown_number(value: object) -> str:
    """A score: a number with a few digits, or anything else."""
    from tamis.runs.figures import shown_score

    return shown_score(value) if isinstance(value, float) else str(value)


def shown_bounds(low: float | None, high: float | None) -> str:
    """The scores that are kept, of which at least one bound is known."""
    if low is None:
        return f"up to {high:g}"
    return f"from {low:g}" if high is None else f"from {low:g} to {high:g}"
