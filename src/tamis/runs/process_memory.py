"""How much memory this process uses."""

from __future__ import annotations

import os
import sys

__all__ = ["peak_memory", "resident_memory"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_memory() -> int:
    """Resident memory of this process in bytes: now on Linux, the highest so far elsewhere, 0 where it is unknown.

    >>> resident_memory() <= peak_memory()
    True
    """
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - plain open is enough
            return min(int(file.read().split()[1]) * _PAGE_BYTES, peak_memory())
    except (OSError, ValueError, IndexError):
        return peak_memory()


def peak_memory() -> int:
    """Highest resident memory of this process in bytes; 0 where it cannot be read."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
