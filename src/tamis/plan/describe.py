"""Descriptions of objects that are the same in every process, for the fingerprint of a plan."""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tamis.plan.code import PLAIN, code_digest
from tamis.stages.base import ProcessingStage
from tamis.tasks.base import digest

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PLAIN_REPR: Any = object.__repr__
_SHORTENED = ("numpy", "pandas", "pyarrow", "torch")
"""Packages whose objects show only a part of themselves in their ``repr``."""


def describe(thing: Any) -> str:
    """A description of a stage, parameter or function, which changes when its behaviour changes.

    >>> describe({"b": 1, "a": [True, None]}), describe(re.compile("x" * 300)) == describe(re.compile("x" * 301))
    ("{'a': [True, None], 'b': 1}", False)
    """
    return _describe(thing, frozenset())


def named_files(thing: Any) -> Iterator[tuple[str, int, int]]:
    """The local files that parameters name, such as models and word lists: path, size, and time of the last change."""
    if isinstance(thing, ProcessingStage):
        yield from named_files(thing.parameters())
    elif isinstance(thing, Mapping):
        yield from (found for key in sorted(thing, key=str) for found in named_files(thing[key]))
    elif isinstance(thing, list | tuple):
        yield from (found for item in thing for found in named_files(item))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from named_files({f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)})
    elif isinstance(thing, str | os.PathLike) and os.path.isfile(thing):
        status = os.stat(thing)
        yield str(thing), status.st_size, status.st_mtime_ns


def _describe(thing: Any, above: frozenset[int]) -> str:
    if isinstance(thing, PLAIN):
        return repr(thing)
    if id(thing) in above:
        return "..."  # it contains itself
    above |= {id(thing)}
    inner = functools.partial(_describe, above=above)
    if isinstance(thing, ProcessingStage):
        code = code_digest(type(thing))
        # A stage of the user's may keep what it was given under other names than those of its parameters.
        values = {**vars(thing), **thing.parameters()} if code else thing.parameters()
        return f"{_name(type(thing))}#{code}({inner(values)})"
    if isinstance(thing, Mapping):
        return "{" + ", ".join(f"{k!r}: {inner(thing[k])}" for k in sorted(thing, key=str)) + "}"
    if isinstance(thing, list | tuple):
        return "[" + ", ".join(map(inner, thing)) + "]"
    if isinstance(thing, set | frozenset):
        return "{" + ", ".join(sorted(map(inner, thing))) + "}"
    if isinstance(thing, re.Pattern):
        return f"re.compile({thing.pattern!r}, {thing.flags})"
    if isinstance(thing, functools.partial):
        return f"partial({inner([thing.func, thing.args, thing.keywords])})"
    if isinstance(thing, type) or hasattr(thing, "__code__"):
        return f"{_name(thing)}#{code_digest(thing)}"
    kind = type(thing)
    if kind.__module__.partition(".")[0] in _SHORTENED:
        return f"{_name(kind)}#{digest(pickle.dumps(thing).hex())}"
    if dataclasses.is_dataclass(thing):
        values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.compare}
        return f"{_name(kind)}#{code_digest(kind)}({inner(values)})"
    if getattr(kind, "__repr__", None) is _PLAIN_REPR and hasattr(thing, "__dict__"):
        return f"{_name(kind)}#{code_digest(kind)}({inner(vars(thing))})"
    return _ADDRESS.sub("", repr(thing))


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
