"""``tamis map``."""

from __future__ import annotations

import argparse

from tamis.cli.output import print_json, show, write
from tamis.printable import printable, shortened


def run(arguments: argparse.Namespace) -> int:
    """Show how diverse embeddings are, their clusters, and write a page with a map."""
    from tamis.analysis.embeddings import map_embeddings

    made = map_embeddings(
        arguments.input,
        rows=arguments.rows,
        text_field=arguments.text_field,
        embedding_field=arguments.embedding_field,
        cluster_field=arguments.cluster_field,
    )
    made.write(arguments.output)
    if arguments.json:
        print_json(made.to_dict())
        return 0
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("data set", "mean distance", "Vendi score", "near duplicates", "effective clusters"):
        table.add_column(name, overflow="fold", justify="left" if name == "data set" else "right")
    for name, diversity in made.diversity.items():
        table.add_row(
            Text(printable(name)),
            f"{diversity.mean_distance:.3f}",
            f"{diversity.effective_directions:,.1f}",
            f"{diversity.near_duplicates:.1%}",
            f"{diversity.effective_clusters:.1f} of {diversity.clusters}",
        )
    show(table, Text())
    for cluster in made.typical:
        write(f"{cluster.rows:6,}  {shortened(', '.join(cluster.words), 90)}")
    write(f"\nThe map: {arguments.output}")
    return 0
