"""The scripts that texts are written in: Latin, Cyrillic, Han, ...

A script is named by its ISO 15924 code. Characters that many scripts share (spaces, digits, punctuation, combining
marks, emoji) belong to none and do not count: a text of digits alone has no script.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.script_table import SCRIPT_RANGES
from tamis.kernels.utf8 import CharacterSet, Utf8

__all__ = ["NO_SCRIPT", "SCRIPT_NAMES", "WRITING_SYSTEMS", "dominant_scripts", "script_of", "script_shares"]

NO_SCRIPT: Final = "Zyyy"
"""The code for text without a script, which ISO 15924 calls *undetermined*."""

SCRIPT_NAMES: Final = {code: name for code, (name, _) in SCRIPT_RANGES.items()}
"""The English name of each script, by its code."""

WRITING_SYSTEMS: Final = {
    "Hanb": ("Hani", "Bopo"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Hrkt": ("Hira", "Kana"),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}
"""ISO 15924 codes of writing systems, which no character has by itself, and the scripts they mix."""

_CODES: Final = (NO_SCRIPT, *SCRIPT_RANGES)
_LATIN: Final = _CODES.index("Latn")
_LETTERS: Final = CharacterSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def script_of(character: str) -> str:
    """The code of a character's script; :data:`NO_SCRIPT` if it has none.

    >>> script_of("ß"), script_of("語"), script_of("7")
    ('Latn', 'Hani', 'Zyyy')
    """
    return _CODES[int(_script_numbers()[ord(character)])]


def dominant_scripts(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.float64]]:
    """The script most characters of each text belong to, and their share of the characters that have a script.

    Between scripts with equally many characters, the code that is first in the alphabet wins. A text without any such
    character has the script :data:`NO_SCRIPT` and the share 0.0.

    Args:
        column: Texts. A null counts as an empty text.

    >>> codes, shares = dominant_scripts(pa.array(["Ein Wort, два слова", "123"]))
    >>> codes.to_pylist(), shares.round(2).tolist()
    (['Cyrl', 'Zyyy'], [0.53, 0.0])
    """
    codes, shares = [np.zeros(0, np.uint8)], [np.zeros(0)]
    for block in Utf8.from_arrow(column).blocks():
        texts, scripts, counts = _counts(block)
        totals = np.bincount(texts, counts, len(block))
        order = np.lexsort((scripts, -counts, texts))
        first = order[np.flatnonzero(np.diff(texts[order], prepend=-1))]  # the leading script of each text that has one
        found, share = np.zeros(len(block), np.uint8), np.zeros(len(block))
        found[texts[first]] = scripts[first]
        share[texts[first]] = counts[first] / totals[texts[first]]
        codes.append(found)
        shares.append(share)
    return pa.array(_CODES, pa.string()).take(pa.array(np.concatenate(codes))), np.concatenate(shares)


def script_shares(column: pa.Array | pa.ChunkedArray, scripts: Iterable[str]) -> NDArray[np.float64]:
    """For each text, the share of these scripts among the characters that have a script.

    0.0 for a text without such characters.

    Args:
        column: Texts. A null counts as an empty text.
        scripts: Codes of scripts or of writing systems.

    >>> script_shares(pa.array(["日本へ go", ""]), ["Jpan"]).tolist()
    [0.6, 0.0]
    """
    wanted = np.zeros(len(_CODES), np.bool_)
    wanted[[_CODES.index(code) for given in scripts for code in WRITING_SYSTEMS.get(given, (given,))]] = True
    shares = [np.zeros(0)]
    for block in Utf8.from_arrow(column).blocks():
        texts, found, counts = _counts(block)
        totals = np.bincount(texts, counts, len(block))
        hits = np.bincount(texts, counts * wanted[found], len(block))
        shares.append(np.divide(hits, totals, out=np.zeros(len(block)), where=totals > 0))
    return np.concatenate(shares)


def _counts(block: Utf8) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The number of characters by text and script: text, script and count of each pair that occurs."""
    letters = _LETTERS.counts(block)
    with_letters = np.flatnonzero(letters)
    if block.is_ascii:
        return with_letters, np.full(len(with_letters), _LATIN), letters[with_letters]
    positions, scripts = _beyond_ascii(block.data)
    texts = np.searchsorted(block.offsets, positions, side="right") - 1
    # Neighbours mostly have the same script, so only one entry of each run is sorted.
    pairs = texts << 8 | scripts
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    lengths = np.diff(starts, append=len(pairs))
    every_pair = np.concatenate([pairs[starts], with_letters << 8 | _LATIN])
    found, which = np.unique(every_pair, return_inverse=True)
    counts = np.bincount(which, np.concatenate([lengths, letters[with_letters]]), len(found)).astype(np.int64)
    return found >> 8, found & 0xFF, counts


def _beyond_ascii(data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where the characters of more than one byte that have a script begin, ascending, and their scripts."""
    table = _script_numbers()
    scripts = np.zeros(len(data), np.uint8)
    leads = np.flatnonzero(data >= 0xC0)
    lead = data[leads]
    for nbytes, chosen in (
        (2, leads[lead < 0xE0]),
        (3, leads[(lead >= 0xE0) & (lead < 0xF0)]),
        (4, leads[lead >= 0xF0]),
    ):
        code_points = data[chosen].astype(np.int32) & (0x7F >> nbytes)
        for i in range(1, nbytes):
            code_points = code_points << 6 | (data[chosen + i] & 0x3F)
        scripts[chosen] = table[code_points]
    positions = leads[scripts[leads] > 0]
    return positions, scripts[positions]


@functools.cache
def _script_numbers() -> NDArray[np.uint8]:
    """The script of every code point, as its place in the list of codes."""
    numbers = np.zeros(0x110000, np.uint8)
    for number, (_, ranges) in enumerate(SCRIPT_RANGES.values(), start=1):
        for run in ranges.split():
            first, _, last = run.partition("-")
            numbers[int(first, 16) : int(last or first, 16) + 1] = number
    return numbers
