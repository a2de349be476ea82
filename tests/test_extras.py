"""Every extra that a message or a page names can be installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_extras_that_are_named_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [*(ROOT / "src" / "tamis").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    sources += (ROOT / "examples").rglob("*.py")
    named: dict[str, str] = {}
    for path in sources:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(
            r"tamis\\?\[([a-z][\w,-]*)\\?\]|extra=\"(\w+)\"|\(\"\w+\", \"(\w+)\"\),$", text, re.MULTILINE
        ):
            for extra in (found[1] or found[2] or "").split(","):
                named[extra] = str(path)
    named.pop("", None)
    assert {"s3", "hf", "ray"} <= named.keys()
    assert {extra: path for extra, path in named.items() if extra not in project["optional-dependencies"]} == {}


def test_extras_of_stores_exist() -> None:
    from tamis.stages.io.paths import _EXTRAS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for package, extra in _EXTRAS.values():
        assert any(requirement.startswith(package) for requirement in project["optional-dependencies"][extra])
