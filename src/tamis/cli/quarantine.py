"""``tamis quarantine``."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tamis.cli.output import print_json, show, write
from tamis.cli.run import SET_ASIDE
from tamis.printable import printable, shortened

if TYPE_CHECKING:
    from tamis.runs.failures import Failed

_MESSAGE_CHARACTERS: Final = 400


def run(arguments: argparse.Namespace) -> int:
    """List what was set aside, or run it again."""
    from tamis.runs.drop_samples import stage_named
    from tamis.runs.failures import failures
    from tamis.runs.pages.run_view import load_view

    view = load_view(arguments.run_dir)
    stage = stage_named(view, arguments.stage) if arguments.stage else ""
    if arguments.retry:
        return _retry(arguments, stage)
    found = failures(arguments.run_dir, stage)
    if arguments.json:
        print_json([one.to_dict() for one in found])
        return 0
    listed = list(itertools.islice(found, arguments.limit or None))
    _list(listed)
    more = sum(1 for _ in found)
    if more:
        write(f"... and {more} more: --limit 0 lists all")
    if not listed:
        write(f"The run has set nothing aside{f' at {stage}' if stage else ''}.")
    return 0


def _list(found: Sequence[Failed]) -> None:
    from rich.text import Text

    for one in found:
        told = Text(printable(one.name), style="bold")
        rows = "" if one.kind != "task" else f", {'an unknown number of' if one.rows is None else one.rows} rows"
        told.append(f"\n  {printable(one.stage)}{rows}: ", style="not bold")
        told.append(printable(shortened(one.problem, _MESSAGE_CHARACTERS)), style="not bold red")
        show(told)


def _retry(arguments: argparse.Namespace, stage: str) -> int:
    import os

    from tamis.pipeline.past_pipeline import directory_of_start, recorded_pipeline

    past = os.path.abspath(arguments.run_dir)
    run_dir = arguments.run_address if "://" in arguments.run_address else past
    with directory_of_start(past):
        result = recorded_pipeline(past, f"pipeline.retry({run_dir!r})").retry(run_dir, stage)
    if arguments.json:
        told = {"passed": result.passed, "failed": result.failed, "unreadable": result.left, "files": result.files}
        print_json({**told, "state": result.summary.state, "run_dir": run_dir})
    else:
        write(f"{_rows(result.passed)} passed, {_rows(result.failed)} failed again.")
        for path in result.files:
            write(f"  written: {path}")
        if result.left:
            write(f"{_rows(result.left)} could not be read: mend the file and start the run again.")
    return SET_ASIDE if result.failed or result.left else 0


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
