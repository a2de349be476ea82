"""``tamis diff``, also as ``tamis runs compare``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from tamis.cli.output import print_json, show, write
from tamis.printable import printable, shortened

if TYPE_CHECKING:
    from tamis.runs.compare import RowDifference, RunComparison

_VALUE_CHARACTERS: Final = 200
_TEXT_CHARACTERS: Final = 200


def run(arguments: argparse.Namespace) -> int:
    """Compare two runs."""
    return compare(arguments.run_a, arguments.run_b, as_json=arguments.json)


def compare(run_a: str, run_b: str, *, as_json: bool) -> int:
    """Show what differs between two runs."""
    from tamis.runs.compare import compare_runs

    found = compare_runs(run_a, run_b)
    if as_json:
        print_json(found.to_dict())
        return 0
    write(f"A: {found.a}\nB: {found.b}\n")
    _show_settings(found)
    _show_stages(found)
    _show_rows(found)
    return 0


def _show_settings(found: RunComparison) -> None:
    from rich.text import Text

    if not found.settings:
        write("Settings, code and versions are the same.")
    for difference in found.settings:
        told = Text(printable(difference.what), style="bold")
        for name, value in (("A", difference.a), ("B", difference.b)):
            told.append(f"\n  {name}: {printable(shortened(value, _VALUE_CHARACTERS)) or '-'}", style="not bold")
        show(told)
    for only, name in ((found.input_only_a, "A"), (found.input_only_b, "B")):
        if only:
            write(f"{only} input {'file is' if only == 1 else 'files are'} only in {name}")
    if found.input_changed:
        write(
            f"{len(found.input_changed)} input files have changed between the runs, {found.input_changed[0]} among them"
        )


def _show_stages(found: RunComparison) -> None:
    from rich.table import Table
    from rich.text import Text

    from tamis.runs import figures

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("stage", overflow="fold")
    for name in ("in A", "in B", "out A", "out B", "dropped A", "dropped B"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in found.stages:
        numbers = (stage.a_in, stage.b_in, stage.a_out, stage.b_out, stage.a_dropped, stage.b_dropped)
        style = "bold" if stage.a_dropped != stage.b_dropped else ""
        table.add_row(
            Text(printable(stage.stage), style=style), *("-" if n is None else figures.number(n) for n in numbers)
        )
    show(Text(), table, Text())


def _show_rows(found: RunComparison) -> None:
    from tamis.runs import figures

    both = "not known" if found.kept_by_both is None else figures.number(found.kept_by_both)
    write(f"kept by both: {both}")
    for difference, name, other in ((found.only_a, "A", "B"), (found.only_b, "B", "A")):
        write(f"kept only by {name}: {figures.number(difference.rows)}")
        _show_difference(difference, other)
    for note in found.notes:
        write(f"note: {note}")


def _show_difference(difference: RowDifference, other: str) -> None:
    from rich.text import Text

    from tamis.cli.why import shown_number
    from tamis.runs import figures

    for entry in difference.reasons:
        write(f"  {figures.number(entry['rows'])} left out by {other} at {entry['stage']}: {entry['reason']}")
    for row in difference.examples:
        told = Text(f"    {printable(row['row'])}", style="bold")
        told.append(f": {printable(row['reason'])}", style="not bold")
        if row["score"] is not None:
            told.append(f", score {printable(shown_number(row['score']), 60)}", style="not bold")
        shown = f"({row['problem']})" if row["problem"] else " ".join(row["text"].split())
        told.append(f"\n      {printable(shortened(shown, _TEXT_CHARACTERS))}", style="not bold dim")
        show(told)
