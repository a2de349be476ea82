"""The parameters of classes that recipes may name: read from signatures, annotations and docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import typing
from dataclasses import dataclass
from typing import Any, Final


class _Required:
    """The type of :data:`REQUIRED`."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of a parameter that must be given."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a stage, filter or modifier.

    Args:
        name: Its name.
        type: Its type as a Python type; ``Any`` where there is no annotation or it cannot be evaluated.
        written_type: Its type as written in the source code.
        default: The value when it is not given; :data:`REQUIRED` when it must be.
        help: Its entry under ``Args:`` in the docstring.
    """

    name: str
    type: Any
    written_type: str
    default: Any
    help: str = ""


def parameters_of(cls: type) -> list[Parameter]:
    """The parameters of a class, from its dataclass fields or its ``__init__``.

    >>> from tamis.stages.flow import Tee
    >>> [(p.name, p.written_type, p.default) for p in parameters_of(Tee)]
    [('stages', 'Stages', required), ('name', 'str', 'Tee')]
    """
    explained = _explained(cls)
    factories = {}
    if dataclasses.is_dataclass(cls):
        factories = {
            f.name: f.default_factory for f in dataclasses.fields(cls) if f.default_factory is not dataclasses.MISSING
        }
    found = []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if parameter.name in factories:
            default = factories[parameter.name]()
        written = "" if parameter.annotation is parameter.empty else parameter.annotation
        if not isinstance(written, str):
            written = inspect.formatannotation(written)
        found.append(
            Parameter(parameter.name, _type_of(cls, parameter), written, default, explained.get(parameter.name, ""))
        )
    return found


def takes_any_parameter(cls: type) -> bool:
    """Whether the class takes keywords that its signature does not name (``**kwargs``)."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())


def summary_of(thing: Any) -> str:
    """The first sentence of a docstring, on one line.

    >>> from tamis.stages.flow import Tee
    >>> summary_of(Tee)
    'Send a copy of every task to a side branch, which must end in a writer; the main way goes on unchanged.'
    """
    paragraph = (_docstring(thing)).partition("\n\n")[0]
    return " ".join(paragraph.split())


def _docstring(thing: Any) -> str:
    """The docstring that was written for it: not an inherited one, nor the one that ``@dataclass`` generates."""
    text = inspect.cleandoc(thing.__dict__.get("__doc__") or "") if inspect.isclass(thing) else inspect.getdoc(thing)
    if not text or (inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")):
        return ""
    return text


def _type_of(cls: type, parameter: inspect.Parameter) -> Any:
    """The type that an annotation stands for; ``Any`` if it uses names that only the type checker imports."""
    if parameter.annotation is parameter.empty:
        return Any
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    for base in cls.__mro__:
        of_field = dataclasses.is_dataclass(cls) and parameter.name in inspect.get_annotations(base)
        of_init = not dataclasses.is_dataclass(cls) and "__init__" in base.__dict__
        if of_field or of_init:
            return _evaluated(parameter.annotation, base.__module__)
    return Any


def _evaluated(annotation: str, module_name: str) -> Any:
    """Evaluate one annotation at a time, so that one that fails does not affect the others."""

    def annotated() -> None:
        """Holds the annotation."""

    annotated.__annotations__ = {"value": annotation}
    try:
        return typing.get_type_hints(annotated, vars(importlib.import_module(module_name)))["value"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any


def _explained(cls: type) -> dict[str, str]:
    """The entries for each parameter in the ``Args:`` sections of a class, its bases and its ``__init__``."""
    explained: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        init = base.__dict__.get("__init__")
        explained.update(_arguments(_docstring(base)))
        explained.update(_arguments(inspect.cleandoc(getattr(init, "__doc__", None) or "")))
    return explained


def _arguments(docstring: str) -> dict[str, str]:
    """The entries of the ``Args:`` section: ``name: text``, or ``name, name: text``.

    >>> _arguments('''Keep.
    ...
    ... Args:
    ...     low, high: Limits,
    ...         both included.
    ...     by: A column.
    ... ''')
    {'low': 'Limits, both included.', 'high': 'Limits, both included.', 'by': 'A column.'}
    """
    entries: dict[str, list[str]] = {}
    current: list[str] = []
    inside, indent = False, 0
    for line in docstring.splitlines():
        if line.strip() in ("Args:", "Arguments:", "Attributes:"):
            inside, indent = True, 0
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            inside = False
            continue
        indent = indent or depth
        match = re.match(r"([\w, ]+?)(?: ?\([^)]*\))?:\s*(.*)", line.strip()) if depth == indent else None
        if match:
            current = [match[2]]
            entries.update((name.strip(), current) for name in match[1].split(","))
        else:
            current.append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in entries.items()}
