"""How many bytes of texts are in which language, by groups of four letters and by scripts.

This is the kernel :mod:`tamis.kernels.sources.languages`, which says how, and its definition in plain Python.
:mod:`tamis.models.cld2` has the tables.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.signatures import PADDING, longest_near_end

__all__ = ["KINDS", "LETTER_WEIGHTS", "LanguageTables", "ShareOfLetters", "count_letters", "quad_hash"]

KINDS: Final = {"Latn": 1, "other": 2, "one": 3, "Hani": 4, "Hans": 5, "Hant": 6, "kana": 7, "Hang": 8}
"""The kinds of letters: of Latin, of another alphabet that many languages use, of a script of one language, and CJK."""

_SAMPLE_BYTES: Final = 768
_PIECES: Final = 6
_SAMPLE_PERCENT: Final = 60
_PERCENT: Final = 40
_LEAST_LETTERS: Final = 200
_QUADS_PER_CHUNK: Final = 20
_RELIABLE_PERCENT: Final = 41
_LONGEST_WORD: Final = 200
_RESULTS: Final = 6
_VOWELS: Final = b"aeiouAEIOU"


def _letter_weights() -> NDArray[np.uint8]:
    """The points of three languages, by the lowest byte of a value.

    There are three groups, by whether the second is in the middle between the first and the third, or a quarter off.
    """
    groups = ((2, 2), (3, 1), (1, 3))
    pairs = [(high, low) for high in range(1, 13) for low in range(1, high + 1)]
    rows = [(high, (of_high * high + of_low * low + 2) // 4, low) for of_high, of_low in groups for high, low in pairs]
    return np.array(rows + [(1, 1, 1)] * (256 - len(rows)), np.uint8).reshape(-1)


LETTER_WEIGHTS: Final = _letter_weights()


@dataclass(frozen=True)
class LanguageTables:
    """What is known of the languages that groups of four letters speak for.

    Args:
        codes: The languages: Chinese, Chinese in traditional characters, Japanese, Korean, others; last, the unknown.
        characters: For each of the first 65,536 characters, its lower case (as long in UTF-8), from bit 16 on its kind
            (see :data:`KINDS`; 0 for no letter), and from bit 20 on the language of a script of one.
        slots: Buckets of four. Each has the upper bits of a hash, and in the others a place among the values.
        key_mask: Which bits are those of the hash.
        values: The place of their weights, and then three languages of eight bits, the first in bit 8 to 15.
        languages: Which language each is: 256 numbers for Latin letters, and then 256 for others.
    """

    codes: tuple[str, ...]
    characters: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    key_mask: int
    values: NDArray[np.uint32]
    languages: NDArray[np.int32]


@dataclass(frozen=True)
class ShareOfLetters:
    """For each text, the language of most of its letters.

    Args:
        language: The place of its code among those of the tables.
        nbytes: How many bytes of letters are in it.
        letters: How many bytes of letters there are.
        is_sure: Whether there is no doubt about the language.
    """

    language: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    letters: NDArray[np.int64]
    is_sure: NDArray[np.bool_]


def count_letters(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    ends: NDArray[np.int64],
    tables: LanguageTables,
    has_samples: bool = True,
) -> ShareOfLetters:
    """Which language most letters of each text are in.

    Args:
        data: UTF-8 bytes.
        offsets: Where each text begins, and as the last entry where the last one ends.
        ends: Where to stop reading each.
        tables: What is known of languages.
        has_samples: Whether to read 768 bytes of a longer text, from six places, and only if they leave doubt all.
    """
    sample = _SAMPLE_BYTES if has_samples else np.iinfo(np.int64).max
    kernel = native.load("languages")
    results = np.zeros((len(ends), _RESULTS), np.int64)
    if kernel is None:
        plain = _PlainCount(tables)
        for row, (begin, end) in enumerate(zip(offsets[:-1].tolist(), ends.tolist(), strict=True)):
            results[row] = plain.results(data[begin:end].tobytes(), sample)
    else:
        unknown = len(tables.codes) - 1
        kernel(
            *(data, np.ascontiguousarray(offsets), np.ascontiguousarray(ends), len(ends), len(data)),
            *(_PIECES, sample, _SAMPLE_PERCENT, _PERCENT, _LEAST_LETTERS),
            *(tables.characters, np.isin(np.arange(256), list(_VOWELS)).astype(np.uint8)),
            *(tables.slots, len(tables.slots) // 4 - 1, tables.key_mask, tables.values, len(tables.values)),
            *(LETTER_WEIGHTS, tables.languages, unknown),
            *(np.empty(longest_near_end(offsets, len(data)) + 2 * PADDING, np.uint8), np.empty(320, np.uint8)),
            *(np.empty(768, np.int64), np.zeros(512, np.int64), np.empty(520, np.int64), np.empty(24, np.int64)),
            *(np.empty(2 * unknown + 2, np.int64), results.reshape(-1)),
        )
    language, nbytes, _, _, letters, is_sure = results.T
    return ShareOfLetters(language, nbytes, letters, is_sure.astype(np.bool_))


class _PlainCount:
    """The plain definition: what the kernel does, text by text."""

    def __init__(self, tables: LanguageTables) -> None:
        self._tables = tables

    def results(self, text: bytes, sample: int) -> list[int]:
        if len(text) > sample:
            piece, stride = sample // _PIECES, len(text) // _PIECES
            found = self._count([(first, min(first + piece, len(text))) for first in range(0, len(text), stride)], text)
            if self._is_sure(found, _SAMPLE_PERCENT):
                return [*found, 1]
        found = self._count([(0, len(text))], text)
        return [*found, int(self._is_sure(found, _PERCENT))]

    @staticmethod
    def _is_sure(found: list[int], percent: int) -> bool:
        _, nbytes, weak, second, letters = found
        return letters >= _LEAST_LETTERS and nbytes > 0 and 100 * (nbytes - weak - second) >= percent * letters

    def _count(self, pieces: list[tuple[int, int]], text: bytes) -> list[int]:
        self._by_kind: Counter[int] = Counter()
        self._found: Counter[int] = Counter()
        self._weak: Counter[int] = Counter()
        self._chunks = [_Chunk(), _Chunk()]
        for begin, end in pieces:
            at = begin
            while 0 < at < end and text[at] != ord(" ") and text[at] < 0xE0:
                at += 1
            while at < end:
                first = at
                while at < end and (text[at] >= 0x80 or text[at : at + 1].isalpha()):
                    at += 1
                self._read_run(text[first:at])
                at += 1
        for script in (0, 1):
            self._close_chunk(script, self._by_kind[script + 1])
        han = sum(self._by_kind[KINDS[kind]] for kind in ("Hani", "Hans", "Hant"))
        kana, hangul = self._by_kind[KINDS["kana"]], self._by_kind[KINDS["Hang"]]
        reader = int(self._by_kind[KINDS["Hant"]] > self._by_kind[KINDS["Hans"]])
        reader = 2 if 10 * kana >= han and kana >= hangul else 3 if hangul > han else reader
        self._found.update({reader: han})
        self._found.update({2: kana})
        self._found.update({3: hangul})
        sizes = [self._found[language] for language in range(len(self._tables.codes) - 1)]
        top = sizes.index(max(sizes))
        second = max(size for language, size in enumerate(sizes) if language != top)
        return [top, sizes[top], self._weak[top], second, sum(self._by_kind.values())]

    def _read_run(self, run: bytes) -> None:
        at, is_ascii = 0, run.isascii()
        while at < len(run):
            word, kind = b"", 0
            while at < len(run) and len(word) < _LONGEST_WORD - (not is_ascii):
                lead = run[at]
                width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                code_point = lead if width == 1 else lead & 0xFF >> width + 1
                for byte in (run[at + 1 : at + width] + bytes(3))[: width - 1]:
                    code_point = code_point << 6 | byte & 63
                character = int(self._tables.characters[code_point]) if width < 4 else 0
                own = character >> 16 & 15
                if own != kind != 0:
                    break
                if at + width > len(run):
                    at = len(run)
                    break
                kind = own
                at += width
                self._by_kind[own] += width if own else 0
                if own in (1, 2):
                    lower = character & 0xFFFF
                    word += (
                        bytes([lower])
                        if width == 1
                        else bytes([0xC0 | lower >> 6, 0x80 | lower & 63])
                        if width == 2
                        else bytes([0xE0 | lower >> 12, 0x80 | lower >> 6 & 63, 0x80 | lower & 63])
                    )
                elif own == KINDS["one"]:
                    self._found[character >> 20] += width
            if word:
                self._read_word(word, kind - 1)

    def _read_word(self, word: bytes, script: int) -> None:
        chunk, before = self._chunks[script], self._by_kind[script + 1] - len(word)
        starts = [at for at, byte in enumerate(word) if byte & 0xC0 != 0x80]
        at = 0
        while at < len(word):
            following = [start for start in starts if start > at] + [len(word)] * 4
            value = quad_hash(word[at : following[3]], at == 0, following[3] == len(word))
            place = self._place(value)
            if place and value not in chunk.last:
                chunk.last = [value, chunk.last[0]]
                if chunk.hits == _QUADS_PER_CHUNK:
                    self._close_chunk(script, before)
                chunk.hits += 1
                entry = int(self._tables.values[place[0]])
                for number in range(3):
                    language = entry >> 8 * (number + 1) & 255
                    chunk.points[language] += int(LETTER_WEIGHTS[3 * (entry & 255) + number])
            at = following[3] if following[3] == len(word) else following[1]
            if at < len(word) and word[at] in _VOWELS:
                at += 1

    def _place(self, value: int) -> list[int]:
        """The place of the value of a hash, if it has one."""
        buckets, mask = len(self._tables.slots) // 4, self._tables.key_mask
        first = 4 * (value + (value >> 12) & 0xFFFFFFFF & buckets - 1)
        slot = 0
        for one in self._tables.slots[first : first + 4].tolist():
            slot |= one if not (one ^ value) & mask else 0
        return [slot & ~mask & 0xFFFFFFFF] if slot else []

    def _close_chunk(self, script: int, end: int) -> None:
        chunk = self._chunks[script]
        chunk.points.pop(0, None)
        ranked = chunk.points.most_common(2)
        size, chunk.begin = end - chunk.begin, end
        if ranked:
            language = int(self._tables.languages[256 * script + ranked[0][0]])
            self._found[language] += size
            lead = ranked[0][1] - (ranked[1][1] if len(ranked) > 1 else 0)
            if 100 * lead < _RELIABLE_PERCENT * min(max(chunk.hits * 5 // 8, 3), 16):
                self._weak[language] += size
        chunk.hits = 0
        chunk.points.clear()


class _Chunk:
    """Some groups of letters of one script, and the points they give to languages."""

    def __init__(self) -> None:
        self.begin = self.hits = 0
        self.last = [0, 0]
        self.points: Counter[int] = Counter()


def quad_hash(quad: bytes, is_first: bool, is_last: bool) -> int:
    """The hash of four letters of at most 12 bytes: another at the beginning and at the end of a word.

    >>> quad_hash(b"the", True, True) == quad_hash(b"the", True, False)
    False
    """
    one, two, three = (int.from_bytes(quad[at : at + 4], "little") for at in (0, 4, 8))
    value = one ^ one >> 3 ^ (0x4444 if is_first else 0) ^ (0x44440000 if is_last else 0)
    return (value + (two ^ two << 4 & 0xFFFFFFFF) + (three ^ three << 2 & 0xFFFFFFFF)) & 0xFFFFFFFF
