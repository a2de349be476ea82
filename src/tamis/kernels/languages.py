"""Which languages texts are in, by groups of four letters and by scripts: the kernel and its definition in plain Python."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.signatures import PADDING, longest_near_end

__all__ = ["LanguageTables", "count_languages"]


@dataclass(frozen=True)
class LanguageTables:
    """What is known of languages. See the kernel for the form of each table."""

    characters: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    key_mask: int
    values: NDArray[np.uint32]
    languages: NDArray[np.int32]
    codes: tuple[str, ...]


def count_languages(data, offsets, ends, tables, sample, pieces):
    kernel = native.load("languages")
    results = np.empty((len(ends), 4), np.int64)
    kernel(
        *(data, np.ascontiguousarray(offsets), np.ascontiguousarray(ends), len(ends), len(data), sample, pieces),
        *(tables.characters, VOWELS, tables.slots, len(tables.slots) // 4 - 1, tables.key_mask),
        *(tables.values, len(tables.values), WEIGHTS, tables.languages, len(tables.codes)),
        *(np.empty(longest_near_end(offsets, len(data)) + 2 * PADDING, np.uint8), np.empty(320, np.uint8)),
        *(np.empty(768, np.int64), np.zeros(512, np.int64), np.empty(520, np.int64), np.empty(24, np.int64)),
        *(np.empty(2 * len(tables.codes), np.int64), results.reshape(-1)),
    )
    return results


def _weights():
    weights = np.ones((256, 3), np.uint8)
    row = 0
    for upper, lower in ((2, 2), (3, 1), (1, 3)):
        for high in range(1, 13):
            for low in range(1, high + 1):
                weights[row] = high, (upper * high + lower * low + 2) // 4, low
                row += 1
    return weights.reshape(-1)


WEIGHTS = _weights()
VOWELS = np.isin(np.arange(256), np.frombuffer(b"aeiouAEIOU", np.uint8)).astype(np.uint8)
