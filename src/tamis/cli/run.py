"""``tamis run``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tamis.cli.output import print_json, terminal_width, write
from tamis.cli.recipes import recipe_from

if TYPE_CHECKING:
    from tamis.runs.progress import ProgressKind

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Run a recipe; show its progress on stderr and what came of it on stdout."""
    recipe = recipe_from(arguments)
    pipeline, executor = recipe.to_pipeline(), recipe.run.make_executor()
    if arguments.dry_run:
        plan = str(pipeline.plan(executor))
        if arguments.json:
            print_json({"plan": plan})
        else:
            write(plan)
        return 0
    progress: ProgressKind = "off" if arguments.quiet else arguments.progress
    settings = recipe.run
    result = pipeline.run(executor, run_dir=settings.run_dir, progress=progress, drop_ledger=settings.drop_ledger)
    if arguments.json:
        print_json({**result.summary.to_dict(), "run_dir": str(result.run_dir)})
    elif not arguments.quiet:
        from tamis.runs.report import summary_table

        write(summary_table(result.summary, width=terminal_width(), color=sys.stdout.isatty()))
        write(f"report: {result.run_dir}/report.html")
    return 0
