"""The YAML of recipes: values that remember where they were written.

Plain values follow YAML 1.2: only ``true`` and ``false`` are booleans (so the language code ``no`` stays text), and
``1e-3`` is a number. Tags are refused: a recipe is data. Size, depth and aliases are limited.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tamis.errors import RecipeError

Scalar = str | int | float | bool | None

MAX_CHARACTERS: Final = 4 * 2**20
"""The longest recipe."""

MAX_VALUES: Final = 100_000
"""The most values in a recipe, with aliases expanded."""

MAX_DEPTH: Final = 40
"""How deep lists and mappings may be nested."""

MAX_DIGITS: Final = 64
"""The longest number."""

_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PLAIN_TAGS: Final = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")))
_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass
class Node:
    """A value in a recipe (plain, a list of nodes or a dict of nodes) and the place it was written, for messages:
    ``"recipe.yaml, line 3"``. For the value of a key, it is the line of the key.
    """

    value: Scalar | list[Node] | dict[Scalar, Node]
    where: str

    def error(self, problem: str) -> RecipeError:
        """An error that says where."""
        return RecipeError(f"{self.where}: {problem}")

    def plain(self) -> Any:
        """The value without positions.

        >>> parse_yaml("{a: [1, x]}", "recipe").plain()
        {'a': [1, 'x']}
        """
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def parse_yaml(text: str, source: str, *, one_place: bool = False) -> Node:
    """Read one YAML document.

    Args:
        text: The document.
        source: What to call it in messages: a file name.
        one_place: Whether the source is a single line, so that messages need no line numbers.

    >>> node = parse_yaml("a: 1\\nb: [no, 1e-3]", "recipe.yaml")
    >>> node.plain(), node.value["b"].where
    ({'a': 1, 'b': ['no', 0.001]}, 'recipe.yaml, line 2')
    """
    if len(text) > MAX_CHARACTERS:
        raise RecipeError(f"{source}: longer than {MAX_CHARACTERS:,} characters, which is the most a recipe may have")
    reader = _Reader(text, source, one_place)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as e:
        problem = ", ".join(part for part in (e.context, e.problem) if part)
        raise RecipeError(f"{reader.place(e.problem_mark)}: this is not YAML: {problem}") from e
    except yaml.YAMLError as e:
        raise RecipeError(f"{source}: this is not YAML: {e}") from e


class _Reader:
    """Builds nodes from the events of the YAML parser, which has no recursion of its own, and counts them."""

    def __init__(self, text: str, source: str, one_place: bool) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.BaseLoader)
        self._source, self._one_place = source, one_place
        self._anchors: dict[str, tuple[Node, int, int]] = {}  # node, its values, its depth
        self._values = self._deepest = 0

    def place(self, mark: Any) -> str:
        return self._source if self._one_place or mark is None else f"{self._source}, line {mark.line + 1}"

    def document(self) -> Node:
        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return Node(None, self._source)
        root = self._node(next(self._events), "", 0)
        next(self._events)  # the document ends
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise RecipeError(f"{self.place(event.start_mark)}: a recipe is one YAML document, and here begins another")
        return root

    def _node(self, event: Any, where: str, depth: int) -> Node:
        where = where or self.place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise RecipeError(f"{where}: the alias *{event.anchor} has no anchor before it")
            known, values, height = self._anchors[event.anchor]
            self._count(values, depth + height, where)
            return Node(copy.deepcopy(known.value), where)
        first, outside, self._deepest = self._values, self._deepest, depth
        self._count(1, depth, where)
        if event.tag not in _PLAIN_TAGS:
            raise RecipeError(f"{where}: the tag {event.tag!r} is not allowed: a recipe holds plain values only")
        node = Node(self._value(event, where, depth), where)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._values - first, self._deepest - depth)
        self._deepest = max(outside, self._deepest)
        return node

    def _value(self, event: Any, where: str, depth: int) -> Scalar | list[Node] | dict[Scalar, Node]:
        if isinstance(event, yaml.ScalarEvent):
            if event.style is not None:
                return str(event.value)
            if len(event.value) > MAX_DIGITS and _is_number(event.value):
                raise RecipeError(f"{where}: a number of {len(event.value):,} digits. If it is text, put it in quotes")
            return read_scalar(event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(event, "", depth + 1))
            return items
        entries: dict[Scalar, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key_place = self.place(event.start_mark)
            key = self._node(event, key_place, depth + 1).value
            if isinstance(key, list | dict):
                raise RecipeError(f"{key_place}: a key must be a plain value")
            if key in entries:
                raise RecipeError(f"{key_place}: {key!r} is given twice")
            entries[key] = self._node(next(self._events), key_place, depth + 1)
        return entries

    def _count(self, values: int, depth: int, where: str) -> None:
        self._values += values
        self._deepest = max(self._deepest, depth)
        if self._values > MAX_VALUES:
            raise RecipeError(f"{where}: more than {MAX_VALUES:,} values, with aliases expanded")
        if depth > MAX_DEPTH:
            raise RecipeError(f"{where}: nested more than {MAX_DEPTH} levels deep")


def read_scalar(text: str) -> Scalar:
    """What an unquoted text means.

    >>> [read_scalar(t) for t in ("12", "1e3", "true", "no", "2024-01-01", "null")]
    [12, 1000.0, True, 'no', '2024-01-01', None]
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    return float(text) if _is_number(text) else text


def _is_number(text: str) -> bool:
    return (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)) is not None


class _Dumper(yaml.SafeDumper):
    """Quotes text that this module or a reader of YAML 1.1 would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if text in _WORDS or _is_number(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: Any) -> str:
    """Write plain values; small lists and mappings go on one line.

    >>> print(to_yaml({"name": "x", "stages": [{"JsonlReader": {"fields": ["text", "url"], "note": "no"}}]}), end="")
    name: x
    stages:
      - JsonlReader:
          fields: [text, url]
          note: 'no'
    """
    return str(
        yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
    )
