"""``tamis rethreshold``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final

from tamis.cli.output import print_json, show, write
from tamis.printable import printable, shortened

if TYPE_CHECKING:
    from tamis.pipeline.rethreshold import Rethresholded

_TEXT_CHARACTERS: Final = 200


def run(arguments: argparse.Namespace) -> int:
    """Write the output of a run with other thresholds, from the scores that it has kept."""
    from tamis.pipeline.past_pipeline import directory_of_start, recorded_recipe

    run_dir, output = os.path.abspath(arguments.run_dir), os.path.abspath(arguments.output)
    with directory_of_start(run_dir):
        recipe = recorded_recipe(run_dir, f"pipeline.rethreshold({run_dir!r}, new_pipeline)")
        changed = recipe.with_settings(arguments.settings).to_pipeline()
        executor = recipe.run.make_executor()
        result = recipe.to_pipeline().rethreshold(run_dir, changed, output=output, executor=executor)
    if arguments.json:
        print_json(result.to_dict())
    else:
        _show(result)
    return 0


def _show(result: Rethresholded) -> None:
    from rich.text import Text

    from tamis.runs.figures import number

    if result.run_dir:
        write(f"The scores alone do not tell the new output, as {printable(result.reason)}: the pipeline ran again.")
    write(f"kept by both:   {'not known' if result.kept_by_both is None else number(result.kept_by_both)}")
    write(f"newly kept:     {number(result.newly_kept)}, of {number(result.rescored)} that were scored again")
    for row in result.examples_kept:
        text = printable(shortened(" ".join(row["text"].split()), _TEXT_CHARACTERS))
        show(Text(f"  {printable(row['row'])}\n    {text}"))
    write(f"newly dropped:  {number(result.newly_dropped)}")
    for row in result.examples_dropped:
        text = printable(shortened(" ".join(row["text"].split()), _TEXT_CHARACTERS))
        place = row["row"] if "row" in row else f"{row['file']}, line {row['line']}"
        show(Text(f"  {printable(place)}\n    {text}"))
    write(f"output: {result.output}, {result.files} {'file' if result.files == 1 else 'files'}")
    if result.run_dir:
        write(f"run: {result.run_dir}")
