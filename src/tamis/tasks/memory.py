"""How much memory a payload takes: measured, for any object a task may carry."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["measured_bytes"]

_SAMPLED = 256
"""Items of a long list that are measured; the others are taken to be as large on average."""

_DEEPEST = 16


def measured_bytes(value: Any) -> int:
    """About how much memory an object takes, with all it holds.

    Arrays, tensors, tables and bytes are counted exactly; of long lists some items are measured. Objects that several
    others refer to are counted once.

    >>> import numpy as np
    >>> measured_bytes([np.zeros(1000)]) > 8000, measured_bytes({"a": b"x" * 5000}) > 5000
    (True, True)
    """
    return _measured(value, set(), _DEEPEST)


def _measured(value: Any, seen: set[int], depth: int) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    size = _own_bytes(value)
    if size is not None:
        return size
    shallow = sys.getsizeof(value, 64)
    if depth <= 0:
        return shallow
    if isinstance(value, Mapping):
        return shallow + _sampled([*value.keys(), *value.values()], seen, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return shallow + _sampled(list(value), seen, depth)
    if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        return shallow + _sampled(list(vars(value).values()) if hasattr(value, "__dict__") else [], seen, depth)
    return shallow


def _own_bytes(value: Any) -> int | None:
    """The size of an object that knows its own: arrays, tables, tensors, frames, text, numbers."""
    if value is None or isinstance(value, str | bytes | bytearray | int | float | complex | type):
        return sys.getsizeof(value, 64)
    if isinstance(value, memoryview):
        return value.nbytes
    if hasattr(value, "element_size") and hasattr(value, "nelement"):  # a torch tensor
        return int(value.element_size() * value.nelement()) + 64
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes + 64
    if hasattr(value, "memory_usage") and hasattr(value, "columns"):  # a pandas frame
        return int(value.memory_usage(deep=True).sum()) + 64
    if hasattr(value, "estimated_size"):  # a Polars frame
        return int(value.estimated_size()) + 64
    return None


def _sampled(items: list[Any], seen: set[int], depth: int) -> int:
    if len(items) <= _SAMPLED:
        return sum(_measured(item, seen, depth - 1) for item in items)
    step = len(items) / _SAMPLED
    some: Iterable[Any] = (items[int(n * step)] for n in range(_SAMPLED))
    return int(sum(_measured(item, seen, depth - 1) for item in some) * step)
