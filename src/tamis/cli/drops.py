"""``tamis drops``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tamis.cli.output import print_json, show, write
from tamis.printable import printable, shortened

_TEXT_CHARACTERS: Final = 300


def run(arguments: argparse.Namespace) -> int:
    """Show how many rows were dropped, where and why, and some of them."""
    from tamis.runs.drop_samples import dropped_summary

    summary = dropped_summary(
        arguments.run_dir, arguments.stage, arguments.reason, sample=arguments.sample, seed=arguments.seed
    )
    if arguments.json:
        print_json({"counts": summary.counts, "rows": summary.rows, "sample": summary.examples})
        return 0
    if not summary.counts:
        asked = " that this asks for" if arguments.stage or arguments.reason else ""
        write(f"The run dropped no rows{asked}.")
        return 0
    _show_counts(summary.counts, summary.rows)
    _show_examples(summary.examples)
    return 0


def _show_counts(counts: Sequence[Mapping[str, Any]], total: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from tamis.runs import figures

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("stage", overflow="fold")
    table.add_column("reason", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    before = ""
    for entry in counts:
        stage = "" if entry["stage"] == before else entry["stage"]
        before = entry["stage"]
        table.add_row(
            Text(printable(stage), style="bold"), Text(printable(entry["reason"])), figures.number(entry["rows"])
        )
    show(table, Text(), Text(f"{figures.number(total)} rows were dropped."))


def _show_examples(examples: Sequence[Mapping[str, Any]]) -> None:
    from rich.text import Text

    from tamis.cli.why import shown_score_of_drop

    for row in examples:
        told = Text("\n")
        told.append(printable(row["row"]), style="bold")
        told.append(f"\n  {printable(row['stage'])}: {printable(row['reason'])}")
        told.append(shown_score_of_drop(row["score"], row["original"], row["low"], row["high"]))
        shown = f"({row['problem']})" if row["problem"] else " ".join(row["text"].split()) or "(empty)"
        told.append(f"\n  {printable(shortened(shown, _TEXT_CHARACTERS))}", style="dim" if row["problem"] else "")
        show(told)
