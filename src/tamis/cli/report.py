"""``tamis report``."""

from __future__ import annotations

import argparse
import sys

from tamis.cli.output import terminal_width, write, write_styled


def run(arguments: argparse.Namespace) -> int:
    """Show a run as a table and write its report again."""
    from tamis.runs.report import load_summary, summary_table, write_report

    summary = load_summary(arguments.run_dir)
    path = write_report(arguments.run_dir).resolve()
    write_styled(summary_table(summary, width=terminal_width(), color=sys.stdout.isatty()))
    if summary.error:
        write(f"The run failed: {summary.error}\n")
    write(f"report: {path}")
    if arguments.open:
        import webbrowser

        webbrowser.open(path.as_uri())
    return 0
