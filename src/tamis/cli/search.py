"""``tamis search``."""

from __future__ import annotations

import argparse

from tamis.cli.output import print_json, show, write
from tamis.printable import printable


def run(arguments: argparse.Namespace) -> int:
    """Show the rows that are nearest to a text."""
    from tamis.analysis.search import search
    from tamis.pipeline.recipe_build import build_stage
    from tamis.pipeline.recipe_nodes import parse_yaml
    from tamis.runs import figures

    stage = build_stage(parse_yaml(arguments.stage, "--stage", one_place=True)) if arguments.stage else None
    result = search(
        arguments.input,
        arguments.text,
        k=arguments.k,
        stage=stage,
        text_field=arguments.text_field,
        embedding_field=arguments.embedding_field,
    )
    if arguments.json:
        hits = [
            {"score": hit.score, "file": hit.file, "row": hit.row, "values": hit.values, "problem": hit.problem}
            for hit in result
        ]
        print_json(
            {
                "query": result.query,
                "stage": result.stage,
                "rows": result.rows,
                "rows_without_embedding": result.without,
                "hits": hits,
            }
        )
        return 0
    from rich.text import Text

    for hit in result:
        told = Text(f"{hit.score:.3f}  ", style="dim")
        told.append(printable(hit.name), style="bold")
        told.append(f"\n       {printable(result.text_of(hit))}", style="dim" if hit.problem else "not dim")
        show(told)
    missing = f", {figures.number(result.without)} of them without an embedding" if result.without else ""
    write(f"{figures.number(result.rows)} rows compared{missing}.")
    return 0
