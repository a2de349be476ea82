"""Checks the arguments of a native kernel against a description of its parameters.

A kernel works on addresses: an array of the wrong type, too short or with gaps would make it read or write beyond the
array. So every call is checked first, which takes a few microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Argument", "Array", "Arrays", "Number", "Signature"]

Argument: TypeAlias = "NDArray[Any] | int | Sequence[NDArray[Any] | None]"

_NUMBER_LIMIT = 1 << 63
_WHOLE_NUMBERS = (int, np.integer)


@dataclass(frozen=True)
class Number:
    """A whole number from 0 to 2 ** 63 - 1."""


@dataclass(frozen=True)
class Array:
    """A contiguous NumPy array.

    Args:
        dtype: The type of its elements: ``"uint8"``, ``"int32"``, ``"uint32"``, ``"int64"``, ``"uint64"``,
            ``"float32"`` or ``"float64"``.
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
        self._conditions, self._helpers = tuple(conditions), helpers or {}

    def check(
        self, kernel: str, arguments: Sequence[Argument]
    ) -> tuple[tuple[int, ...], tuple[NDArray[np.int64], ...]]:
        """The numbers and addresses to call a kernel with, and the tables of addresses that some of them point to.

        The caller keeps the arguments and the tables alive while the kernel runs.

        Args:
            kernel: Its name, for messages.
            arguments: The arguments of the call.
        """
        try:
            if len(arguments) != len(self.parameters):
                raise TypeError(f"it takes {len(self.parameters)} arguments, not {len(arguments)}")
            return self._checked(*arguments)
        except (IndexError, TypeError, ValueError) as error:
            # An IndexError: an array that holds the length of another is too short.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"kernel {kernel!r}: {error}") from None

    @functools.cached_property
    def _checked(self) -> Callable[..., tuple[tuple[int, ...], tuple[NDArray[np.int64], ...]]]:
        """The check as one function of all arguments, compiled when it is first needed: a loop takes far longer.

        Numbers come first, then types, lengths and conditions, so that each can rely on what was checked before.
        """
        import pyarrow as pa  # not where kernels are compiled: it may not be installed there

        arrays = {name: it for name, it in self.parameters.items() if isinstance(it, Array)}
        lists = {name: it for name, it in arrays.items() if isinstance(it, Arrays)}
        body = [f"{n}__ = _number({n!r}, {n})" for n in self.parameters if n not in arrays]
        for n, it in arrays.items():
            address = f"_buffer(_array({n!r}, {n}__dtype, {it.is_written}, {'each' if n in lists else n})).address"
            if isinstance(it, Arrays):
                optional = "0 if each is None else " if it.is_optional else ""
                body.append(f"{n}__table = _int64([{optional}{address} for each in _list({n!r}, {n})])")
                address = f"_buffer({n}__table).address"
            body.append(f"{n}__ = {address}")
        body += [f"{n}__length = {it.length}" for n, it in arrays.items()]
        body += [f"{n}__size = _least_size({n!r}, {n}, {it.count}, {n}__length)" for n, it in lists.items()]
        for n, it in arrays.items():
            size = f"{n}__size" if n in lists else f"{n}.size"
            body.append(f"if {size} < {n}__length: _too_short({n!r}, {size}, {n}__length, {it.length!r})")
        for condition in self._conditions:
            body.append(f"if not ({condition}): raise ValueError({f'the condition {condition} does not hold'!r})")
        results = [f"{n}__, " for n in self.parameters], [f"{n}__table, " for n in lists]
        body.append("return ({}), ({})".format(*map("".join, results)))
        known: dict[str, Any] = {f"{n}__dtype": np.dtype(it.dtype) for n, it in arrays.items()}
        known |= {"_buffer": pa.py_buffer, "_int64": functools.partial(np.array, dtype=np.int64), **self._helpers}
        known |= {each.__name__: each for each in (_number, _array, _list, _least_size, _too_short)}
        exec("\n    ".join([f"def checked({', '.join(self.parameters)}):", *body]), known)
        checked: Callable[..., Any] = known["checked"]
        return checked


def _number(name: str, argument: Any) -> int:
    if not isinstance(argument, _WHOLE_NUMBERS):
        raise TypeError(f"{name} must be a whole number, not {_kind(argument)}")
    if not 0 <= argument < _NUMBER_LIMIT:
        raise ValueError(f"{name} = {argument} is not between 0 and {_NUMBER_LIMIT - 1}")
    return int(argument)


def _list(name: str, arguments: Any) -> Sequence[Any]:
    if not isinstance(arguments, list | tuple):
        raise TypeError(f"{name} must be a list of arrays, not {_kind(arguments)}")
    return arguments


def _array(name: str, dtype: np.dtype[Any], is_written: bool, argument: Any) -> NDArray[Any]:
    if not isinstance(argument, np.ndarray) or argument.dtype != dtype:
        raise TypeError(f"{name} must be an array of {dtype}, not {_kind(argument)}")
    flags = argument.flags
    if not flags.c_contiguous:
        raise ValueError(f"{name} must be a contiguous array")
    if is_written and not flags.writeable:
        raise ValueError(f"{name} is read-only, but the kernel writes to it")
    return argument


def _least_size(name: str, arrays: Sequence[NDArray[Any] | None], count: int, length: int) -> int:
    """The number of elements of the shortest array."""
    if len(arrays) != count:
        raise ValueError(f"{name} has {len(arrays)} arrays and needs {count}")
    return min((array.size for array in arrays if array is not None), default=length)


def _too_short(name: str, elements: int, length: int, expression: str) -> None:
    raise ValueError(f"{name} has {elements} elements and needs {length} ({expression})")


def _kind(argument: Any) -> str:
    return f"one of {argument.dtype}" if isinstance(argument, np.ndarray) else type(argument).__name__
