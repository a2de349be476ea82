"""``tamis stages``."""

from __future__ import annotations

import argparse
import inspect
import itertools
import os
import sys
from typing import Any

from tamis.cli.output import complain, print_json, show
from tamis.errors import RecipeError
from tamis.pipeline.catalogue import Entry, catalogue, find, listed
from tamis.pipeline.parameters import REQUIRED, parameters_of, summary_of


def run(arguments: argparse.Namespace) -> int:
    """List the stages, or show the parameters of one."""
    if arguments.name is None:
        _list(listed(), arguments.json)
        return 0
    try:
        entry = _entry(arguments.name)
    except RecipeError as error:
        complain(str(error))
        return 2
    if arguments.json:
        print_json(_as_dict(entry))
    else:
        _show(entry)
    return 0


def _entry(name: str) -> Entry:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found = find(name)
    entry = catalogue().get(name) or (Entry(name, "your own", found) if inspect.isclass(found) else None)
    if entry is None or (name not in catalogue() and entry.kind == "object"):
        raise RecipeError(f"{name} is not the class of a stage, a filter or a modifier")
    return entry


def _list(entries: list[Entry], as_json: bool) -> None:
    if as_json:
        print_json([_as_dict(entry) for entry in entries])
        return
    from rich.table import Table
    from rich.text import Text

    width = max((len(entry.name) for entry in entries), default=0)
    for area, members in itertools.groupby(entries, key=lambda entry: entry.area):
        table = Table.grid(padding=(0, 2))
        table.add_column(width=width, no_wrap=True)
        table.add_column(width=8)
        table.add_column()
        for entry in sorted(members, key=lambda entry: entry.kind != "stage"):
            explanation = Text(_first_sentence(summary_of(entry.cls)), style="dim")
            table.add_row(Text(entry.name), Text(entry.kind, style="dim"), explanation)
        show(Text(area, style="bold"), table, Text())
    show(Text("tamis stages NAME shows the parameters of one."))


def _show(entry: Entry) -> None:
    from rich.table import Table
    from rich.text import Text

    show(Text.assemble((entry.name, "bold"), (f"  {entry.kind}, {entry.cls.__module__}", "dim")))
    for paragraph in _paragraphs(inspect.getdoc(entry.cls) or ""):
        show(Text(), Text(paragraph))
    parameters = parameters_of(entry.cls)
    if not parameters:
        show(Text(), Text("It takes no parameters."))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("parameter", "type", "default", ""):
        table.add_column(name, overflow="fold")
    for parameter in parameters:
        default = "required" if parameter.default is REQUIRED else repr(parameter.default)
        table.add_row(Text(parameter.name), Text(parameter.written_type), Text(default), Text(_plain(parameter.help)))
    show(Text(), table)


def _paragraphs(docstring: str) -> list[str]:
    """The text of a docstring, without its sections (``Args:``) and examples."""
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        first = paragraph.strip().partition("\n")[0]
        if first.endswith(":") and first[:-1].isalpha() and first[0].isupper():
            continue
        if first and not first.startswith(">>>"):
            paragraphs.append(_plain(" ".join(paragraph.split())))
    return paragraphs


def _plain(text: str) -> str:
    """Docstring markup as plain text."""
    return text.replace("``", "").replace(":meth:", "").replace(":class:", "").replace("`", "")


def _first_sentence(text: str) -> str:
    head, stop, _ = _plain(text).partition(". ")
    return f"{head}." if stop else head


def _as_dict(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "area": entry.area,
        "kind": entry.kind,
        "class": f"{entry.cls.__module__}:{entry.cls.__qualname__}",
        "description": _plain(summary_of(entry.cls)),
        "parameters": [
            {
                "name": p.name,
                "type": p.written_type,
                "required": p.default is REQUIRED,
                "default": None if p.default is REQUIRED else p.default,
                "description": _plain(p.help),
            }
            for p in parameters_of(entry.cls)
        ],
    }
