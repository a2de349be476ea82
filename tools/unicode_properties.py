"""Writes src/tamis/kernels/unicode_properties.py: ``python tools/unicode_properties.py`` (needs the package regex).

Python's ``unicodedata`` knows categories but not these properties, and its Unicode version changes with Python's.
"""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path

import regex

TARGET = Path(__file__).parents[1] / "src" / "tamis" / "kernels" / "unicode_properties.py"
PROPERTIES = {"ALPHABETIC": r"\p{Alphabetic}", "DECIMAL": r"\p{Nd}", "SENTENCE_TERMINAL": r"\p{Sentence_Terminal}"}
HEAD = '''"""Properties of characters that Python does not know. Made by tools/unicode_properties.py; do not edit.

Each is a list of ranges in hexadecimal: the first character, and how many follow it.
"""
'''


def ranges(pattern: str) -> str:
    """The characters that match, as ranges."""
    characters = "".join(chr(i) if not 0xD800 <= i < 0xE000 else "\0" for i in range(0x110000))
    found = [match.start() for match in regex.finditer(pattern, characters)]
    runs = [[point for _, point in run] for _, run in groupby(enumerate(found), lambda pair: pair[1] - pair[0])]
    return " ".join(f"{run[0]:x}+{len(run) - 1:x}" for run in runs)


def main() -> None:
    """Write the module."""
    parts = [HEAD]
    for name, pattern in PROPERTIES.items():
        lines = textwrap.wrap(ranges(pattern), 116)
        parts.append(f'{name} = """\n' + "\n".join(lines) + '\n"""\n')
    TARGET.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
