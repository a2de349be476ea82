"""Removes repeated spans with a suffix array of the whole corpus: what ``benchmarks/substrings.py`` compares with.

    python benchmarks/peers/suffix_array.py DOCUMENTS MIN_BYTES

The documents are one file of UTF-8 texts with the byte 0xFF between them. Prints a line of JSON: processor seconds, peak
memory, bytes left, and a digest of the documents that are left. Needs NumPy; the suffix array is that of the package
``pydivsufsort`` if it is installed, else NumPy sorts the suffixes by doubling.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BETWEEN = 0xFF


def suffix_array(data: Any) -> Any:
    """The suffixes of some bytes, sorted: by prefixes of 1, 2, 4, ... bytes."""
    rank, length = data.astype(np.int64), 1
    while True:
        following = np.zeros_like(rank)
        following[:-length] = rank[length:] + 1
        order = np.lexsort((following, rank))
        changes = (np.diff(rank[order]) != 0) | (np.diff(following[order]) != 0)
        new = np.empty_like(rank)
        new[order] = np.append(0, np.cumsum(changes))
        rank, length = new, 2 * length
        if rank.max() == len(rank) - 1 or length >= len(rank):
            return order


def common_prefixes(data: Any, order: Any, most: int) -> Any:
    """How many bytes each suffix has in common with the one after it, up to a limit."""
    common = np.zeros(len(order) - 1, np.int64)
    open_pairs = np.arange(len(order) - 1)
    for depth in range(most):
        one, other = order[open_pairs] + depth, order[open_pairs + 1] + depth
        inside = (one < len(data)) & (other < len(data))
        open_pairs, one, other = open_pairs[inside], one[inside], other[inside]
        open_pairs = open_pairs[data[one] == data[other]]
        common[open_pairs] += 1
    return common


def without_repeats(data: Any, length: int) -> tuple[bytes, str]:
    """The documents without spans that occurred before, and how the suffixes were sorted."""
    try:
        import pydivsufsort
    except ImportError:
        order, how = suffix_array(data), "NumPy"
        common = common_prefixes(data, order, length)
    else:
        order, how = pydivsufsort.divsufsort(data), "pydivsufsort"
        common = pydivsufsort.kasai(data, order)[:-1]
    # Suffixes that begin with the same window are neighbours; the first of them in the corpus stays.
    starts = np.append(0, np.flatnonzero(common < length) + 1)
    is_repeat = np.ones(len(data), np.bool_)
    is_repeat[np.minimum.reduceat(order, starts)] = False
    del order, common, starts
    repeats = np.flatnonzero(is_repeat)
    del is_repeat
    borders = np.append(np.flatnonzero(data == BETWEEN), len(data))
    repeats = repeats[repeats + length <= borders[np.searchsorted(borders, repeats)]]
    if not len(repeats):
        return data.tobytes(), how
    is_new = np.append(True, np.diff(repeats) > length)
    begins, ends = repeats[is_new], repeats[np.append(is_new[1:], True)] + length
    # A character stays if one of its bytes does.
    padded = np.append(data, np.uint8(BETWEEN))
    for _ in range(3):
        begins += (padded[begins] & 0xC0) == 0x80
        ends -= (padded[ends] & 0xC0) == 0x80
    steps = np.zeros(len(data) + 1, np.int8)
    is_there = begins < ends
    steps[begins[is_there]] += 1
    steps[ends[is_there]] -= 1
    return data[np.cumsum(steps[:-1], dtype=np.int8) == 0].tobytes(), how


def peak_bytes() -> int:
    """The most memory that this process had. The figure of ``getrusage`` can be that of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def main(path: str, length: int) -> None:
    began = time.process_time()
    data = np.fromfile(path, np.uint8)
    left, how = without_repeats(data, length)
    seconds = time.process_time() - began
    documents = [document for document in left.split(bytes([BETWEEN])) if document]
    result = {
        "how": how,
        "seconds": seconds,
        "peak_bytes": peak_bytes(),
        "left": sum(map(len, documents)),
        "digest": hashlib.sha256(bytes([BETWEEN]).join(documents)).hexdigest(),
    }
    print(json.dumps(result))  # noqa: T201 - what the benchmark reads


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
