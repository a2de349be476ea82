"""The ARPA format of n-gram models, as KenLM, SRILM and others write it."""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.kernels.ngram_table import NgramTable, first_keys, longer_keys
from tamis.kernels.text_units import LINE_BEGIN, LINE_END, UNKNOWN, hash_units, unit_hash

__all__ = ["is_arpa", "read_arpa"]

_BLOCK_LINES: Final = 200_000
_MARKS: Final = {b"<s>": LINE_BEGIN, b"</s>": LINE_END, b"<unk>": UNKNOWN, b"<UNK>": UNKNOWN}
_SECTION: Final = re.compile(rb"\\(\d+)-grams:\s*")
_UNLIKELY: Final = -100.0
"""The logarithm of the probability of a word that the model does not know, if it says nothing of such words."""


def is_arpa(path: str) -> bool:
    """Whether a file is in the ARPA format, by its first line that is not blank."""
    try:
        with _opened(path) as file:
            first = next((line.strip() for line in itertools.islice(file, 1000) if line.strip()), b"")
    except (OSError, EOFError):
        return False
    return first == b"\\data\\" or (first.startswith((b"\\", b"#")) and path.endswith((".arpa", ".arpa.gz")))


def read_arpa(path: str) -> NgramTable:
    """The model of a file.

    Args:
        path: The file, plain or compressed with gzip.
    """
    keys: list[NDArray[np.uint64]] = []
    likely: list[NDArray[np.float64]] = []
    backoffs: list[NDArray[np.float64]] = []
    is_closed, before = True, np.zeros(0, np.uint64)
    order = 0
    for n, blocks in _sections(path):
        order = n
        found, shorter = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        for number, lines in blocks:
            words, probabilities, weights = _columns(path, number, lines)
            units = _units(path, number, words, n)
            key = first_keys(units[:, -1])
            for place in range(n - 2, -1, -1):
                if place == 0:
                    shorter.append(key)
                key = longer_keys(key, units[:, place])
            found.append(key)
            likely.append(probabilities)
            backoffs.append(weights)
        own = np.concatenate(found)
        if n == 1 and not np.isin(first_keys(np.array([UNKNOWN], np.uint64)), own).any():
            own = np.concatenate([own, first_keys(np.array([UNKNOWN], np.uint64))])
            likely.append(np.array([_UNLIKELY]))
            backoffs.append(np.zeros(1))
        if n > 1:
            is_closed &= bool(np.isin(np.concatenate(shorter), before).all())
        keys.append(own)
        before = own
    if not order:
        raise DataError("it has no n-grams", path=path, hint="A model in the ARPA format begins with \\data\\.")
    whole = (np.concatenate(keys), np.concatenate(likely), np.concatenate(backoffs))
    return NgramTable.build(order, *whole, is_closed=is_closed, exact=True)


def _opened(path: str) -> IO[bytes]:
    if path.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return Path(path).open("rb")


def _sections(path: str) -> Iterator[tuple[int, Iterator[tuple[int, list[bytes]]]]]:
    """Each n with its lines, in blocks, each with the number of its first line."""
    with _opened(path) as file:
        lines = enumerate(file, start=1)
        line = next((text for _, text in lines if _SECTION.fullmatch(text)), b"")
        while line:
            match = _SECTION.fullmatch(line)
            assert match is not None
            ended: list[bytes] = []
            yield int(match[1]), _blocks(lines, ended)
            line = ended[0] if ended and _SECTION.fullmatch(ended[0]) else b""


def _blocks(lines: Iterator[tuple[int, bytes]], ended: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The lines up to the next section, which goes to ``ended``."""
    held: list[bytes] = []
    first = 0
    for number, line in lines:
        if line.startswith(b"\\") and b"\t" not in line:
            ended.append(line)
            break
        if not line.strip():
            continue
        first = first or number
        held.append(line.rstrip(b"\r\n"))
        if len(held) == _BLOCK_LINES:
            yield first, held
            held, first = [], 0
    if held:
        yield first, held


def _columns(path: str, number: int, lines: list[bytes]) -> tuple[pa.Array, NDArray[np.float64], NDArray[np.float64]]:
    parts = pc.split_pattern(pa.array(lines, pa.large_binary()), b"\t")
    lengths = np.asarray(parts.value_lengths())
    if lengths.min() < 2 or lengths.max() > 3:
        bad = int(np.flatnonzero((lengths < 2) | (lengths > 3))[0])
        raise DataError(
            "a line of an n-gram has a number, words and perhaps another number, with tabs between",
            path=path,
            line=number + bad,
        )
    starts = np.asarray(parts.offsets)[:-1]
    values = parts.values
    weights = np.zeros(len(lines))
    has_weight = np.flatnonzero(lengths == 3)
    try:
        likely = np.asarray(values.take(pa.array(starts)).cast(pa.string()).cast(pa.float64()))
        weights[has_weight] = np.asarray(
            values.take(pa.array(starts[has_weight] + 2)).cast(pa.string()).cast(pa.float64())
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"a probability is not a number: {error}", path=path, line=number) from error
    return values.take(pa.array(starts + 1)), likely, weights


def _units(path: str, number: int, words: pa.Array, n: int) -> NDArray[np.uint64]:
    hashes, counts = hash_units(words, "word")
    if (counts != n).any():
        bad = int(np.flatnonzero(counts != n)[0])
        raise DataError(f"there are {counts[bad]} words in an n-gram of {n}", path=path, line=number + bad)
    for word, mark in _MARKS.items():
        hashes[hashes == np.uint64(unit_hash(word))] = mark
    return hashes.reshape(-1, n)
