"""``tamis plan``."""

from __future__ import annotations

import argparse

from tamis.cli.output import write
from tamis.cli.recipe_argument import recipe_from

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Show what a recipe would run."""
    recipe = recipe_from(arguments)
    write(str(recipe.to_pipeline().plan(recipe.run.make_executor())))
    return 0
