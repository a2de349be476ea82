"""Refuse wrong arguments when a stage is made, and suggest what was probably meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tamis.errors import PlanError, did_you_mean
from tamis.stages.io.paths import path_text

__all__ = ["check_arguments", "check_choice", "check_names", "parse_types", "path_list"]

_ALIASES = {"string": "large_string", "str": "large_string", "int": "int64", "float": "float64"}


def path_list(owner: str, parameter: str, given: Any) -> str | list[str]:
    """One path, or several, as text.

    >>> from pathlib import Path
    >>> path_list("JsonlReader", "file_paths", [Path("a.jsonl"), "b.jsonl"])
    ['a.jsonl', 'b.jsonl']
    """
    try:
        if isinstance(given, str | os.PathLike):
            return path_text(given)
        if isinstance(given, Iterable) and not isinstance(given, bytes):
            return [path_text(path) for path in given]
    except PlanError as e:
        raise PlanError(f"{owner}({parameter}=...): {e}") from e
    raise PlanError(f"{owner}({parameter}={given!r}): give a path, or a list of paths")


def check_choice(owner: str, parameter: str, value: object, choices: Sequence[object]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        known = ", ".join(repr(c) for c in choices)
        near = did_you_mean(str(value), [str(c) for c in choices])
        raise PlanError(f"{owner}({parameter}={value!r}): must be one of {known}.{near}")


def check_names(owner: str, parameter: str, names: object) -> None:
    """Refuse anything but a list of column names."""
    if names is None:
        return
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) for n in names):
        raise PlanError(f'{owner}({parameter}={names!r}): give a list of column names, such as ["text"], or None')
    twice = sorted({n for n in names if list(names).count(n) > 1})
    if twice:
        raise PlanError(f"{owner}({parameter}=...): {', '.join(map(repr, twice))} is named twice")


def check_arguments(owner: str, parameter: str, given: dict[str, Any] | None, known: Sequence[str]) -> None:
    """Refuse names of further arguments that are not known."""
    for name in given or {}:
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise PlanError(f"{owner}({parameter}={{{name!r}: ...}}): {takes}.{did_you_mean(name, known)}")


def parse_types(owner: str, types: dict[str, str] | None) -> dict[str, pa.DataType]:
    """Arrow types from their names: ``{"score": "float64"}``."""
    parsed = {}
    for column, name in (types or {}).items():
        try:
            parsed[column] = pa.type_for_alias(_ALIASES.get(name, name))
        except (ValueError, TypeError) as e:
            known = ["string", "bool", "int32", "int64", "float32", "float64", "date32", "timestamp[us]"]
            raise PlanError(
                f"{owner}(types={{{column!r}: {name!r}}}): no such type; "
                f"there are {', '.join(known)} and the other names Arrow has.{did_you_mean(str(name), known)}"
            ) from e
    return parsed
