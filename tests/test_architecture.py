"""Imports point one way, and the page about it shows the tree as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tamis"

ORDER = [
    "cli",
    "training",
    "analysis",
    "pipeline",
    "backends",
    "core",
    "runs",
    "plan",
    "stages",
    "models",
    "tasks",
    "arrays",
    "lazy",
    "sizes",
    "errors",
    "printable",
]
"""Each part may import itself and what is behind it here. ``import tamis`` alone, for the version, is free."""

KERNELS = "kernels"
"""Imports nothing of ours; tasks and all that is before them here may import it."""

ON_TOP = {"compat", "quickstart", "testing", "__main__", "__init__"}
"""May import anything. Of the others only ``cli`` may import one of them, ``quickstart``."""


def may_import(part: str) -> set[str]:
    if part == KERNELS:
        return {KERNELS}
    place = ORDER.index(part)
    kernels = {KERNELS} if place <= ORDER.index("tasks") else set()
    return {*ORDER[place:], *kernels, *({"quickstart"} if part == "cli" else ())}


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports, also inside functions and for the type checker only."""
    package = ["tamis", *file.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from tamis import cli` imports a part, `from tamis.cli import main` a name of one
            names = [f"tamis.{alias.name}" for alias in node.names] if module == "tamis" else [module]
            yield from ((node.lineno, name) for name in names)


def parts_imported(file: Path) -> Iterator[tuple[int, str]]:
    known = {part_of(f) for f in SOURCE.rglob("*.py")}
    for line, name in imports_of(file):
        parts = name.split(".")
        if parts[0] == "tamis" and len(parts) > 1 and parts[1] in known:
            yield line, parts[1]


FILES = sorted(SOURCE.rglob("*.py"))


def test_every_part_has_its_place() -> None:
    assert {part_of(f) for f in FILES} <= {*ORDER, KERNELS, *ON_TOP}


@pytest.mark.parametrize(
    "file", [f for f in FILES if part_of(f) not in ON_TOP], ids=lambda f: str(f.relative_to(SOURCE))
)
def test_imports_point_down(file: Path) -> None:
    allowed = may_import(part_of(file))
    assert [f"line {line}: {part}" for line, part in parts_imported(file) if part not in allowed] == []


def packages() -> set[str]:
    return {f.parent.relative_to(SOURCE).as_posix() for f in SOURCE.rglob("__init__.py")} - {"."}


def test_the_page_names_every_package_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^- `([\w/]+)/`", page, re.MULTILINE)) == packages()


def test_the_picture_names_every_package_at_the_top() -> None:
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    names = set(re.findall(r">(\w+)/</", picture))
    assert names == {p for p in packages() if "/" not in p}


def test_the_walks_pass_modules_that_exist_and_none_twice() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page[page.index("## Three walks") : page.index("## Packages")]
    walks = re.split(r"^\*\*.+\*\*$", section, flags=re.MULTILINE)[1:]
    assert len(walks) == 3
    for walk in walks:
        modules = re.findall(r"`([\w/]+\.py)`", walk)
        assert len(modules) == len(set(modules)) > 5
        assert [m for m in modules if not (SOURCE / m).exists()] == []
