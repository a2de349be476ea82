"""Sizes as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{p}b": 1000**i for i, p in enumerate("kmgtp", start=1)}
_UNITS |= {f"{p}ib": 1024**i for i, p in enumerate("kmgtp", start=1)}


def parse_bytes(size: int | str) -> int:
    """A number of bytes: ``512``, ``"512MB"`` (10^6), ``"64MiB"`` (2^20).

    >>> parse_bytes("1.5KiB"), parse_bytes("2 GB"), parse_bytes(7)
    (1536, 2000000000, 7)
    """
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", size)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{size!r} is no size: write bytes as a number, or like 512MB (10^6 bytes) or 64MiB (2^20)")
    return int(float(match[1]) * unit)
