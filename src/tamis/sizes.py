"""Sizes in bytes, written as a number or with a unit."""

from __future__ import annotations

import re

from tamis.errors import PlanError

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{p}b": 1000**i for i, p in enumerate("kmgtp", start=1)}
_UNITS |= {f"{p}ib": 1024**i for i, p in enumerate("kmgtp", start=1)}
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-zA-Z]*)\s*")


def byte_size(size: int | str) -> int:
    """A number of bytes, from a number or a text with a unit.

    Args:
        size: ``67108864``, ``"64MiB"`` (2**20 each) or ``"64MB"`` (10**6 each).

    >>> byte_size("64MiB"), byte_size("512 kB"), byte_size("1.5KiB"), byte_size(100)
    (67108864, 512000, 1536, 100)
    """
    number = size if isinstance(size, int) and not isinstance(size, bool) else _parsed(size)
    if number < 1:
        raise PlanError(f"{size!r} is not a valid size: it must be at least one byte")
    return number


def _parsed(size: object) -> int:
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise PlanError(
            f"{size!r} is not a valid size: write bytes as a number, or like 512MB (10^6 bytes) or 64MiB (2^20)"
        )
    return int(float(match[1]) * unit)


def size_text(nbytes: int) -> str:
    """A number of bytes as text, in a binary unit.

    >>> size_text(256 * 2**20), size_text(1500), size_text(12)
    ('256 MiB', '1.5 KiB', '12 B')
    """
    for power, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if nbytes >= 1024**power:
            return f"{nbytes / 1024**power:.1f}".removesuffix(".0") + f" {prefix}iB"
    return f"{nbytes} B"
