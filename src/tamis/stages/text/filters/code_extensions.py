"""Which files of which languages to take, and within what limits: the rules of ``PerExtensionFilter``.

The limits are those the BigCode project chose for StarCoder's data, ending by ending, by samples of each
(Li et al., 2023, https://arxiv.org/abs/2305.06161, section 3); NeMo Curator uses the same ones.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tamis.errors import DataError, did_you_mean

__all__ = ["DEFAULT_FILE", "Rule", "rules_for"]

DEFAULT_FILE: Final = "code_meta.csv"

_COLUMNS: Final = ("language", "extension", "Include", "Long_line_threshold", "Alphanum_threshold", "Alpha filter")


@dataclass(frozen=True)
class Rule:
    """What files of one language with one ending must be like. ``None`` means no limit.

    Args:
        include: Whether to take such files at all.
        max_line_chars: The longest line, in characters; where it is limited, the mean is as well.
        min_alphanumeric: The lowest share of ASCII letters and digits, newlines and ``? ! , .``, 0 to 1.
        min_alphabetic: The lowest share of letters, 0 to 1.
        max_mean_line_chars: The highest mean length of the lines, in characters.
    """

    include: bool = True
    max_line_chars: int | None = 1000
    min_alphanumeric: float | None = 0.25
    min_alphabetic: float | None = None
    max_mean_line_chars: int = 100


def rules_for(lang: str, file: str = DEFAULT_FILE) -> dict[str, Rule]:
    """The rules for a language, by file name ending.

    Args:
        lang: The language, as people write it or as the table has it.
        file: A CSV file; the one that comes with tamis if there is none of the default's name.

    >>> rules_for("Standard ML")["sig"].include, rules_for("R")["rd"].max_line_chars
    (False, 1000)
    """
    is_own = file == DEFAULT_FILE and not os.path.exists(file)
    rules = _read(str(Path(__file__).with_name(DEFAULT_FILE)) if is_own else file)
    language = _in_table(lang)
    if language not in rules:
        raise ValueError(
            f"PerExtensionFilter(lang={lang!r}): there are no rules for it.{did_you_mean(language, rules)}"
        )
    return rules[language]


def _in_table(lang: str) -> str:
    special = {"C#": "c-sharp", "F#": "f-sharp"}
    return special.get(lang, lang.lower().replace(" ", "-"))


def _read(path: str) -> dict[str, dict[str, Rule]]:
    """The rules of a CSV file. What is not a number, such as an empty field or a word, means no limit."""
    rules: dict[str, dict[str, Rule]] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            for missing in [c for c in _COLUMNS if c not in (rows.fieldnames or ())]:
                raise DataError(f"there is no column {missing!r}; the rules need {', '.join(_COLUMNS)}", path=path)
            for row in rows:
                line = _number(row["Long_line_threshold"])
                rules.setdefault(row["language"], {})[row["extension"]] = Rule(
                    include=row["Include"] == "1",
                    max_line_chars=None if line is None else int(line),
                    min_alphanumeric=_number(row["Alphanum_threshold"]),
                    min_alphabetic=_number(row["Alpha filter"]),
                )
    except FileNotFoundError as e:
        raise FileNotFoundError(f"PerExtensionFilter(metadata_file={path!r}): there is no such file") from e
    return rules


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
