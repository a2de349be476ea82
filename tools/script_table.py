"""Writes src/tamis/kernels/script_table.py, the Unicode script of every character, from fontTools' copy of it.

    pip install fonttools && python tools/script_table.py && ruff format src/tamis/kernels/script_table.py

The source is Scripts.txt and PropertyValueAliases.txt of the Unicode Character Database, which
``fontTools.unicodedata`` carries as Python data; https://www.unicode.org/reports/tr24/ defines the property.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from pathlib import Path

from fontTools.unicodedata import Scripts, script_name

TARGET = Path(__file__).parents[1] / "src" / "tamis" / "kernels" / "script_table.py"
NO_SCRIPT = {"Zinh", "Zyyy", "Zzzz"}
"""Inherited, common, unknown: characters of these say nothing about the script of a text."""


def ranges_by_script() -> dict[str, list[tuple[int, int]]]:
    """First and last code point of each run of characters of one script."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    ends = [*Scripts.RANGES[1:], 0x110000]
    for first, end, script in zip(Scripts.RANGES, ends, Scripts.VALUES, strict=True):
        if script not in NO_SCRIPT:
            ranges[script].append((first, end - 1))
    return dict(sorted(ranges.items()))


def written(runs: list[tuple[int, int]]) -> str:
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in runs)


def entry(script: str, runs: list[tuple[int, int]]) -> str:
    name = script_name(script).replace("_", " ")
    lines = textwrap.wrap(written(runs), 100)
    if len(lines) == 1:
        return f'    "{script}": ("{name}", "{lines[0]}"),\n'
    quoted = "".join(f'        "{line}{"" if line is lines[-1] else " "}"\n' for line in lines)
    return f'    "{script}": (\n        "{name}",\n' + quoted + "    ),\n"


def main() -> None:
    version = re.search(r"Scripts-([\d.]+)\.txt", Path(Scripts.__file__).read_text(encoding="utf-8"))
    if version is None:
        raise SystemExit("fontTools does not say which version of Unicode it has")
    ranges = ranges_by_script()
    TARGET.write_text(
        f'''"""Which characters belong to which script: Unicode {version[1]}. Made by tools/script_table.py.

Source: Scripts.txt of the Unicode Character Database (https://www.unicode.org/reports/tr24/), Unicode License v3.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT_RANGES"]

SCRIPT_RANGES: Final[dict[str, tuple[str, str]]] = {{
{"".join(entry(script, runs) for script, runs in ranges.items())}}}
"""The name of each script and the code points of its characters, in hexadecimal, by ISO 15924 code.

Characters that many scripts share (digits, punctuation, combining marks) and unassigned ones are in none.
"""
''',
        encoding="utf-8",
    )
    print(f"{TARGET}: {len(ranges)} scripts, {sum(map(len, ranges.values()))} ranges, Unicode {version[1]}")


if __name__ == "__main__":
    main()
