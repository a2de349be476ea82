"""The arguments of ``tamis train-classifier`` and ``tamis train-lm``."""

from __future__ import annotations

import argparse

from tamis.cli.shared_arguments import count, positive

__all__ = ["add_train_classifier", "add_train_lm"]

_INPUT = "a file, a directory or a pattern (in quotes)"
_FORMAT = "jsonl, parquet, csv, tsv or text; else by the files' names"


def add_train_classifier(command: argparse.ArgumentParser) -> None:
    """Those of ``tamis train-classifier``."""
    command.add_argument("input", metavar="INPUT", nargs="+", help=_INPUT)
    command.add_argument("--output", metavar="DIR", default="model", help="the model's folder (%(default)s)")
    command.add_argument("--text", metavar="NAME", default="text", help="the column with the text (%(default)s)")
    labels = command.add_mutually_exclusive_group()
    labels.add_argument("--label", metavar="NAME", help="the column with the label (label)")
    labels.add_argument(
        "--label-where", metavar="CONDITION", help='labels by a condition, such as "stars >= 4": true and false'
    )
    labels.add_argument(
        "--seeds",
        metavar="PATH",
        action="append",
        help="files with texts like those that are wanted; INPUT has others, without labels",
    )
    command.add_argument("--kind", choices=("linear", "fasttext"), default="linear", help="what to train (%(default)s)")
    command.add_argument(
        "--embeddings", metavar="NAME", help="train on the vectors in this column instead of the words of the texts"
    )
    command.add_argument("--test-share", metavar="F", type=_share, default=0.2, help="share for the test (%(default)s)")
    command.add_argument("--seed", metavar="N", type=count, default=0, help="choose other texts (%(default)s)")
    command.add_argument("--epochs", metavar="N", type=positive, default=10, help="passes, at most (%(default)s)")
    command.add_argument("--ngrams", metavar="N", type=positive, default=2, help="the largest n-gram (%(default)s)")
    command.add_argument(
        "--unit",
        choices=("token", "word", "character"),
        default="token",
        help="what n-grams are made of: words and marks in lower case, words, or characters (%(default)s)",
    )
    command.add_argument("--bits", metavar="N", type=positive, default=20, help="2 ** N weights a label (%(default)s)")
    command.add_argument(
        "--max-bytes", metavar="N", type=count, default=65536, help="look at so much of a text; 0 for all (%(default)s)"
    )
    command.add_argument(
        "--max-rows", metavar="N", type=positive, default=200_000, help="train on a sample if larger (%(default)s)"
    )
    command.add_argument("--format", metavar="NAME", help=_FORMAT)
    command.add_argument("--quiet", "-q", action="store_true", help="show nothing but errors")
    command.add_argument("--json", action="store_true", help="print the figures as JSON")


def add_train_lm(command: argparse.ArgumentParser) -> None:
    """Those of ``tamis train-lm``."""
    command.add_argument("input", metavar="INPUT", nargs="*", help=_INPUT)
    command.add_argument("--output", metavar="PATH", required=True, help="the file of the model")
    command.add_argument("--order", metavar="N", type=positive, default=5, help="the largest n-gram (%(default)s)")
    command.add_argument(
        "--unit",
        choices=("token", "word", "character"),
        default="token",
        help="what n-grams are made of: words and marks in lower case, words, or characters (%(default)s)",
    )
    command.add_argument("--text", metavar="NAME", default="text", help="the column with the text (%(default)s)")
    command.add_argument(
        "--min-unit-count", metavar="N", type=positive, default=2, help="rarer units count as unknown (%(default)s)"
    )
    command.add_argument(
        "--min-counts",
        metavar="N,...",
        type=_counts,
        default=[1, 1, 2],
        help="how often n-grams of each order must occur, the last for all longer ones (1,1,2)",
    )
    command.add_argument(
        "--max-bytes", metavar="N", type=positive, default=50_000_000, help="use so much text at most (%(default)s)"
    )
    command.add_argument("--exact", action="store_true", help="do not quantise probabilities")
    command.add_argument("--arpa", metavar="PATH", help="turn this file in the ARPA format into a model instead")
    command.add_argument("--seed", metavar="N", type=count, default=0, help="choose other texts (%(default)s)")
    command.add_argument("--format", metavar="NAME", help=_FORMAT)
    command.add_argument("--quiet", "-q", action="store_true", help="show nothing but errors")
    command.add_argument("--json", action="store_true", help="print the figures as JSON")


def _counts(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1 up, such as 1,1,2, not {text!r}")
    return [int(part) for part in parts]


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.8:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 0.8, not {text!r}")
    return value
