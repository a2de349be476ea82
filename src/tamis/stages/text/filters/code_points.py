"""How many characters of each text are of a kind, for whole Arrow columns.

A kind is a table with one truth value for each code point of Unicode.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels.heuristics import ranges_in
from tamis.kernels.unicode_properties import ALPHABETIC

__all__ = ["alphabetic", "count_characters", "letters", "only"]

_CODE_POINTS = 0x110000


@functools.cache
def alphabetic() -> NDArray[np.bool_]:
    """The characters with the Unicode property ``Alphabetic``: what ``[[:alpha:]]`` is in Unicode regular expressions.

    Beside letters these are, for instance, the vowel signs of Indian scripts and Roman numerals such as ``Ⅳ``.

    >>> [bool(alphabetic()[ord(c)]) for c in "aéΩ日ि_1"]
    [True, True, True, True, True, False, False]
    """
    table = np.zeros(_CODE_POINTS, np.bool_)
    for begin, end in ranges_in(ALPHABETIC):
        table[begin:end] = True
    return table


@functools.cache
def letters() -> NDArray[np.bool_]:
    """The characters for which ``str.isalpha()`` holds.

    >>> [bool(letters()[ord(c)]) for c in "aé日ि_1"]
    [True, True, True, False, False, False]
    """
    return np.fromiter(map(str.isalpha, map(chr, range(_CODE_POINTS))), np.bool_, _CODE_POINTS)


@functools.cache
def only(characters: frozenset[str]) -> NDArray[np.bool_]:
    """Just these characters.

    >>> only(frozenset("ab")).nonzero()[0].tolist()
    [97, 98]
    """
    table = np.zeros(_CODE_POINTS, np.bool_)
    table[[ord(c) for c in characters]] = True
    return table


def count_characters(column: pa.ChunkedArray, kind: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many characters of each text are of the kind; 0 for a null.

    >>> count_characters(pa.chunked_array([["a1b", "日 1", None]]), letters()).tolist()
    [2, 1, 0]
    """
    counts = [_count(chunk, kind) for chunk in column.chunks]
    return np.concatenate(counts) if counts else np.zeros(0, np.int64)


def _count(texts: pa.Array, kind: NDArray[np.bool_]) -> NDArray[np.int64]:
    data, edges = _bytes_of(texts)
    raw = np.frombuffer(data, np.uint8)
    # An ASCII character is its byte: a table of 256 bytes says which of them count.
    plain = data.translate(kind[:128].astype(np.uint8).tobytes() + bytes(128))
    counts = _sums(np.frombuffer(plain, np.uint8), edges)
    leads = np.flatnonzero(raw >= 0xC0)  # the first bytes of all others
    if len(leads):
        found = leads[kind[_code_points(raw, leads)]]
        counts += np.diff(np.searchsorted(found, edges))
    return counts


def _bytes_of(texts: pa.Array) -> tuple[bytes, NDArray[np.int64]]:
    """The UTF-8 of some texts, one after the other, and where each begins; the last edge is the end."""
    texts = pc.fill_null(texts, "").cast(pa.large_string())
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset) if len(texts) else np.zeros(1, np.int64)
    first, last = int(edges[0]), int(edges[-1])
    return (data.slice(first, last - first).to_pybytes() if last > first else b""), edges - first


def _sums(values: NDArray[np.uint8], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the values between each edge and the next."""
    sums = np.zeros(len(edges) - 1, np.int64)
    filled = edges[1:] > edges[:-1]  # reduceat gives an empty part the value after it, not 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, edges[:-1][filled], dtype=np.int64)
    return sums


def _code_points(raw: NDArray[np.uint8], leads: NDArray[Any]) -> NDArray[np.uint32]:
    """The code points of the characters that begin at some bytes, which are not ASCII."""
    first = raw[leads].astype(np.uint32)
    second, third, fourth = (
        raw.take(leads + step, mode="clip").astype(np.uint32) & 0x3F for step in (1, 2, 3)
    )  # past the end of a character the bytes are not used
    of_two = (first & 0x1F) << 6 | second
    of_three = (first & 0x0F) << 12 | second << 6 | third
    of_four = (first & 0x07) << 18 | second << 12 | third << 6 | fourth
    points: NDArray[np.uint32] = np.where(first < 0xE0, of_two, np.where(first < 0xF0, of_three, of_four))
    return points
