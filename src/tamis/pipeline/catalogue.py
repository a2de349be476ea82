"""Finds stages, filters, modifiers and other objects by name.

Recipes and ``tamis stages`` look names up here. The table below lists the modules of tamis; the classes in a module's
``__all__`` can be named. A class or function of the user's is named by its import path, ``package.module:Name``.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tamis.errors import RecipeError, did_you_mean
from tamis.stages.base import CompositeStage, ProcessingStage, SourceStage
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.modifiers.base import DocumentModifier

__all__ = ["Entry", "catalogue", "find", "full_name", "is_builtin", "is_name", "listed"]

_AREAS: Final = (
    ("Reading and writing", ("tamis.stages.io", "tamis.stages.text.io.writer.megatron_tokenizer")),
    ("Images: reading and writing", ("tamis.stages.image.io",)),
    ("Branches", ("tamis.stages.flow",)),
    ("Sampling, blending, shuffling", ("tamis.stages.mixing",)),
    ("Text: filters", ("tamis.stages.text.filters",)),
    ("Text: filters for code", ("tamis.stages.text.filters.code",)),
    ("Text: published sets", ("tamis.stages.text.sets",)),
    ("Text: modifiers", ("tamis.stages.text.modifiers",)),
    ("Text: embeddings", ("tamis.stages.text.embedders",)),
    ("Text: classifiers", ("tamis.stages.text.classifiers", "tamis.stages.math.classifiers")),
    (
        "Text: other",
        (
            "tamis.stages.text.columns",
            "tamis.stages.text.segments",
            "tamis.stages.text.decontamination",
            "tamis.stages.text.tokenization",
            "tamis.stages.text.models.tokenizer",
            "tamis.stages.text.sequence_packing",
            "tamis.stages.text.language",
            "tamis.stages.text.trained_classifier",
            "tamis.stages.text.causal_perplexity",
            "tamis.stages.text.statistics.stage",
            "tamis.stages.text.download",
        ),
    ),
    ("Images: embeddings", ("tamis.stages.image.embedders",)),
    ("Images: filters", ("tamis.stages.image.filters",)),
    (
        "Deduplication",
        (
            "tamis.stages.deduplication.exact",
            "tamis.stages.deduplication.fuzzy",
            "tamis.stages.deduplication.semantic",
            "tamis.stages.deduplication.lines",
            "tamis.stages.deduplication.substrings",
            "tamis.stages.deduplication.bloom",
            "tamis.stages.deduplication.removal",
            "tamis.stages.image.deduplication",
        ),
    ),
    ("Settings", ("tamis.stages.resources",)),
)

_BASES: Final = (ProcessingStage, SourceStage, CompositeStage)
_BASE_CLASSES: Final = re.compile(
    r"Document(Filter|Modifier|Downloader|Iterator|Extractor)|ImageFilter|BaseFilterStage"
)
_INNER_STAGES: Final = re.compile(r"\w*ReaderStage|WriterStage|MergeShards")
_IMPORT_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_HARMLESS_BUILTINS: Final = re.compile(r"builtins:(str|bytes|int|float|bool|len)(\.[^\W\d]\w*)?")


@dataclass(frozen=True)
class Entry:
    """A class that recipes may name, and the heading it is listed under."""

    name: str
    area: str
    cls: type

    @property
    def kind(self) -> str:
        """``"stage"``, ``"filter"``, ``"modifier"``, or ``"object"`` for any other parameter of a stage."""
        kinds = {ProcessingStage: "stage", DocumentFilter: "filter", DocumentModifier: "modifier"}
        return next((kind for base, kind in kinds.items() if issubclass(self.cls, base)), "object")


def catalogue() -> dict[str, Entry]:
    """Every class of tamis that recipes may name, in the order of the areas.

    >>> catalogue()["Route"].area
    'Branches'
    """
    found: dict[str, Entry] = {}
    for area, modules in _AREAS:
        for module_name in modules:
            module = importlib.import_module(module_name)
            for name in _offered_names(module):
                cls = getattr(module, name)
                if _is_offered(cls):
                    found.setdefault(name, Entry(name, area, cls))
    return found


def listed() -> list[Entry]:
    """The catalogue without the stages that others unfold into. Recipes may name those as well.

    >>> "JsonlReader" in (names := [entry.name for entry in listed()]), "JsonlReaderStage" in names
    (True, False)
    """
    return [entry for entry in catalogue().values() if not _INNER_STAGES.fullmatch(entry.name)]


def find(name: str) -> Any:
    """The class of tamis with that name, or the object that an import path leads to. Nothing is called.

    Importing a user's module runs the code in it. The standard library is not imported: a recipe has no use for it.

    >>> find("Tee").__name__, find("tamis.stages.flow:Tee") is find("Tee")
    ('Tee', True)
    >>> find("Rout")
    Traceback (most recent call last):
    tamis.errors.RecipeError: unknown stage 'Rout'. Did you mean 'Route'?
      'tamis stages' lists the known ones; a class of your own is written package.module:Class
    """
    if ":" in name:
        return _imported(name)
    cls = _find_builtin(name)
    if cls is None:
        raise RecipeError(
            f"unknown stage {name!r}.{did_you_mean(name, catalogue())}\n"
            "  'tamis stages' lists the known ones; a class of your own is written package.module:Class"
        )
    return cls


def is_name(value: object) -> bool:
    """Whether a value is the name of a class of tamis, or has the form of an import path.

    >>> is_name("Route"), is_name("mine.stages:Clean"), is_name("en")
    (True, True, False)
    """
    return isinstance(value, str) and (_IMPORT_PATH.fullmatch(value) is not None or _find_builtin(value) is not None)


def is_builtin(cls: type) -> bool:
    """Whether a class is one of the catalogue.

    >>> is_builtin(find("Resources")), is_builtin(str)
    (True, False)
    """
    return cls.__module__.startswith("tamis.") and _find_builtin(cls.__name__) is cls


def full_name(thing: Any) -> str:
    """The name under which :func:`find` finds a class or function.

    >>> from tamis.stages.flow import Route
    >>> full_name(Route), full_name(len)
    ('Route', 'builtins:len')
    """
    if inspect.isclass(thing) and is_builtin(thing):
        return thing.__name__
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if inspect.ismethoddescriptor(thing):
        module = thing.__objclass__.__module__
    if not module or not path:
        raise RecipeError(f"{thing!r} has no name that a recipe could hold")
    if thing.__name__ == "<lambda>":
        raise RecipeError(
            f"a lambda ({path}) cannot be written into a recipe, because it has no name. "
            "Make it a function of a module that can be imported"
        )
    if "<locals>" in path:
        raise RecipeError(
            f"{path} is defined inside a function, so a recipe cannot name it. Move it to the top level of its module"
        )
    if module == "__main__":
        raise RecipeError(
            f"{path} is defined in __main__ (a script or a notebook), which a recipe cannot import. "
            "Move it into a module"
        )
    name = f"{module}:{path}"
    found = find(name)
    if found is not thing and getattr(found, "function", None) is not thing:
        raise RecipeError(f"{name} is not the object that the pipeline has, so a recipe cannot name it")
    return name


def _find_builtin(name: str) -> type | None:
    """The class of tamis with that name. Modules are imported one by one until one has it."""
    for _, modules in _AREAS:
        for module_name in modules:
            module = importlib.import_module(module_name)
            if name in _offered_names(module):
                cls: type = getattr(module, name)  # a lazy module loads nothing but this
                if _is_offered(cls):
                    return cls
    return None


def _offered_names(module: Any) -> Iterator[str]:
    if hasattr(module, "__all__"):
        yield from module.__all__
    else:
        yield from (n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__)


def _is_offered(thing: Any) -> bool:
    """Whether it is a class that can be used as it is, not a base class."""
    if not inspect.isclass(thing) or inspect.isabstract(thing) or _BASE_CLASSES.fullmatch(thing.__name__):
        return False
    if issubclass(thing, ProcessingStage):
        work = ("process", "process_batch", "splits", "decompose")
        return any(name in base.__dict__ for base in thing.__mro__ if base not in _BASES for name in work)
    return True


def _imported(name: str) -> Any:
    """The object that an import path leads to."""
    module_name, _, path = name.partition(":")
    if not _IMPORT_PATH.fullmatch(name):
        raise RecipeError(f"{name!r} does not have the form package.module:Class")
    is_harmless = _HARMLESS_BUILTINS.fullmatch(name) is not None
    if _is_standard(module_name) and not is_harmless:
        raise _refusal(name)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name is not None and (module_name == e.name or module_name.startswith(f"{e.name}.")):
            raise RecipeError(
                f"{name}: there is no module {e.name!r}. It must be installed, or be in the current directory"
            ) from e
        raise
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            known = [n for n in vars(found) if not n.startswith("_")]
            raise RecipeError(f"{name}: {module_name} has no {part!r}.{did_you_mean(part, known)}")
        found = getattr(found, part)
    if inspect.ismodule(found) or (_is_standard(str(getattr(found, "__module__", ""))) and not is_harmless):
        raise _refusal(name)  # such as mystages:os.system, by way of an import there
    return found


def _is_standard(module_name: str) -> bool:
    return module_name.partition(".")[0] in sys.stdlib_module_names


def _refusal(name: str) -> RecipeError:
    return RecipeError(
        f"{name}: a recipe cannot use modules of Python's standard library. "
        "Write a class or function in a module of your own that does what you need"
    )
