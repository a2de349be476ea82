"""Writes a pipeline as a recipe: the reverse of :mod:`tamis.pipeline.recipe_build`."""

from __future__ import annotations

import enum
import inspect
import os
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tamis.errors import RecipeError
from tamis.pipeline.catalogue import find, full_name
from tamis.pipeline.parameters import REQUIRED, parameters_of
from tamis.pipeline.recipe_build import FUNCTION, LISTS, MAPPINGS, SETTINGS, WITH, options_of
from tamis.pipeline.recipe_nodes import to_yaml
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.function_decorators import FunctionStage

if TYPE_CHECKING:
    from tamis.pipeline import Pipeline


def dump_recipe(pipeline: Pipeline) -> str:
    """Write a pipeline as a recipe. Only parameters that differ from their defaults are written.

    Raises:
        RecipeError: A stage or a value cannot be named: a lambda, a class of a script, an open file.

    >>> from tamis.pipeline import Pipeline
    >>> from tamis.stages.flow import Route
    >>> print(dump_recipe(Pipeline("p", stages=[Route("lang", {"en": []})])), end="")
    name: p
    stages:
      - Route:
          by: lang
          branches:
            en: []
    """
    document: dict[str, Any] = {"name": pipeline.name}
    if pipeline.description:
        document["description"] = pipeline.description
    document["stages"] = [_dump_stage(stage, f"stage {i}") for i, stage in enumerate(pipeline.stages, 1)]
    return to_yaml(document)


def _dump_stage(stage: ProcessingStage[Any, Any], what: str) -> Any:
    """A stage of the list: its name alone if it has no parameters."""
    dumped = _dump_object(stage, what)
    ((name, parameters),) = dumped.items()
    return dumped if parameters else name


def _dump_object(thing: Any, what: str) -> dict[str, Any]:
    """``{ClassName: {parameters}}``."""
    try:
        if isinstance(thing, FunctionStage):
            name = full_name(thing.function)
            return {name: _dump_settings(thing, lambda: find(name), what)}
        name = full_name(type(thing))
    except RecipeError as e:
        raise RecipeError(f"{what}: {e}") from e
    given = _parameters(thing, f"{what} ({type(thing).__name__})")
    dumped = {}
    for parameter in parameters_of(type(thing)):
        place = f"{what}: {type(thing).__name__}.{parameter.name}"
        value = _as_read(given[parameter.name], parameter.type)
        if not _is_default(value, _as_read(parameter.default, parameter.type)):
            dumped[parameter.name] = _dump_value(value, place)
    if isinstance(thing, ProcessingStage):
        dumped.update(_dump_settings(thing, lambda: type(thing)(**given), what))
    return {name: dumped}


def _parameters(thing: Any, what: str) -> dict[str, Any]:
    """The values an object was made with, from its attributes of the same names, or of the same names after a ``_``."""
    own = thing.parameters() if isinstance(thing, ProcessingStage) else {}
    values = {}
    for parameter in parameters_of(type(thing)):
        for source, key in ((own, parameter.name), (None, parameter.name), (None, f"_{parameter.name}")):
            if source is not None and key in source:
                values[parameter.name] = source[key]
                break
            if source is None and hasattr(thing, key):
                values[parameter.name] = getattr(thing, key)
                break
        else:
            raise RecipeError(
                f"{what}: it does not keep its parameter {parameter.name!r} as an attribute of that name, "
                "so a recipe cannot be written. A dataclass keeps its parameters"
            )
    return values


def _as_read(value: Any, hint: Any) -> Any:
    """A value as it will be when the recipe is read: a whole number for a ``float`` becomes a ``float``.

    >>> _as_read({"a": [1, 2]}, dict[str, list[float]] | None), _as_read(1, float | int)
    ({'a': [1.0, 2.0]}, 1)
    """
    options = options_of(hint)
    if type(value) is int and float in options and int not in options:
        return float(value)
    for option in options:
        origin, inner = typing.get_origin(option) or option, typing.get_args(option)
        if type(value) in (list, tuple) and origin in LISTS and inner:
            is_fixed = origin is tuple and inner[-1] is not Ellipsis and len(inner) == len(value)
            return [_as_read(item, inner[i if is_fixed else 0]) for i, item in enumerate(value)]
        if type(value) in (set, frozenset) and origin in LISTS and inner:
            return {_as_read(item, inner[0]) for item in value}
        if type(value) is dict and origin in MAPPINGS and len(inner) == 2:
            return {key: _as_read(item, inner[1]) for key, item in value.items()}
    return value


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is written the same as the default (so ``1`` differs from ``True`` and ``1.0``)."""
    if value is default or default is REQUIRED:
        return value is default
    try:
        return repr(_dump_value(value, "")) == repr(_dump_value(default, ""))
    except RecipeError:
        return False


def _dump_settings(
    stage: ProcessingStage[Any, Any], make_again: Callable[[], ProcessingStage[Any, Any]], what: str
) -> dict[str, Any]:
    """What :meth:`with_` changed: the differences from a new stage with the same parameters."""
    settings: dict[str, Any] = {}
    if isinstance(stage, CompositeStage):
        settings.update(getattr(stage, "_settings", {}))
        if "name" not in stage.parameters() and stage.name != make_again().name:
            settings["name"] = stage.name
        if getattr(stage, "_overrides", {}):
            settings["stages"] = getattr(stage, "_overrides", {})
    else:
        fresh, parameters = make_again(), {p.name for p in parameters_of(type(stage))}
        for key in SETTINGS:
            attribute = f"_{key}" if hasattr(ProcessingStage, f"_{key}") else key
            is_parameter = key in parameters and not isinstance(stage, FunctionStage)
            if not is_parameter and getattr(stage, attribute) != getattr(fresh, attribute):
                settings[key] = getattr(stage, attribute)
    if not settings:
        return {}
    return {WITH: {key: _dump_setting(key, value, what) for key, value in settings.items()}}


def _dump_setting(key: str, value: Any, what: str) -> Any:
    if key == "stages":
        return {name: {k: _dump_setting(k, v, what) for k, v in inner.items()} for name, inner in value.items()}
    dumped = _dump_value(value, f"{what}: {WITH}.{key}")
    return dumped["Resources"] if key == "resources" else dumped


def _dump_value(value: Any, what: str) -> Any:
    """A value in a form that plain YAML can hold."""
    if isinstance(value, enum.Enum):
        return _dump_value(value.value, what)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_dump_value(item, f"{what}.{i}") for i, item in enumerate(value, 1)]
    if isinstance(value, set | frozenset):
        return sorted((_dump_value(item, what) for item in value), key=repr)
    if isinstance(value, dict):
        return {_dump_key(key, what): _dump_value(item, f"{what}.{key}") for key, item in value.items()}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    if inspect.isroutine(value) or inspect.isclass(value):
        try:
            return {FUNCTION: full_name(value)}
        except RecipeError as e:
            raise RecipeError(f"{what}: {e}") from e
    if isinstance(value, str | int | float):  # a subclass of one of them
        return next(kind(value) for kind in (str, int, float) if isinstance(value, kind))
    if isinstance(value, bytes | bytearray | memoryview) or not hasattr(type(value), "__module__"):
        raise RecipeError(f"{what}: {type(value).__name__} cannot be written in a recipe")
    return _dump_object(value, what)


def _dump_key(key: Any, what: str) -> Any:
    if key is None or isinstance(key, str | int | float | bool):
        return key
    raise RecipeError(f"{what}: the key {key!r} cannot be written in a recipe")
