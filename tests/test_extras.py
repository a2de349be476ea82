"""Every extra that a message or a page names can be installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tamis.stages.io.paths import _EXTRAS

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
NAMED = re.compile(r"tamis\[([a-z][\w,-]*)\]|extra=\"(\w+)\"")


def test_extras_that_are_named_exist() -> None:
    sources = [*(ROOT / "src" / "tamis").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = {
        extra: str(path)
        for path in [*sources, *(ROOT / "examples").rglob("*.py")]
        for found in NAMED.finditer(path.read_text(encoding="utf-8"))
        for extra in (found[1] or found[2]).split(",")
    }
    assert {"s3", "ray"} <= named.keys()
    assert {extra: path for extra, path in named.items() if extra not in EXTRAS} == {}


def test_extras_of_stores_install_what_they_need() -> None:
    for package, extra in _EXTRAS.values():
        assert any(requirement.startswith(package) for requirement in EXTRAS[extra])
