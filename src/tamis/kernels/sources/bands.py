"""The kernel that hashes the bands of signatures."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import K0, K1, K2
from tamis.kernels.sources.primitives import helper

__all__ = ["kernel"]


@helper
def hash_bands(signatures, row_count, band_count, band_size, hashes):
    """Each band of each row, with the number of the band."""
    at = 0
    for row in range(row_count):
        for band in range(band_count):
            h = uint64(band + 1) * K0
            for i in range(band_size):
                h = (h ^ uint64(signatures[at + i])) * K1
                h ^= h >> uint64(32)
            h *= K2
            hashes[row * band_count + band] = h ^ (h >> uint64(29))
            at += band_size


def kernel(narrow, wide, is_wide, row_count, band_count, band_size, hashes):
    """Hash the bands of signatures of 32 bits or, if ``is_wide``, of 64 bits. Returns 0."""
    if is_wide == 0:
        hash_bands(narrow, row_count, band_count, band_size, hashes)
    else:
        hash_bands(wide, row_count, band_count, band_size, hashes)
    return int64(0)
