"""Reads the recipe that a command line names."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tamis.pipeline.recipe import Recipe

__all__ = ["recipe_from"]


def recipe_from(arguments: argparse.Namespace) -> Recipe:
    """The recipe with the changes of the command line.

    Modules in the current directory can be named in it, as with ``python -m``.
    """
    from tamis.pipeline.recipe import load_recipe

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    recipe = load_recipe(arguments.recipe).with_paths(arguments.input, arguments.output)
    recipe = recipe.with_settings(arguments.settings)
    given = {
        "executor": arguments.executor,
        "address": arguments.address,
        "workers": arguments.workers,
        "run_dir": getattr(arguments, "run_dir", None),
        "drop_ledger": False if getattr(arguments, "no_drop_ledger", False) else None,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, **changes))
