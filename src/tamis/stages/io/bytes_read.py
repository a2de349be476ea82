"""How many bytes of its input this thread has read, for progress displays."""

from __future__ import annotations

import threading

__all__ = ["bytes_read", "count_bytes", "forget_bytes"]


class _Counter(threading.local):
    count: int = 0


_COUNTER = _Counter()


def count_bytes(nbytes: int) -> None:
    """Count bytes of a file that were read, as they are in the file: compressed ones, if it is compressed."""
    _COUNTER.count += nbytes


def bytes_read() -> int:
    """The bytes counted since :func:`forget_bytes`.

    >>> forget_bytes()
    >>> count_bytes(5)
    >>> bytes_read()
    5
    """
    return _COUNTER.count


def forget_bytes() -> None:
    """Start counting again from zero."""
    _COUNTER.count = 0
