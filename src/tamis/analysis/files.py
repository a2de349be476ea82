"""What analyses share: checks of their arguments, and files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tamis.errors import PlanError

__all__ = ["check_amount", "check_output", "write_file"]


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file under another name, and rename it when it is whole."""
    unfinished = path.with_name(f".{path.name}.tmp")
    write(unfinished)
    unfinished.replace(path)


def check_amount(sample: int | None, fraction: float | None, everything: bool, keep_rate: float) -> None:
    """Refuse arguments that exclude each other, or that are out of range."""
    if sum((sample is not None, fraction is not None, everything)) > 1:
        raise PlanError("analyze: sample, fraction and everything exclude each other; give one of them")
    if sample is not None and sample < 1:
        raise PlanError(f"analyze(sample={sample}): must be at least 1")
    if fraction is not None and not 0 < fraction <= 1:
        raise PlanError(f"analyze(fraction={fraction}): must be above 0 and at most 1")
    if not 0 < keep_rate <= 1:
        raise PlanError(f"analyze(keep_rate={keep_rate}): must be above 0 and at most 1")


def check_output(output: str, paths: Sequence[str]) -> None:
    """Refuse an output directory inside the input: the next analysis would read the results of this one."""
    for path in paths:
        if os.path.isdir(path) and Path(output).resolve().is_relative_to(Path(path).resolve()):
            raise PlanError(
                f"{output} is inside the input {path}. Choose another directory for the results: --output "
                "(output in Python)"
            )
