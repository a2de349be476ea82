"""``tamis analyze``."""

from __future__ import annotations

import argparse
import os
import sys

from tamis.cli.output import print_json, terminal_width, write, write_styled

_RESULTS = {"page": "index.html", "scores": "scores.parquet", "sample": "sample.parquet", "recipe": "recipe.yaml"}


def run(arguments: argparse.Namespace) -> int:
    """Analyze a data set and show what is in it."""
    from tamis.analysis.images.inputs import IMAGE_FORMATS, is_for_images

    is_parquet = arguments.format == "parquet" and not arguments.images
    if arguments.images or (not is_parquet and arguments.format in IMAGE_FORMATS):
        return _images(arguments)
    if arguments.format is None and is_for_images(arguments.input):
        return _images(arguments)
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
        _show(
            terminal_table(analysis, width=terminal_width(), color=sys.stdout.isatty()),
            closing_line(analysis),
            arguments.output,
        )
    return 0


def _images(arguments: argparse.Namespace) -> int:
    """The same for images."""
    from tamis.analysis.images import analyze_images
    from tamis.analysis.images.tables import image_terminal_table
    from tamis.analysis.scores import verdict

    analysis = analyze_images(
        arguments.input,
        output=arguments.output,
        sample=arguments.sample,
        fraction=arguments.fraction,
        everything=arguments.all,
        format_name=arguments.format,
        keep_rate=arguments.keep_rate,
        filters=[name for given in arguments.filters for name in given.split(",")] or None,
        workers=arguments.workers,
        progress="off" if arguments.quiet else "auto",
    )
    if arguments.json:
        print_json(analysis.to_dict())
    elif not arguments.quiet:
        table = image_terminal_table(analysis, width=terminal_width(), color=sys.stdout.isatty())
        _show(table, verdict(analysis), arguments.output)
    return 0


def _show(table: str, closing_line: str, output: str) -> None:
    write_styled(table)
    write(f"{closing_line}\n")
    for what, name in _RESULTS.items():
        write(f"{what:<8} {os.path.join(output, name)}")
