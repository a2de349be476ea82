"""``tamis replay``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tamis.cli.output import complain, print_json, show, write
from tamis.printable import printable, shortened

if TYPE_CHECKING:
    from tamis.pipeline.replay import Debugger, Replayed
    from tamis.runs.recorded_tasks import RecordedBatch

_TEXT_CHARACTERS: Final = 200
_SHOWN: Final = 20


def run(arguments: argparse.Namespace) -> int:
    """Run a stage again on one batch of a run, or list its batches."""
    from tamis.pipeline.past_pipeline import directory_of_start, recorded_pipeline
    from tamis.pipeline.replay import batches_of_stage, replay

    run_dir = os.path.abspath(arguments.run_dir)
    debugger: Debugger | None = arguments.pdb or ("error" if "debug" in arguments else None)
    with directory_of_start(run_dir):
        instead = f"tamis.pipeline.replay.replay(pipeline.plan(), {run_dir!r}, stage, task)"
        plan = recorded_pipeline(run_dir, instead).plan()
        if not arguments.task:
            return _list(batches_of_stage(plan, run_dir, arguments.stage), arguments.stage, as_json=arguments.json)
        told = replay(plan, run_dir, arguments.stage, arguments.task, debugger)
    if arguments.json:
        print_json(told.to_dict())
    else:
        _show(told)
    return 1 if told.error else 0


def _list(batches: Sequence[RecordedBatch], stage: str, *, as_json: bool) -> int:
    if as_json:
        print_json([dataclasses.asdict(batch) for batch in batches])
        return 0
    from rich.table import Table
    from rich.text import Text

    from tamis.runs.figures import number

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("task", "id"):
        table.add_column(name, overflow="fold")
    for name in ("rows in", "out", "dropped"):
        table.add_column(name, justify="right", no_wrap=True)
    for batch in batches:
        counts = next((c for name, c in batch.counts.items() if name == stage or name.endswith(f" / {stage}")), {})
        dropped = sum(counts.get("dropped", {}).values())
        numbers = [number(n) if n else "" for n in (counts.get("rows_in", 0), counts.get("rows_out", 0), dropped)]
        told = ", ".join(batch.places) + (" (set aside)" if batch.set_aside else "")
        table.add_row(Text(printable(told)), Text(printable(", ".join(batch.tasks))), *numbers)
    show(table)
    return 0


def _show(told: Replayed) -> None:
    from rich.text import Text

    from tamis.cli.why import shown_number

    counts = f"{told.rows_in} rows in, {told.rows_out} out, {len(told.dropped)} dropped"
    write(f"{told.stage}, task {', '.join(told.tasks)}: {counts}")
    recorded = told.recorded
    if recorded:
        dropped = sum(recorded.get("dropped", {}).values())
        counts = f"{recorded.get('rows_in', 0)} rows in, {recorded.get('rows_out', 0)} out, {dropped} dropped"
        write(f"the run counted {counts}")
    for made in told.made[:_SHOWN]:
        write(
            f"made: {made['kind']}, {made['rows']} rows"
            + (f", columns {', '.join(made['columns'])}" if made["columns"] else "")
        )
        for row in made["examples"]:
            shown = json.dumps(row, ensure_ascii=False, default=repr)
            show(Text(f"  {printable(shortened(shown, _TEXT_CHARACTERS))}"))
    for path in told.files:
        write(f"wrote, and removed again: {path}")
    for row in told.dropped[:_SHOWN]:
        score = "" if row["score"] is None else f", score {shown_number(row['score'])}"
        write(f"dropped: {row['row']}: {row['reason']}{score}")
    if len(told.dropped) > _SHOWN:
        write(f"... and {len(told.dropped) - _SHOWN} more dropped rows: --json has all")
    if told.error:
        complain(f"the stage {told.stage!r} raised: {told.error}")
