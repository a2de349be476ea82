"""The arguments of ``tamis search`` and ``tamis map``."""

from __future__ import annotations

import argparse

from tamis.cli.shared_arguments import positive

__all__ = ["add_map", "add_search"]


def add_search(command: argparse.ArgumentParser) -> None:
    """The arguments of ``tamis search``."""
    command.add_argument("input", metavar="INPUT", help="Parquet files with embeddings: a file, directory or pattern")
    command.add_argument("text", metavar="TEXT", help="what to look for")
    command.add_argument("--k", metavar="N", type=positive, default=10, help="how many rows to show (%(default)s)")
    command.add_argument("--text-field", metavar="NAME", help="the column with the text; else that of the stage")
    command.add_argument(
        "--embedding-field", metavar="NAME", default="embeddings", help="the column with the embeddings (%(default)s)"
    )
    command.add_argument(
        "--stage",
        metavar="STAGE",
        help="what made the embeddings, as in a recipe: 'HashedEmbeddingStage: {dim: 512}'; else RUN.json beside them "
        "says it",
    )
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_map(command: argparse.ArgumentParser) -> None:
    """The arguments of ``tamis map``."""
    command.add_argument(
        "input", metavar="INPUT", nargs="+", help="Parquet files with embeddings; several are shown side by side"
    )
    command.add_argument(
        "--rows", metavar="N", type=positive, default=2000, help="rows to look at, of each (%(default)s)"
    )
    command.add_argument("--text-field", metavar="NAME", default="text", help="the column with the text (%(default)s)")
    command.add_argument(
        "--embedding-field", metavar="NAME", default="embeddings", help="the column with the embeddings (%(default)s)"
    )
    command.add_argument("--cluster-field", metavar="NAME", help="a column with clusters; else they are found")
    command.add_argument(
        "--output", metavar="OUTPUT", default="embedding-map.html", help="the page to write (%(default)s)"
    )
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
