"""Arguments that several commands have."""

from __future__ import annotations

import argparse

__all__ = ["add_executor", "add_run_options", "add_workers", "budget", "count", "positive", "share"]


def add_executor(command: argparse.ArgumentParser) -> None:
    """What runs it."""
    command.add_argument(
        "--executor",
        metavar="NAME",
        help="the executor: local, streaming (a Ray cluster), ray-actor-pool, ray-data, xenna, or package.module:Class",
    )
    command.add_argument("--address", metavar="HOST:PORT", help="the Ray cluster; RAY_ADDRESS by default")
    add_workers(command)


def add_workers(command: argparse.ArgumentParser) -> None:
    """How many workers."""
    command.add_argument("--workers", metavar="N", type=count, help="workers to use; 0 runs everything in one process")


def count(text: str) -> int:
    """A whole number that is not negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, not {text!r}")
    return int(text)


def share(text: str) -> float:
    """A number above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and at most 1, not {text!r}")
    return value


def budget(text: str) -> float:
    """A number of rows, or a share of them."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0 or (value > 1 and value != int(value)):
        raise argparse.ArgumentTypeError(f"expected a number of rows, or a share between 0 and 1, not {text!r}")
    return int(value) if value == int(value) else value


def add_run_options(command: argparse.ArgumentParser) -> None:
    """Where a run is recorded, what it may lose, and what is shown."""
    command.add_argument(
        "--run-dir", metavar="DIR", help="directory or address for the report, counts, quarantine and ledger of the run"
    )
    command.add_argument("--fresh", action="store_true", help="start over, also if there is a run to go on with")
    command.add_argument("--scratch", metavar="DIR", help="directory or address for data between stages")
    command.add_argument(
        "--failure-budget",
        metavar="N",
        type=budget,
        help="end the run when more rows than this fail: a number, or a share below 1; 0 ends it with the first",
    )
    command.add_argument("--quiet", "-q", action="store_true", help="show nothing but errors")
    command.add_argument("--json", action="store_true", help="print the summary of the run as JSON")
    command.add_argument(
        "--progress", choices=("auto", "live", "plain", "off"), default="auto", help="what to show while it runs"
    )
