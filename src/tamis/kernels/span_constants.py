"""Numbers in the hashes of :mod:`tamis.kernels.spans`: odd, without a pattern, and the same on every machine."""

from __future__ import annotations

from typing import Final

__all__ = ["PIECE_BASE", "PIECE_MIX", "PIECE_SPREAD", "WINDOW_BASES", "WINDOW_PRIME", "WINDOW_SPREAD"]

PIECE_BASE: Final = 0x5365E880A90F385F
"""The base of the polynomial that hashes short pieces, modulo 2^64."""

PIECE_MIX: Final = 0xD6E8FEB86659FD93
"""Spreads the lower bits of that hash over the upper ones, by which pieces are ordered."""

PIECE_SPREAD: Final = 0x9E3779B97F4A7C15
"""Makes the upper bits of an anchor's hash even: anchors are the smallest hashes."""

WINDOW_PRIME: Final = 2**61 - 1
"""Windows are hashed by two polynomials modulo this prime."""

WINDOW_BASES: Final = (0x174CA2A15581C7EB, 0x0D077097C5D98CE1)
"""The bases of the two polynomials, drawn at random."""

WINDOW_SPREAD: Final = 0x9E3779B97F4A7C15
"""Makes the upper bits of the first hash even, by which windows are sorted into parts."""
