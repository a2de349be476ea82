"""Descriptions of objects that are the same in every process, for the fingerprint of a plan."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.tasks.base import digest

_PLAIN = (bool, int, float, str, bytes, type(None))
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def describe(thing: Any) -> str:
    """A description of a stage, parameter or function, which changes when its behaviour changes.

    >>> describe({"b": 1, "a": [True, None]})
    "{'a': [True, None], 'b': 1}"
    >>> describe(lambda x: x + 1) == describe(lambda x: x + 1), describe(lambda x: x + 1) == describe(lambda x: x + 2)
    (True, False)
    """
    if isinstance(thing, ProcessingStage):
        return f"{_name(type(thing))}({describe(thing.parameters())})"
    if isinstance(thing, Mapping):
        return "{" + ", ".join(f"{k!r}: {describe(thing[k])}" for k in sorted(thing, key=str)) + "}"
    if isinstance(thing, list | tuple):
        return "[" + ", ".join(map(describe, thing)) + "]"
    if isinstance(thing, set | frozenset):
        return "{" + ", ".join(sorted(map(describe, thing))) + "}"
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        counting = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.compare}
        return f"{_name(type(thing))}({describe(counting)})"
    code = getattr(thing, "__code__", None)
    if code is not None:
        caught = [c.cell_contents for c in thing.__closure__ or ()]
        values = [v for v in (*caught, *(thing.__defaults__ or ())) if isinstance(v, _PLAIN)]
        return f"{_name(thing)}#{digest(code.co_code.hex(), *map(describe, code.co_consts), code.co_names, values)}"
    return _ADDRESS.sub("", repr(thing))


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
