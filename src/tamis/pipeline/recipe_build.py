"""Makes stages and their parameters from the values of a recipe.

The type of each parameter decides how its value is read: a number, a list, a function, an object written as
``{ClassName: {parameters}}``. A value that does not fit is refused with its line. Only stages, filters, modifiers and
objects of the type that a parameter asks for are made: no other class is called.
"""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from tamis.errors import RecipeError, TamisError, did_you_mean
from tamis.pipeline.catalogue import find, is_builtin, is_name
from tamis.pipeline.parameters import REQUIRED, Parameter, parameters_of, takes_any_parameter
from tamis.pipeline.recipe_nodes import Node
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.function_decorators import FunctionStage
from tamis.stages.resources import Resources
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.forms import TextOperation
from tamis.stages.text.modifiers.base import DocumentModifier

WITH: Final = "with"
"""The reserved key that holds a stage's settings, beside its parameters."""

FUNCTION: Final = "function"
"""The key that marks a function: ``{function: package.module:name}``."""

SETTINGS: Final[dict[str, Any]] = {
    "name": str,
    "resources": Resources,
    "batch_size": int,
    "num_workers": int,
    "num_workers_per_node": float,
    "timeout_s": float,
    "overwrite_columns": bool,
    "runtime_env": dict[str, Any],
    "ray_stage_spec": dict[str, Any],
    "xenna_stage_spec": dict[str, Any],
}
"""The settings that ``with:`` may hold, and their types."""

_INNER = "stages"
LISTS: Final = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_IN_WORDS: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


def build_stage(node: Node) -> ProcessingStage[Any, Any]:
    """Make the stage that a node describes: ``Name``, or ``Name: {parameters}``.

    >>> from tamis.pipeline.recipe_nodes import parse_yaml
    >>> build_stage(parse_yaml("Route: {by: lang, branches: {en: []}}", "recipe.yaml"))
    Route(by='lang', branches={'en': []}, otherwise=[], name='Route')
    """
    name, parameters = _name_and_parameters(node)
    name = str(parameters.value) if name == FUNCTION else name
    found = _found(node, name)
    if not _is_a(found, ProcessingStage):
        raise node.error(f"{name} is not a stage{_how_to_use(found, name)}")
    return typing.cast("ProcessingStage[Any, Any]", _build_object(node, ProcessingStage))


def _how_to_use(found: Any, name: str) -> str:
    """What to write instead of something that is not a stage."""
    if _is_a(found, DocumentFilter):
        return f"; write ScoreFilter: {{filter_obj: {{{name}: ...}}}}"
    if _is_a(found, DocumentModifier):
        return f"; write Modify: {{modifier_fn: {{{name}: ...}}}}"
    return "; decorate the function with @processing_stage" if inspect.isfunction(found) else ""


def _is_a(found: Any, cls: type | tuple[type, ...]) -> bool:
    """Whether something is an object of a class, or a subclass of it."""
    return isinstance(found, cls) or (inspect.isclass(found) and issubclass(found, cls))


def build_fields(cls: type, node: Node, name: str = "") -> Any:
    """Make an object of a class from a mapping of its parameters.

    >>> from tamis.pipeline.recipe_nodes import parse_yaml
    >>> build_fields(Resources, parse_yaml("{cpus: 2}", "recipe.yaml"))
    Resources(cpus=2.0, gpu_memory_gb=0.0, gpus=0.0)
    >>> build_fields(Resources, parse_yaml("{cpu: 2}", "recipe.yaml"))
    Traceback (most recent call last):
    tamis.errors.RecipeError: recipe.yaml, line 1: Resources has no parameter 'cpu'. Did you mean 'cpus'?
      It takes: cpus, gpu_memory_gb, gpus
    """
    name = name or cls.__name__
    given = _mapping(node, f"the parameters of {name}")
    known = {p.name: p for p in parameters_of(cls)}
    values: dict[str, Any] = {}
    for key, item in given.items():
        if key in known:
            values[str(key)] = build_value(item, known[str(key)].type, f"{name}.{key}")
        elif isinstance(key, str) and takes_any_parameter(cls):
            values[key] = build_value(item, Any, f"{name}.{key}")
        else:
            takes = f"It takes: {', '.join(known)}" if known else "It takes none"
            likely = _in_a_value(str(key), given, known) or did_you_mean(str(key), known)
            raise item.error(f"{name} has no parameter {key!r}.{likely}\n  {takes}")
    missing = [p.name for p in known.values() if p.default is REQUIRED and p.name not in given]
    if missing:
        raise node.error(f"{name} needs {' and '.join(missing)}")
    try:
        return cls(**values)
    except (TamisError, OSError, ValueError, TypeError) as e:
        raise node.error(f"{name}: {e}") from e


def _in_a_value(key: str, given: Mapping[Any, Node], known: Mapping[str, Parameter]) -> str:
    """A hint if an object among the values has such a parameter, as the filter of a stage."""
    for name in known.keys() & given.keys():
        with contextlib.suppress(RecipeError):
            value = build_value(given[name], known[name].type, name)
            if is_dataclass(value) and any(f.name == key for f in fields(value)):
                return f" Did you mean {f'{name}.{key}'!r}?"
    return ""


def build_value(node: Node, hint: Any, what: str) -> Any:
    """Read a value as the type it should have.

    Args:
        node: The value.
        hint: The type: of a parameter, or of an element of one.
        what: What it is, for messages: ``"WordCountFilter.min_words"``.

    >>> from tamis.pipeline.recipe_nodes import parse_yaml
    >>> build_value(parse_yaml("[1, 2]", "recipe.yaml"), tuple[float, ...], "x")
    (1.0, 2.0)
    >>> build_value(parse_yaml("fifty", "r.yaml"), int | None, "WordCountFilter.min_words")
    Traceback (most recent call last):
    tamis.errors.RecipeError: r.yaml, line 1: WordCountFilter.min_words: expected a whole number or null, not 'fifty'
    """
    options = [option for option in options_of(hint) if _fits(node, option)]
    if not options:
        raise node.error(f"{what}: expected {_in_words(hint)}, not {_shown(node)}")
    problems = []
    for option in sorted(options, key=lambda option: option is not type(node.value)):  # 5 stays 5 for float | int
        try:
            return _build_as(node, option, what)
        except RecipeError as e:
            problems.append(e)
    raise problems[0]


def options_of(hint: Any) -> list[Any]:
    """The alternatives of a union; type variables and aliases resolved."""
    if isinstance(hint, typing.TypeVar):
        return options_of(hint.__bound__ or Any)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [option for member in typing.get_args(hint) for option in options_of(member)]
    if origin in (typing.Annotated, typing.Final):
        return options_of(typing.get_args(hint)[0])
    return [hint]


def _fits(node: Node, hint: Any) -> bool:
    """Whether a value has the outer form of a type: a list, a mapping, a number, ..."""
    value, origin = node.value, typing.get_origin(hint) or hint
    if origin is Any or origin is object:
        return True
    if origin is typing.Literal:
        return not isinstance(value, list | dict)
    if origin in LISTS:
        return isinstance(value, list)
    if origin in MAPPINGS:
        return isinstance(value, dict)
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (str, bool, type(None)):
        return isinstance(value, origin)
    if _is_path(origin) or origin is bytes:
        return isinstance(value, str)
    if inspect.isclass(origin) and issubclass(origin, enum.Enum):
        return not isinstance(value, list | dict)
    if isinstance(value, dict) and set(value) == {FUNCTION} and inspect.isclass(origin):
        return origin in (type, collections.abc.Callable) or issubclass(origin, ProcessingStage)
    return isinstance(value, str | dict)


def _build_as(node: Node, hint: Any, what: str) -> Any:
    """Read a value as one type, whose outer form it has."""
    value, origin, inner = node.value, typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is Any or origin is object:
        return _build_anything(node, what)
    if origin is typing.Literal:
        return _one_of({option: option for option in inner}, node, what)
    if isinstance(value, list):
        return _build_list(value, node, origin, inner, what)
    if origin in MAPPINGS:
        assert isinstance(value, dict)
        of_values = inner[1] if len(inner) == 2 else Any
        return {key: build_value(item, of_values, f"{what}.{key}") for key, item in value.items()}
    if origin in _IN_WORDS:
        return float(typing.cast("float", value)) if origin is float else value
    if origin is bytes:
        return str(value).encode()
    if _is_path(origin):
        return origin(value) if not inspect.isabstract(origin) and origin is not os.PathLike else value
    if origin in (Callable, collections.abc.Callable, type):
        return _build_function(node, what, or_class=origin is type)
    if issubclass(origin, enum.Enum):
        by_name = {member.name: member for member in origin}
        return _one_of({**by_name, **{member.value: member for member in origin}}, node, what)
    return _build_instance(node, origin, what)


def _build_anything(node: Node, what: str) -> Any:
    """Plain values as they are; a mapping that names a function, a stage, a filter or a modifier becomes one."""
    value = node.value
    if isinstance(value, list):
        return [_build_anything(item, f"{what}.{i}") for i, item in enumerate(value, 1)]
    if not isinstance(value, dict):
        return value
    if set(value) == {FUNCTION}:
        return _build_function(node, what)
    if len(value) == 1 and is_name(next(iter(value))):
        return _build_object(node)
    return {key: _build_anything(item, f"{what}.{key}") for key, item in value.items()}


def _build_list(items: list[Node], node: Node, origin: Any, inner: tuple[Any, ...], what: str) -> Any:
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(items) != len(inner):
            raise node.error(f"{what}: expected {len(inner)} values, not {len(items)}")
        return tuple(build_value(item, hint, what) for item, hint in zip(items, inner, strict=True))
    of_items = inner[0] if inner else Any
    values = [build_value(item, of_items, f"{what}.{i}") for i, item in enumerate(items, 1)]
    return values if origin not in (tuple, set, frozenset) else origin(values)


def _build_function(node: Node, what: str, *, or_class: bool = False) -> Any:
    """``{function: package.module:name}``, the name alone, or an object that can be called."""
    value = node.value
    if isinstance(value, dict) and set(value) != {FUNCTION}:
        made = _build_object(node)
        if not callable(made):
            raise node.error(f"{what}: a {type(made).__name__} cannot be called")
        return made
    name = value[FUNCTION].plain() if isinstance(value, dict) else value
    if not isinstance(name, str) or ":" not in name:
        raise node.error(f"{what}: a function is written {{function: package.module:name}}, not {name!r}")
    found = _found(node, name)
    if (
        not inspect.isroutine(found)
        and not isinstance(found, FunctionStage)
        and not (or_class and inspect.isclass(found))
    ):
        raise node.error(f"{what}: {name} is not a function")
    return found


def _build_instance(node: Node, cls: type, what: str) -> Any:
    """An object of a class or of a subclass: ``{ClassName: {...}}``, or, for a value object, its fields alone."""
    value = node.value
    names_a_class = isinstance(value, str) or (
        isinstance(value, dict) and len(value) == 1 and is_name(next(iter(value)))
    )
    if not names_a_class and not issubclass(cls, ProcessingStage) and is_dataclass(cls):
        return build_fields(cls, node, what)
    if isinstance(value, dict) and len(value) != 1:
        raise node.error(
            f"{what}: expected {_in_words(cls)}, which is written {{ClassName: {{parameters}}}}, not {_shown(node)}"
        )
    if getattr(cls, "_is_protocol", False):
        return _build_object(node)
    name, parameters = _name_and_parameters(node)
    found = _found(node, str(parameters.value) if name == FUNCTION else name)
    if not _is_a(found, cls):
        shown = found.__name__ if inspect.isclass(found) else type(found).__name__
        raise node.error(f"{what}: expected {_in_words(cls)}, not a {shown}")
    return _build_object(node, cls)


def _build_object(node: Node, wanted: type = TextOperation) -> Any:
    """Make the object that ``Name`` or ``Name: {parameters}`` describes.

    Args:
        node: The description.
        wanted: A class of the user's may be named if it is a subclass of this one, a stage, a filter or a modifier.
    """
    name, parameters = _name_and_parameters(node)
    if isinstance(node.value, dict) and name == FUNCTION:
        return _build_function(node, FUNCTION)
    found = _found(node, name)
    if not _is_a(found, (wanted, ProcessingStage, TextOperation)) and not (
        inspect.isclass(found) and is_builtin(found)
    ):
        raise node.error(f"{name} is not a stage, a filter or a modifier")
    given = dict(_mapping(parameters, f"the parameters of {name}"))
    settings = given.pop(WITH, None) if _is_a(found, ProcessingStage) else None
    if inspect.isclass(found):
        made = build_fields(found, Node(given, parameters.where), name)
    elif given:
        raise parameters.error(f"{name} is a finished stage: it takes settings under 'with:', no parameters")
    else:
        made = found
    return made if settings is None else _with_settings(made, settings, name)


def _with_settings(stage: ProcessingStage[Any, Any], node: Node, name: str) -> ProcessingStage[Any, Any]:
    """Apply the settings under ``with:``."""
    values, inner = {}, {}
    for key, item in _mapping(node, f"{name}.{WITH}").items():
        if key == _INNER and isinstance(stage, CompositeStage):
            names = [inner_stage.name for inner_stage in stage.decompose()]
            for inner_name, inner_settings in _mapping(item, f"{name}.{WITH}.{_INNER}").items():
                if inner_name not in names:
                    raise inner_settings.error(
                        f"{name} has no stage {inner_name!r} inside.{did_you_mean(str(inner_name), names)}\n"
                        f"  It has: {', '.join(names)}"
                    )
                inner[str(inner_name)] = _settings(inner_settings, f"{name}.{WITH}.{_INNER}.{inner_name}")
            continue
        values.update(_settings(Node({key: item}, item.where), f"{name}.{WITH}"))
    try:
        return stage.with_(inner, **values) if isinstance(stage, CompositeStage) else stage.with_(**values)
    except (TamisError, ValueError, TypeError) as e:
        raise node.error(f"{name}: {e}") from e


def _settings(node: Node, what: str) -> dict[str, Any]:
    values = {}
    for key, item in _mapping(node, what).items():
        if key not in SETTINGS:
            raise item.error(
                f"{what} has no setting {key!r}.{did_you_mean(str(key), SETTINGS)}\n  It takes: {', '.join(SETTINGS)}"
            )
        values[str(key)] = build_value(item, SETTINGS[str(key)], f"{what}.{key}")
    return values


def _name_and_parameters(node: Node) -> tuple[str, Node]:
    """The class name of a node and the node of its parameters."""
    if isinstance(node.value, str):
        return node.value, Node({}, node.where)
    if isinstance(node.value, dict) and len(node.value) == 1:
        ((name, parameters),) = node.value.items()
        return str(name), parameters
    if isinstance(node.value, dict) and node.value:
        raise node.error(
            f"expected one stage, Name: {{parameters}}, not the {len(node.value)} keys {_names(node.value)}. "
            "Indent the parameters of a stage below its name, or put them in braces"
        )
    raise node.error(f"expected a stage, Name or Name: {{parameters}}, not {_shown(node)}")


def _found(node: Node, name: str) -> Any:
    try:
        return find(name)
    except RecipeError as e:
        raise node.error(str(e)) from e


def _mapping(node: Node, what: str) -> dict[Any, Node]:
    if node.value is None:
        return {}
    if not isinstance(node.value, dict):
        raise node.error(f"{what} must be a mapping of names to values, not {_shown(node)}")
    return node.value


def _one_of(options: dict[Any, Any], node: Node, what: str) -> Any:
    for option, result in options.items():
        if option == node.value and type(option) is type(node.value):
            return result
    raise node.error(
        f"{what}: expected one of {', '.join(map(repr, options))}, not {_shown(node)}."
        f"{did_you_mean(str(node.value), [str(o) for o in options])}"
    )


def _is_path(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, os.PathLike)


def _names(keys: Any) -> str:
    return ", ".join(str(key) for key in keys)


def _shown(node: Node) -> str:
    """A value for a message, shortened."""
    text = "a list" if isinstance(node.value, list) else repr(node.plain())
    return "null" if node.value is None else text if len(text) <= 60 else f"{text[:57]}..."


def _in_words(hint: Any) -> str:
    """A type for a message.

    >>> _in_words(list[str] | int | None)
    'a list (text) or a whole number or null'
    """
    words = []
    for option in options_of(hint):
        origin, inner = typing.get_origin(option) or option, typing.get_args(option)
        if origin in _IN_WORDS:
            words.append(_IN_WORDS[origin])
        elif origin is typing.Literal:
            words.append(f"one of {', '.join(map(repr, inner))}")
        elif origin in LISTS:
            words.append(f"a list ({_in_words(inner[0])})" if inner and inner[0] is not Any else "a list")
        elif origin in MAPPINGS:
            words.append("a mapping")
        elif origin is collections.abc.Callable:
            words.append("a function, {function: package.module:name}")
        elif _is_path(origin):
            words.append("a path")
        else:
            words.append(f"a {getattr(origin, '__name__', origin)}")
    return " or ".join(dict.fromkeys(words))
