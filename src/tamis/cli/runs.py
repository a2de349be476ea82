"""``tamis runs``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tamis.cli.output import complain, print_json, show, write
from tamis.cli.past_run import here
from tamis.printable import printable

if TYPE_CHECKING:
    from tamis.runs.past_runs import PastRun


def run(arguments: argparse.Namespace) -> int:
    """List runs, or free the space that past ones take."""
    from tamis.runs.past_runs import find_runs

    if (arguments.action == "compare") != (len(arguments.runs) == 2):
        complain("'tamis runs compare' takes the directories of two runs, and nothing else takes any")
        return 2
    if arguments.action == "compare":
        from tamis.cli.diff import compare

        return compare(*map(here, arguments.runs), as_json=arguments.json)
    runs = find_runs(arguments.dir)
    if arguments.action == "clean":
        return _clean(runs, arguments.older_than, arguments.yes)
    if arguments.older_than is not None or arguments.yes:
        complain("--older-than and --yes belong to 'tamis runs clean'")
        return 2
    if arguments.json:
        print_json([dataclasses.asdict(past) for past in runs])
    elif runs:
        _list(runs)
    else:
        write(f"There are no runs in {arguments.dir}.")
    return 0


def _list(runs: Sequence[PastRun]) -> None:
    from rich.table import Table
    from rich.text import Text

    from tamis.runs import figures

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("run", "state", "started (UTC)"):
        table.add_column(name, overflow="fold")
    for name in ("rows written", "size", "scratch"):
        table.add_column(name, justify="right", no_wrap=True)
    for past in runs:
        table.add_row(
            Text(printable(past.path)),
            Text(printable(past.state)),
            Text(printable(past.started[:19].replace("T", " "))),
            "" if past.rows is None else figures.number(past.rows),
            figures.size(past.nbytes),
            figures.size(past.scratch_bytes) if past.scratch_bytes else "",
        )
    show(table)
    if any(past.scratch_bytes for past in runs):
        show(Text(), Text("tamis runs clean removes the scratch data of runs that failed or were killed."))


def _clean(runs: Sequence[PastRun], older_than_s: float | None, yes: bool) -> int:
    from tamis.runs.figures import size
    from tamis.runs.past_runs import RUNNING
    from tamis.runs.stats import DONE, DONE_WITH_FAILURES

    ended = [past for past in runs if past.state != RUNNING]
    whole = [past for past in ended if older_than_s is not None and time.time() - past.changed > older_than_s]
    kept = [past for past in ended if past not in whole and past.state not in (DONE, DONE_WITH_FAILURES)]
    scratch = [past for past in kept if past.scratch_bytes]
    if not whole and not scratch:
        write("There is nothing to remove.")
        return 0
    for past in whole:
        write(f"{past.path}: the whole run ({past.state}), {size(past.nbytes)}")
    for past in scratch:
        write(f"{past.path}: scratch data of a run that has ended ({past.state}), {size(past.scratch_bytes)}")
    if not yes and not _confirmed():
        return 1
    freed = sum(past.remove() for past in whole) + sum(past.remove_scratch() for past in scratch)
    write(f"Removed {size(freed)}.")
    return 0


def _confirmed() -> bool:
    """Ask; without a terminal to ask on, the answer is no."""
    if not sys.stdin.isatty():
        complain("nothing was removed: add --yes to remove it without being asked")
        return False
    sys.stdout.write("Remove this? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    write("Nothing was removed.")
    return False
