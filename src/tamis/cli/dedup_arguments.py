"""The arguments of ``tamis dedup``. What is not given is left to the stage."""

from __future__ import annotations

import argparse
from typing import Final

from tamis.cli.shared_arguments import add_executor, add_run_options, add_workers, count, positive, share

__all__ = ["STAGE_OPTIONS", "add_dedup"]

STAGE_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "exact": ("text_field", "keep", "normalize_text", "partitions", "memory_budget"),
    "fuzzy": (
        "text_field",
        "keep",
        "num_bands",
        "minhashes_per_band",
        "char_ngrams",
        "word_ngrams",
        "normalize",
        "scheme",
        "seed",
        "use_64_bit_hash",
        "verify",
        "pairs_path",
        "index",
        "update_index",
        "within",
        "partitions",
        "memory_budget",
        "gpus",
    ),
    "semantic": (
        "embedding_field",
        "n_clusters",
        "eps",
        "which_to_keep",
        "distance_metric",
        "keep",
        "compare_with",
        "borders",
        "pairs_path",
        "random_state",
        "refine_rounds",
        "partitions",
        "memory_budget",
        "gpus",
    ),
    "lines": (
        "text_field",
        "unit",
        "max_occurrences",
        "keep",
        "min_length",
        "normalize_text",
        "partitions",
        "memory_budget",
    ),
    "substrings": ("text_field", "min_bytes", "min_words", "keep", "partitions", "memory_budget"),
}
"""The parameters of each stage that the command line can set."""

_SUMMARIES: Final = {
    "exact": "Of documents with equal text, keep one.",
    "fuzzy": "Of documents with similar texts, keep one.",
    "semantic": "Of rows with similar embeddings, keep one.",
    "lines": "Remove lines or paragraphs that occur more than once in all documents together.",
    "substrings": "Cut out passages that are repeated anywhere.",
    "estimate": "From a sample: what fuzzy deduplication would remove at which threshold, and what it would cost.",
}
_NOTHING: Final = argparse.SUPPRESS


def add_dedup(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Add the ways to deduplicate.

    Args:
        command: The parser of ``tamis dedup``.
        shared: Options that all commands have.
    """
    kinds = command.add_subparsers(
        title="what to remove", metavar="exact|fuzzy|semantic|lines|substrings|estimate", dest="kind", required=True
    )
    for kind, summary in _SUMMARIES.items():
        made = kinds.add_parser(kind, help=summary, description=summary, parents=[shared])
        made.add_argument(
            "input", metavar="INPUT", nargs="+", help="files, directories or patterns (in quotes): JSON lines, Parquet"
        )
        if kind != "estimate":
            made.add_argument("output", metavar="OUTPUT", help="the directory to write to")
        made.add_argument(
            "--text-field", metavar="NAME", default=_NOTHING, help="the column with the text (text)", dest="text_field"
        )
        made.add_argument("--input-format", metavar="NAME", help="jsonl, parquet, csv, tsv or text; else by the names")
        _ADD[kind](made)
        if kind == "estimate":
            _add_estimate(made)
            continue
        made.add_argument("--format", choices=("jsonl", "parquet"), help="what to write; by default as the input")
        made.add_argument("--overwrite", action="store_true", help="replace the files of an earlier output")
        add_executor(made)
        add_run_options(made)


def _add_exact(command: argparse.ArgumentParser) -> None:
    _add_keep(command)
    _flag(command, "--normalize", "normalize_text", True, "texts that differ in case and white space only are equal")
    _add_memory(command)


def _add_fuzzy(command: argparse.ArgumentParser) -> None:
    _add_keep(command)
    _add_signatures(command)
    _value(command, "--verify", "verify", "S", "compare candidates; join those of at least this similarity", share)
    _value(command, "--pairs-path", "pairs_path", "DIR", "with --verify: write the pairs and their similarities here")
    _value(command, "--index", "index", "DIR", "signatures of earlier documents: compare with them, add the new ones")
    _flag(command, "--no-update-index", "update_index", False, "with --index: do not add the new ones")
    _value(
        command, "--gpus", "gpus", "G", "GPUs, or the share of one, for each worker that makes signatures (0)", float
    )
    _flag(command, "--only-index", "within", False, "with --index: compare with the index only, not with each other")
    _add_memory(command)


def _add_signatures(command: argparse.ArgumentParser) -> None:
    _value(command, "--bands", "num_bands", "N", "bands of a signature (20)", positive)
    _value(command, "--rows-per-band", "minhashes_per_band", "N", "hashes of a band (13)", positive)
    _value(command, "--char-ngrams", "char_ngrams", "N", "characters of an n-gram (24)", positive)
    _value(command, "--word-ngrams", "word_ngrams", "N", "words of an n-gram, instead of characters", positive)
    command.add_argument(
        "--normalize",
        metavar="NAME,...",
        type=lambda text: tuple(filter(None, text.split(","))),
        default=_NOTHING,
        help="make equal before comparing: lower, whitespace, punctuation",
    )
    command.add_argument("--scheme", choices=("fast", "classic"), default=_NOTHING, help="how to sign (fast)")
    _value(command, "--seed", "seed", "N", "another seed makes other signatures (42)", count)
    _flag(command, "--64-bit", "use_64_bit_hash", True, "hashes of 64 bits, not 32")


def _add_semantic(command: argparse.ArgumentParser) -> None:
    _value(command, "--embedding-field", "embedding_field", "NAME", "the column with the embeddings (embeddings)")
    command.add_argument(
        "--model", metavar="NAME", default="", help="embed the texts: hashed (no weights), a hub name or a folder"
    )
    command.add_argument("--keep-embeddings", action="store_true", help="with --model: write the embeddings, too")
    _value(command, "--eps", "eps", "E", "rows are similar if their cosine is at least 1 - E (0.01)", float)
    _value(command, "--clusters", "n_clusters", "N", "clusters; chosen from the number of rows by default", positive)
    _choice(command, "--which-to-keep", "which_to_keep", ("hard", "easy", "random"), "by the distance from the centre: "
            "hard, the furthest; easy, the nearest; or random (hard)")  # fmt: skip
    _choice(command, "--distance", "distance_metric", ("cosine", "l2"), "how that distance is measured (cosine)")
    text = "instead of these, the row that stays: first, highest:COLUMN or lowest:COLUMN"
    _value(command, "--keep", "keep", "RULE", text)
    _choice(command, "--compare-with", "compare_with", ("kept", "all"), "which rows remove others: those that stay, or "
            "all (kept)")  # fmt: skip
    _flag(command, "--no-borders", "borders", False, "compare within clusters only: faster, and pairs are lost")
    _value(command, "--pairs-path", "pairs_path", "DIR", "write all similar pairs here, to try a smaller eps later")
    _value(
        command, "--refine-rounds", "refine_rounds", "N", "rounds of k-means over all rows, after the sample (0)", count
    )
    _value(command, "--seed", "random_state", "N", "another seed makes other clusters (42)", count)
    _value(command, "--gpus", "gpus", "G", "GPUs, or the share of one, for each worker that multiplies (0)", float)
    _add_memory(command)


def _add_lines(command: argparse.ArgumentParser) -> None:
    command.add_argument("--unit", choices=("line", "paragraph"), default=_NOTHING, help="what is compared (line)")
    _value(command, "--max-occurrences", "max_occurrences", "N", "how often a line may occur (1)", positive)
    _add_keep_spans(command)
    _value(command, "--min-length", "min_length", "N", "shorter lines stay; in characters (1)", positive)
    _flag(command, "--normalize", "normalize_text", True, "lines that differ in case and white space only are equal")
    _add_memory(command)


def _add_substrings(command: argparse.ArgumentParser) -> None:
    _value(command, "--min-bytes", "min_bytes", "N", "the shortest passage that counts, in bytes (200)", positive)
    _value(command, "--min-words", "min_words", "N", "the same in words, instead of bytes", positive)
    _add_keep_spans(command)
    _add_memory(command)


def _add_estimate(command: argparse.ArgumentParser) -> None:
    _add_memory(command)
    amount = command.add_mutually_exclusive_group()
    amount.add_argument("--sample", metavar="SIZE", default="256MiB", help="how much to look at (%(default)s)")
    amount.add_argument("--all", action="store_true", help="look at everything")
    command.add_argument(
        "--cores", metavar="N,...", type=_numbers, default=(), help="predict the time for so many cores, too"
    )
    command.add_argument(
        "--gpus",
        dest="gpus_beside",
        metavar="N",
        type=count,
        default=0,
        help="predict for so many GPUs beside the cores, which then sign",
    )
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_workers(command)


_ADD: Final = {
    "exact": _add_exact,
    "fuzzy": _add_fuzzy,
    "semantic": _add_semantic,
    "lines": _add_lines,
    "substrings": _add_substrings,
    "estimate": _add_signatures,
}


def _add_keep(command: argparse.ArgumentParser) -> None:
    text = "the document that stays: first, longest, highest:COLUMN or lowest:COLUMN (first)"
    _value(command, "--keep", "keep", "RULE", text)


def _add_keep_spans(command: argparse.ArgumentParser) -> None:
    command.add_argument("--keep", choices=("first", "none"), default=_NOTHING, help="what stays of equal ones (first)")


def _add_memory(command: argparse.ArgumentParser) -> None:
    _value(
        command, "--memory-budget", "memory_budget", "SIZE", "memory for the tables of this stage, such as 8GB (2GiB)"
    )
    _value(command, "--partitions", "partitions", "N", "parts that can be worked on at the same time (16)", positive)


def _value(
    command: argparse.ArgumentParser, option: str, name: str, metavar: str, text: str, kind: object = str
) -> None:
    command.add_argument(option, dest=name, metavar=metavar, type=kind, default=_NOTHING, help=text)  # type: ignore[arg-type]  # a function of a text


def _flag(command: argparse.ArgumentParser, option: str, name: str, value: bool, text: str) -> None:
    command.add_argument(option, dest=name, action="store_const", const=value, default=_NOTHING, help=text)


def _choice(command: argparse.ArgumentParser, option: str, name: str, choices: tuple[str, ...], text: str) -> None:
    command.add_argument(option, dest=name, choices=choices, default=_NOTHING, help=text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))
