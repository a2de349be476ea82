"""``tamis recipes``."""

from __future__ import annotations

import argparse

from tamis.cli.output import complain, print_json, show, write
from tamis.errors import did_you_mean


def run(arguments: argparse.Namespace) -> int:
    """List the recipes that come with tamis, or print one."""
    from tamis.pipeline.recipe import load_recipe, shipped_recipes

    recipes = shipped_recipes()
    if arguments.name is not None:
        if arguments.name not in recipes:
            known = ", ".join(recipes)
            complain(f"there is no recipe {arguments.name!r}, only {known}.{did_you_mean(arguments.name, recipes)}")
            return 2
        write(recipes[arguments.name].read_text(encoding="utf-8").rstrip("\n"))
        return 0
    described = {name: load_recipe(path).description for name, path in recipes.items()}
    if arguments.json:
        print_json([{"name": name, "description": text} for name, text in described.items()])
        return 0
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, text in described.items():
        table.add_row(Text(name), Text(text, style="dim"))
    show(table, Text())
    show(Text("tamis run NAME --input DATA --output DIR runs one; tamis recipes NAME prints it."))
    return 0
