"""A digest of the code of a function or class, so that a run notices when the user has changed a stage.

It covers what the code uses: functions, classes and plain values of the user's own modules, wherever they are. Code of
Python and of installed packages counts by its name.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tamis.tasks.base import digest

__all__ = ["code_digest"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))

_HOMES = ("site-packages", "dist-packages")


def code_digest(thing: Any) -> str:
    """The digest of a function, method or class; empty if it belongs to Python or to an installed package.

    >>> code_digest(len), code_digest(dict)
    ('', '')
    """
    parts = list(_parts(thing, set()))
    return digest(*parts) if parts else ""


def _parts(thing: Any, seen: set[int]) -> Iterator[str]:
    """What a digest is made of: the code itself, then what it uses."""
    thing = _unwrapped(thing)
    if id(thing) in seen or not _is_users(thing):
        return
    seen.add(id(thing))
    if isinstance(thing, type):
        yield f"class {thing.__qualname__}"
        for base in thing.__bases__:
            yield from _value(base, seen)
        for name, value in sorted(vars(thing).items()):
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__annotations__"):
                yield name
                yield from _value(value, seen)
    elif isinstance(thing, types.FunctionType):
        yield f"def {thing.__qualname__}"
        used: set[str] = set()
        for code in _nested(thing.__code__):
            yield code.co_code.hex()
            yield repr([c for c in code.co_consts if not isinstance(c, types.CodeType)])
            used.update(code.co_names)
            yield repr((code.co_names, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]))
        for value in (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()):
            yield from _value(value, seen)
        for cell in thing.__closure__ or ():
            try:
                yield from _value(cell.cell_contents, seen)
            except ValueError:  # it is not filled yet
                continue
        for name in sorted(used & thing.__globals__.keys()):
            value = thing.__globals__[name]
            if isinstance(value, types.ModuleType):
                for inner in sorted(used & vars(value).keys()) if _is_users(value) else ():
                    yield from _value(vars(value)[inner], seen)
            else:
                yield from _value(value, seen)


def _value(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield repr(value)
    elif isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        for item in items:
            yield from _value(item, seen)
    elif isinstance(value, dict):
        for key, item in sorted(value.items(), key=lambda pair: repr(pair[0])):
            yield repr(key)
            yield from _value(item, seen)
    else:
        yield getattr(_unwrapped(value), "__qualname__", type(value).__qualname__)
        yield from _parts(value, seen)


def _unwrapped(thing: Any) -> Any:
    """The function behind methods, properties, partial calls and decorators."""
    while True:
        if isinstance(thing, staticmethod | classmethod | types.MethodType):
            thing = thing.__func__
        elif isinstance(thing, property):
            thing = thing.fget
        elif isinstance(thing, functools.cached_property | functools.partial):
            thing = thing.func
        elif inspect.isfunction(thing) and hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__
        else:
            return thing


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _is_users(thing: Any) -> bool:
    """Whether something belongs to neither Python, nor tamis, nor an installed package."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
    if not isinstance(name, str):
        return False
    if name == "__main__":
        return True
    if name.partition(".")[0] in {"tamis", "builtins", *sys.stdlib_module_names}:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or not any(home in Path(file).parts for home in _HOMES)
