"""Checks the arguments of a native kernel against a description of its parameters.

A kernel works on addresses: an array of the wrong type, too short or with gaps would make it read or write beyond the
array. So every call is checked first, which takes a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Argument", "Array", "Arrays", "Number", "Signature"]

Argument: TypeAlias = "NDArray[Any] | int | Sequence[NDArray[Any] | None]"

_NUMBER_LIMIT = 1 << 63


@dataclass(frozen=True)
class Number:
    """A whole number from 0 to 2 ** 63 - 1."""


@dataclass(frozen=True)
class Array:
    """A contiguous NumPy array.

    Args:
        dtype: The type of its elements: ``"uint8"``, ``"int64"``, ``"uint64"`` or ``"float64"``.
        length: The least number of elements, as an expression in the parameters of the kernel.
        is_written: Whether the kernel writes to it.
    """

    dtype: str
    length: str
    is_written: bool = False


@dataclass(frozen=True)
class Arrays(Array):
    """A sequence of arrays. The kernel gets their addresses, 0 for ``None``.

    Args:
        count: The number of arrays, as an expression in the parameters of the kernel.
        is_optional: Whether an array may be ``None``.
    """

    count: str = "1"
    is_optional: bool = False


Parameter: TypeAlias = Number | Array | Arrays


class Signature:
    """The parameters of a kernel by name, in order, and conditions on them.

    Args:
        conditions: Expressions in the parameters that must be true; checked after types and lengths.
        helpers: Functions that the expressions may use.
        parameters: The kind of each parameter.

    >>> signature = Signature(text=Array("uint8", "size"), size=Number())
    >>> signature.check("demo", (np.zeros(3, np.uint8), 4))
    Traceback (most recent call last):
    ...
    ValueError: kernel 'demo': text has 3 elements and needs 4 (size)
    """

    def __init__(
        self, conditions: Sequence[str] = (), helpers: dict[str, Any] | None = None, **parameters: Parameter
    ) -> None:
        self.parameters = parameters
        self._conditions = tuple(conditions)
        self._numbers = [(i, name) for i, (name, it) in enumerate(parameters.items()) if isinstance(it, Number)]
        self._arrays = [
            (i, name, np.dtype(it.dtype), it.is_written, it)
            for i, (name, it) in enumerate(parameters.items())
            if isinstance(it, Array)
        ]
        lengths = [it.length for *_, it in self._arrays]
        counts = [it.count if isinstance(it, Arrays) else "1" for *_, it in self._arrays]
        self._lengths, self._counts, self._holds = (
            self._compiled(expressions, helpers or {}) for expressions in (lengths, counts, self._conditions)
        )

    def check(self, kernel: str, arguments: Sequence[Argument]) -> tuple[list[Any], list[NDArray[np.int64]]]:
        """The numbers and addresses to call a kernel with, and the tables of addresses that some of them point to.

        The caller keeps the arguments and the tables alive while the kernel runs.

        Args:
            kernel: Its name, for messages.
            arguments: The arguments of the call.
        """
        try:
            return self._checked(arguments)
        except (IndexError, TypeError, ValueError) as error:
            # An IndexError: an array that holds the length of another is too short.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"kernel {kernel!r}: {error}") from None

    def _checked(self, arguments: Sequence[Argument]) -> tuple[list[Any], list[NDArray[np.int64]]]:
        if len(arguments) != len(self.parameters):
            raise TypeError(f"it takes {len(self.parameters)} arguments, not {len(arguments)}")
        passed: list[Any] = list(arguments)
        tables: list[NDArray[np.int64]] = []
        for place, name in self._numbers:
            passed[place] = _number(name, passed[place])
        for place, name, dtype, is_written, parameter in self._arrays:
            if isinstance(parameter, Arrays):
                tables.append(_addresses(name, parameter, dtype, passed[place]))
                passed[place] = _address_of(tables[-1])
            else:
                passed[place] = _address(name, dtype, is_written, passed[place])
        counts = self._counts(*arguments) if tables else ()
        for number, length in enumerate(self._lengths(*arguments)):
            place, name, _, _, parameter = self._arrays[number]
            given: Any = arguments[place]
            if not isinstance(parameter, Arrays):
                elements = given.size
            elif len(given) == counts[number]:
                elements = min((array.size for array in given if array is not None), default=length)
            else:
                raise ValueError(f"{name} has {len(given)} arrays and needs {counts[number]}")
            if elements < length:
                raise ValueError(f"{name} has {elements} elements and needs {length} ({parameter.length})")
        for condition, holds in zip(self._conditions, self._holds(*arguments), strict=True):
            if not holds:
                raise ValueError(f"the condition {condition} does not hold")
        return passed, tables

    def _compiled(self, expressions: Sequence[str], helpers: dict[str, Any]) -> Callable[..., tuple[Any, ...]]:
        """A function of all arguments that returns the values of some expressions."""
        source = f"lambda {', '.join(self.parameters)}: ({''.join(f'{each}, ' for each in expressions)})"
        compiled: Callable[..., tuple[Any, ...]] = eval(source, dict(helpers))
        return compiled


def _number(name: str, argument: Any) -> int:
    if not isinstance(argument, int | np.integer):
        raise TypeError(f"{name} must be a whole number, not {_kind(argument)}")
    if not 0 <= argument < _NUMBER_LIMIT:
        raise ValueError(f"{name} = {argument} is not between 0 and {_NUMBER_LIMIT - 1}")
    return int(argument)


def _addresses(name: str, parameter: Arrays, dtype: np.dtype[Any], arguments: Any) -> NDArray[np.int64]:
    if not isinstance(arguments, list | tuple):
        raise TypeError(f"{name} must be a list of arrays, not {_kind(arguments)}")
    return np.array(
        [
            0 if each is None and parameter.is_optional else _address(name, dtype, parameter.is_written, each)
            for each in arguments
        ],
        np.int64,
    )


def _address(name: str, dtype: np.dtype[Any], is_written: bool, argument: Any) -> int:
    if not isinstance(argument, np.ndarray) or argument.dtype != dtype:
        raise TypeError(f"{name} must be an array of {dtype}, not {_kind(argument)}")
    flags = argument.flags
    if not flags.c_contiguous:
        raise ValueError(f"{name} must be a contiguous array")
    if is_written and not flags.writeable:
        raise ValueError(f"{name} is read-only, but the kernel writes to it")
    return _address_of(argument)


def _address_of(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _kind(argument: Any) -> str:
    return f"one of {argument.dtype}" if isinstance(argument, np.ndarray) else type(argument).__name__
