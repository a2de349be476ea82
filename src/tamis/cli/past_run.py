"""Past runs that a command names by an address: what they have recorded is fetched first."""

from __future__ import annotations

import argparse


def fetch_runs(arguments: argparse.Namespace) -> None:
    """Put copies on this machine in place of addresses of past runs. ``run_address`` keeps what was given.

    Args:
        arguments: The arguments of a command that reads past runs.
    """
    for name in ("run_dir", "run_a", "run_b"):
        given = getattr(arguments, name, None)
        if given is not None:
            arguments.run_address = given
            setattr(arguments, name, here(given))


def here(run_dir: str) -> str:
    """A run directory on this machine: the given one, or a copy."""
    if "://" not in run_dir:
        return run_dir
    from tamis.runs.mirror import local_run

    return local_run(run_dir)
