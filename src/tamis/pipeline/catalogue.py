"""Finds stages, and the objects they are given (filters, modifiers, ...), by name.

Recipes and ``tamis stages`` look names up here. Nothing registers itself: the table below names the modules, and what
is in a module's ``__all__`` is what it offers. A class of anybody else is named ``package.module:ClassName``.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from tamis.errors import RecipeError, did_you_mean
from tamis.stages.base import CompositeStage, ProcessingStage, SourceStage

__all__ = ["REQUIRED", "Entry", "Parameter", "catalogue", "find", "full_name", "listed", "parameters_of", "summary_of"]

_AREAS: Final = (
    ("Reading and writing", ("tamis.stages.io", "tamis.stages.text.io.writer.megatron_tokenizer")),
    ("Branches", ("tamis.stages.flow",)),
    ("Sampling, blending, shuffling", ("tamis.stages.mixing",)),
    ("Text: filters", ("tamis.stages.text.filters",)),
    ("Text: filters for code", ("tamis.stages.text.filters.code",)),
    ("Text: published sets", ("tamis.stages.text.sets",)),
    ("Text: modifiers", ("tamis.stages.text.modifiers",)),
    (
        "Text: other",
        (
            "tamis.stages.text.columns",
            "tamis.stages.text.segments",
            "tamis.stages.text.decontamination",
            "tamis.stages.text.tokenization",
            "tamis.stages.text.sequence_packing",
            "tamis.stages.text.language",
            "tamis.stages.text.statistics.stage",
            "tamis.stages.text.classifiers",
            "tamis.stages.text.embedders",
            "tamis.stages.text.download",
        ),
    ),
    (
        "Deduplication",
        (
            "tamis.stages.deduplication.exact",
            "tamis.stages.deduplication.fuzzy",
            "tamis.stages.deduplication.semantic",
        ),
    ),
    ("Images", ("tamis.stages.image",)),
    ("Audio", ("tamis.stages.audio",)),
    ("Video", ("tamis.stages.video",)),
    ("Synthetic data", ("tamis.stages.synthetic",)),
    ("Settings", ("tamis.stages.resources",)),
)

_SKELETONS: Final = (ProcessingStage, SourceStage, CompositeStage)
_PARTS: Final = re.compile(r"\w*ReaderStage|WriterStage|MergeShards")
_FOREIGN_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Required:
    """Stands for the default of a parameter that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of a parameter that must be given."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a stage, filter or modifier.

    Args:
        name: Its name.
        type: Its type as a Python type; ``Any`` where it is not said or cannot be found.
        written_type: Its type as the source code has it.
        default: The value when it is not given; :data:`REQUIRED` when it must be.
        help: What it means: its entry under ``Args:`` in the docstring.
    """

    name: str
    type: Any
    written_type: str
    default: Any
    help: str = ""


@dataclass(frozen=True)
class Entry:
    """A name that recipes may use.

    Args:
        name: The name.
        area: What it is about.
        cls: The class behind it.
    """

    name: str
    area: str
    cls: type

    @property
    def kind(self) -> str:
        """``"stage"``, or, for what stages are given, the end of a base class's name: ``"filter"``, ``"modifier"``."""
        if issubclass(self.cls, ProcessingStage):
            return "stage"
        for base in self.cls.__mro__:
            for kind in ("filter", "modifier"):
                if base.__name__ == f"Document{kind.capitalize()}":
                    return kind
        return "object"


def catalogue() -> dict[str, Entry]:
    """Every name that tamis itself offers to recipes, in the order of the areas.

    >>> catalogue()["Route"].area
    'Branches'
    """
    found: dict[str, Entry] = {}
    for area, modules in _AREAS:
        for module in modules:
            for name, cls in _classes(module).items():
                found.setdefault(name, Entry(name, area, cls))
    return found


def listed() -> list[Entry]:
    """The names to show to people: not those that other stages stand for. Recipes may use these as well.

    >>> "JsonlReader" in (names := [entry.name for entry in listed()]), "JsonlReaderStage" in names
    (True, False)
    """
    return [entry for entry in catalogue().values() if not _PARTS.fullmatch(entry.name)]


def find(name: str) -> Any:
    """The class of that name, or the object that ``package.module:name`` stands for.

    >>> find("Tee").__name__, find("tamis.stages.flow:Tee") is find("Tee")
    ('Tee', True)
    >>> find("Rout")
    Traceback (most recent call last):
    tamis.errors.RecipeError: unknown stage 'Rout'. Did you mean 'Route'?
      'tamis stages' lists the known ones; a class of your own is written package.module:Class
    """
    if ":" in name:
        return _find_foreign(name)
    cls = _find_own(name)
    if cls is None:
        raise RecipeError(
            f"unknown stage {name!r}.{did_you_mean(name, catalogue())}\n"
            "  'tamis stages' lists the known ones; a class of your own is written package.module:Class"
        )
    return cls


def is_known(name: object) -> bool:
    """Whether a text is a name of ours or has the form of a foreign one.

    >>> is_known("Route"), is_known("mine.stages:Clean"), is_known("en")
    (True, True, False)
    """
    return isinstance(name, str) and (_FOREIGN_NAME.fullmatch(name) is not None or _find_own(name) is not None)


def full_name(thing: Any) -> str:
    """The name under which :func:`find` finds a class or function again.

    >>> from tamis.stages.flow import Route
    >>> full_name(Route), full_name(len)
    ('Route', 'builtins:len')
    """
    short = getattr(thing, "__name__", "")
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if inspect.isclass(thing) and str(module).startswith("tamis.") and _find_own(short) is thing:
        return short
    if not module or not path:
        raise RecipeError(f"{thing!r} has no name that a recipe could hold")
    if short == "<lambda>":
        raise RecipeError(
            f"a lambda ({path}) cannot be written into a recipe: it has no name to be found by. "
            "Make it a function of a module that can be imported"
        )
    if "<locals>" in path:
        raise RecipeError(
            f"{path} is defined inside a function, so a recipe cannot name it. Move it to the top of its module"
        )
    if module == "__main__":
        raise RecipeError(
            f"{path} is defined in __main__ (a script or a notebook), which a recipe cannot import. "
            "Move it into a module"
        )
    name = f"{module}:{path}"
    found = find(name)
    if found is not thing and getattr(found, "function", None) is not thing:
        raise RecipeError(f"{name} is another object than the one in the pipeline, so a recipe cannot name it")
    return name


def parameters_of(cls: type) -> list[Parameter]:
    """The parameters a class is made with, from its dataclass fields or its ``__init__``.

    >>> [(p.name, p.written_type, p.default) for p in parameters_of(find("Tee"))]
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

    >>> summary_of(find("Tee"))
    'Send a copy of every task to a side branch, which must end in a writer; the main way goes on unchanged.'
    """
    paragraph = (_docstring(thing)).partition("\n\n")[0]
    return " ".join(paragraph.split())


def _docstring(thing: Any) -> str:
    """A docstring of its own; the one that ``@dataclass`` writes, and an inherited one, say nothing about a class."""
    text = inspect.cleandoc(thing.__dict__.get("__doc__") or "") if inspect.isclass(thing) else inspect.getdoc(thing)
    if not text or (inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")):
        return ""
    return text


@functools.cache
def _import_if_there(name: str) -> Any:
    """The module; ``None`` if it does not exist. A module that exists and fails to import is an error."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is not None and (name == e.name or name.startswith(f"{e.name}.")):
            return None
        raise


@functools.cache
def _classes(module_name: str) -> dict[str, type]:
    """What a module of ours offers, by name."""
    module = _import_if_there(module_name)
    offered = ((name, getattr(module, name)) for name in _offered(module))
    return {name: thing for name, thing in offered if _is_offer(thing)}


def _find_own(name: str) -> type | None:
    """The class of that name of ours. Modules are imported one by one until one has it."""
    for _, modules in _AREAS:
        for module_name in modules:
            module = _import_if_there(module_name)
            if name in _offered(module):
                thing = getattr(module, name)  # of the others of the module nothing is loaded
                if _is_offer(thing):
                    return cast(type, thing)
    return None


def _offered(module: Any) -> Iterator[str]:
    if module is None:
        return
    if hasattr(module, "__all__"):
        yield from module.__all__
    else:
        yield from (n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__)


def _is_offer(thing: Any) -> bool:
    return inspect.isclass(thing) and _can_be_made(thing)


def _can_be_made(cls: type) -> bool:
    """Whether the class does something by itself: a base class for others is not offered."""
    if issubclass(cls, ProcessingStage):
        return any(
            name in base.__dict__
            for base in cls.__mro__
            if base not in _SKELETONS
            for name in ("process", "process_batch", "splits", "decompose")
        )
    return not inspect.isabstract(cls) and not cls.__name__.startswith("Document")


def _find_foreign(name: str) -> Any:
    module_name, _, path = name.partition(":")
    if not _FOREIGN_NAME.fullmatch(name):
        raise RecipeError(f"{name!r} is no name of the form package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name is not None and (module_name == e.name or module_name.startswith(f"{e.name}.")):
            raise RecipeError(
                f"{name}: there is no module {e.name!r}. It must be installed, or lie in the current directory"
            ) from e
        raise
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            known = [n for n in vars(found) if not n.startswith("_")]
            raise RecipeError(f"{name}: {module_name} has no {part!r}.{did_you_mean(part, known)}")
        found = getattr(found, part)
    return found


def _type_of(cls: type, parameter: inspect.Parameter) -> Any:
    """The type behind an annotation. Names that only the type checker imports are not there: then ``Any``."""
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
    """One annotation at a time, so that a name that cannot be found does not spoil the others."""

    def carrier() -> None:
        """Has the annotation."""

    carrier.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(carrier, vars(importlib.import_module(module_name)))["it"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any


def _explained(cls: type) -> dict[str, str]:
    """What the ``Args:`` sections of a class, its bases and its ``__init__`` say of each parameter."""
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
