"""``tamis analyze``."""

from __future__ import annotations

import argparse
import os
import sys

from tamis.cli.output import print_json, terminal_width, write, write_styled

_RESULTS = {"page": "index.html", "scores": "scores.parquet", "sample": "sample.parquet", "recipe": "recipe.yaml"}


def run(arguments: argparse.Namespace) -> int:
    """Analyze a data set and show what is in it."""
    from tamis.analysis import analyze
    from tamis.analysis.tables import closing_line, terminal_table

    analysis = analyze(
        arguments.input,
        output=arguments.output,
        sample=arguments.sample,
        fraction=arguments.fraction,
        everything=arguments.all,
        text_field=arguments.text_field,
        format_name=arguments.format,
        keep_rate=arguments.keep_rate,
        filters=[name for given in arguments.filters for name in given.split(",")] or None,
        languages=not arguments.no_languages,
        workers=arguments.workers,
        progress="off" if arguments.quiet else "auto",
    )
    if arguments.json:
        print_json(analysis.to_dict())
    elif not arguments.quiet:
        write_styled(terminal_table(analysis, width=terminal_width(), color=sys.stdout.isatty()))
        write(f"{closing_line(analysis)}\n")
        for what, name in _RESULTS.items():
            write(f"{what:<8} {os.path.join(arguments.output, name)}")
    return 0
