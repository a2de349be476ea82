"""The pipeline of a past run, from the recipe that its manifest holds."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tamis.errors import DataError, PlanError
from tamis.runs.manifest import read_manifest

if TYPE_CHECKING:
    from tamis.pipeline import Pipeline
    from tamis.pipeline.recipe import Recipe

__all__ = ["directory_of_start", "last_start", "recorded_pipeline", "recorded_recipe"]


def last_start(run_dir: str) -> dict[str, Any]:
    """What the manifest says of the latest start of a run.

    Raises:
        DataError: It is not a run, or has no manifest.
    """
    starts = read_manifest(run_dir).get("starts") or [{}]
    if not starts[-1]:
        hint = "'tamis run' prints the path of its run directory; 'tamis runs' lists them."
        raise DataError("this is not a run directory with a manifest.json", path=run_dir, hint=hint)
    found: dict[str, Any] = starts[-1]
    return found


def recorded_recipe(run_dir: str, instead: str) -> Recipe:
    """The recipe of a run.

    Args:
        run_dir: The run's directory.
        instead: What to do in Python if the pipeline could not be written as a recipe.
    """
    from tamis.pipeline.recipe import load_recipe

    text = last_start(run_dir).get("recipe", "")
    if not text:
        raise PlanError(
            f"{run_dir}: its pipeline cannot be written as a recipe (it has functions, or classes that cannot be "
            f"imported), so the command cannot build it. In Python: {instead}"
        )
    return load_recipe(text if "\n" in text else f"{text}\n")


def recorded_pipeline(run_dir: str, instead: str) -> Pipeline:
    """The pipeline of a run; see :func:`recorded_recipe`."""
    return recorded_recipe(run_dir, instead).to_pipeline()


@contextlib.contextmanager
def directory_of_start(run_dir: str) -> Iterator[None]:
    """Work in the directory that a run was started in: relative paths of its recipe and its modules are found there."""
    directory = last_start(run_dir).get("directory", "")
    if not os.path.isdir(directory):
        yield
        return
    before = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
