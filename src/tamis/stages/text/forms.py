"""What filters and modifiers share: a name, a repr, and two forms that must agree.

The *row form* is a function of one text, what users write by hand. The *column form* does the same to a whole Arrow
column at once. A class that has both is used in its column form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

__all__ = ["ShownWithParameters", "TextOperation", "chain_name", "check_operation", "listed", "name_of", "well_formed"]


class ShownWithParameters:
    """Is shown with its parameters, as far as it keeps them as attributes of the same names, with or without ``_``.

    >>> class Years(ShownWithParameters):
    ...     def __init__(self, first: int, last: int = 2024) -> None:
    ...         self.first, self._last = first, last
    >>> Years(2020)
    Years(first=2020, last=2024)
    """

    def __repr__(self) -> str:
        shown = []
        for name in inspect.signature(type(self)).parameters:
            kept = [attribute for attribute in (name, f"_{name}") if hasattr(self, attribute)]
            shown += [f"{name}={getattr(self, attribute)!r}" for attribute in kept[:1]]
        return f"{type(self).__name__}({', '.join(shown)})"


class TextOperation(ShownWithParameters):
    """The base of filters and modifiers.

    Attributes:
        name: Shown in plans and reports; the class name when not set.
    """

    name: str = ""

    def __init__(self) -> None:
        """Nothing to do: here so that subclasses may call ``super().__init__()``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    @property
    def _name(self) -> str:
        """The same as :attr:`name`: under this one, classes that come from NeMo Curator set it."""
        return self.name

    @_name.setter
    def _name(self, value: str) -> None:
        self.name = value

    def _has_column_form(self, row: str, column: str, skeleton: type) -> bool:
        """Whether a column method is there and speaks for the row method.

        It does not where a subclass brings a row method of its own and inherits the column method.
        """
        for base in type(self).__mro__:
            if base is skeleton or column in base.__dict__ or row in base.__dict__:
                return base is not skeleton and column in base.__dict__
        return False


def name_of(operation: TextOperation | Callable[..., Any]) -> str:
    """The name of a filter, modifier or function.

    >>> name_of(str.upper)
    'upper'
    """
    if isinstance(operation, TextOperation):
        return operation.name
    return str(getattr(operation, "__name__", type(operation).__name__))


def check_operation(operation: Any, kind: type[TextOperation], argument: str) -> None:
    """Refuse what is neither an object of the kind nor a function.

    >>> check_operation(TextOperation, TextOperation, "Modify(modifier_fn=...)")
    Traceback (most recent call last):
    TypeError: Modify(modifier_fn=...): TextOperation is a class; give an object: TextOperation(...)
    """
    if inspect.isclass(operation) and issubclass(operation, TextOperation):
        raise TypeError(f"{argument}: {operation.__name__} is a class; give an object: {operation.__name__}(...)")
    if isinstance(operation, TextOperation) and not isinstance(operation, kind):
        raise TypeError(f"{argument}: {operation!r} is not a {kind.__name__}")
    if not isinstance(operation, kind) and not callable(operation):
        raise TypeError(f"{argument}: takes a {kind.__name__} or a function, not {operation!r}")


def listed(given: Any, kind: type[TextOperation], argument: str) -> list[Any]:
    """The operations that a stage is given: one, or a list of them."""
    operations = list(given) if isinstance(given, list | tuple) else [given]
    if not operations:
        raise ValueError(f"{argument}: the list is empty")
    for operation in operations:
        check_operation(operation, kind, argument)
    return operations


def chain_name(stage: str, operations: Sequence[TextOperation | Callable[..., Any]]) -> str:
    """The name of a stage that applies operations one after the other."""
    names = [name_of(operation) for operation in operations]
    return names[0] if len(names) == 1 else f"{stage}_chain_of_{'_'.join(names)}"


class OperationStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that applies operations, one after the other: its steps.

    A step has ``columns`` that it reads, a column that it ``writes``, ``needs_text`` and ``releases_gil``.
    """

    _steps: Sequence[Any]

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # true of a stage, not of its class
        """Whether every operation of the stage has the column form that is needed."""
        return all(step.releases_gil for step in self._steps)

    def inputs(self) -> tuple[list[str], list[str]]:
        made: set[str | None] = set()
        needed: dict[str, None] = {}
        for step in self._steps:
            needed.update(dict.fromkeys(column for column in step.columns if column not in made))
            made.add(step.writes)
        return ["data"], list(needed)

    def text_columns(self) -> list[str]:
        made: set[str | None] = set()
        found: list[str] = []
        for step in self._steps:
            found += step.columns if step.needs_text and not made & set(step.columns) else []
            made.add(step.writes)
        return found


def well_formed(text: str) -> str:
    """A text that UTF-8 can hold: each half of a surrogate pair without the other becomes U+FFFD.

    A column never holds such halves; a text that is given to a row form may.

    >>> well_formed("a \\ud83d b")
    'a \ufffd b'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
