"""The memory budget of a deduplication stage."""

from __future__ import annotations

import os
from typing import Final

from tamis.errors import PlanError
from tamis.sizes import byte_size, size_text

__all__ = ["DEFAULT_MEMORY", "memory_bytes", "memory_of_task"]

DEFAULT_MEMORY: Final = "2GiB"
"""How much memory a machine may take to find duplicates, unless another budget is given."""

LEAST_MEMORY = 64 * 2**20
"""With less, data would be cut into so many parts that a run would take forever."""


def memory_bytes(owner: str, memory_budget: int | str) -> int:
    """A memory budget in bytes; an error if it is too small to work with.

    >>> memory_bytes("LineDeduplication", "1GiB")
    1073741824
    """
    size = byte_size(memory_budget)
    if size < LEAST_MEMORY:
        raise PlanError(f"{owner}(memory_budget={memory_budget!r}): must be at least {size_text(LEAST_MEMORY)}")
    return size


def memory_of_task(memory_bytes: int) -> int:
    """The share of a machine's budget that each of the tasks has that run at the same time: one for each core.

    >>> memory_of_task(2**40) <= 2**40
    True
    """
    return max(1, memory_bytes // (os.cpu_count() or 1))
