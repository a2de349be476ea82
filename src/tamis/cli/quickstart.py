"""``tamis quickstart``."""

from __future__ import annotations

import argparse
import os
import sys

from tamis.cli.output import terminal_width, write, write_styled

_RESULTS = {"report": "report.html", "kept": "curated", "dropped": "dropped", "recipe": "recipe.yaml"}


def run(arguments: argparse.Namespace) -> int:
    """Curate the sample that comes with tamis, and show what was kept. Its three broken rows are not an error."""
    from tamis.pipeline.recipe import RunSettings
    from tamis.quickstart import run_quickstart
    from tamis.runs.report import summary_table

    name = arguments.executor or ("streaming" if arguments.address else "local")
    settings = RunSettings(name, arguments.address, workers=arguments.workers)
    result = run_quickstart(arguments.output, settings.make_executor(), quiet=arguments.quiet)
    if not arguments.quiet:
        write_styled(summary_table(result.summary, width=terminal_width(), color=sys.stdout.isatty()))
        for what, name in _RESULTS.items():
            write(f"{what:<8} {os.path.join(arguments.output, name)}")
    return 0
