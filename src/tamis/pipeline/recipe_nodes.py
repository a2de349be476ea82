"""The YAML of recipes: values that remember where they were written.

Plain values follow YAML 1.2: only ``true`` and ``false`` are booleans (so the language code ``no`` stays text), and
``1e-3`` is a number. Tags are refused: a recipe is data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tamis.errors import RecipeError

__all__ = ["Node", "Scalar", "parse_yaml", "read_scalar", "to_yaml"]

Scalar = str | int | float | bool | None

_DEEPEST: Final = 40
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
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
    """A value in a recipe and the place it was written.

    Args:
        value: A plain value, a list of nodes, or a dict of nodes.
        where: The place, for messages: ``"recipe.yaml, line 3"``. For the value of a key, the line of the key.
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
        one_place: Whether the source is a single line, so that line numbers say nothing.

    >>> node = parse_yaml("a: 1\\nb: [no, 1e-3]", "recipe.yaml")
    >>> node.plain(), node.value["b"].where
    ({'a': 1, 'b': ['no', 0.001]}, 'recipe.yaml, line 2')
    """

    def place(mark: Any) -> str:
        return source if one_place or mark is None else f"{source}, line {mark.line + 1}"

    def convert(node: Any, where: str, depth: int) -> Node:
        if depth > _DEEPEST:
            raise RecipeError(f"{where}: nested more than {_DEEPEST} levels deep")
        plain_tag = node.tag.startswith("tag:yaml.org,2002:") and node.tag.rpartition(":")[2] in ("str", "seq", "map")
        if not plain_tag:
            raise RecipeError(f"{where}: the tag {node.tag!r} is not allowed: a recipe holds plain values only")
        if isinstance(node, yaml.ScalarNode):
            return Node(read_scalar(node.value) if node.style is None else node.value, where)
        if isinstance(node, yaml.SequenceNode):
            return Node([convert(item, place(item.start_mark), depth + 1) for item in node.value], where)
        entries: dict[Scalar, Node] = {}
        for key_node, item in node.value:
            key_place = place(key_node.start_mark)
            key = convert(key_node, key_place, depth + 1).value
            if isinstance(key, list | dict):
                raise RecipeError(f"{key_place}: a key must be a plain value")
            if key in entries:
                raise RecipeError(f"{key_place}: {key!r} is given twice")
            entries[key] = convert(item, key_place, depth + 1)
        return Node(entries, where)

    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as e:
        problem = ", ".join(part for part in (e.context, e.problem) if part)
        raise RecipeError(f"{place(e.problem_mark)}: this is not YAML: {problem}") from e
    except yaml.YAMLError as e:
        raise RecipeError(f"{source}: this is not YAML: {e}") from e
    return Node(None, source) if root is None else convert(root, place(root.start_mark), 0)


def read_scalar(text: str) -> Scalar:
    """What an unquoted text means.

    >>> [read_scalar(t) for t in ("12", "1e3", "true", "no", "2024-01-01", "null")]
    [12, 1000.0, True, 'no', '2024-01-01', None]
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes what this module or a reader of YAML 1.1 would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if isinstance(read_scalar(text), str) else "'"
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
