"""Scores texts and applies a chain of checks to them, for the heuristic filters.

The work is done by the native kernel :mod:`tamis.kernels.sources.heuristics`; see there how.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import measures, native, unicode_properties
from tamis.kernels.utf8 import WHITE_SPACE, Utf8

__all__ = [
    "BULLETS",
    "COMMON_WORDS",
    "ELLIPSES",
    "LOREM_IPSUM",
    "POLICIES",
    "Check",
    "Checked",
    "ranges_in",
    "run_checks",
]

BULLETS = "•‣⁃⁌⁍∙○●◘◦⦾⦿"  # noqa: RUF001 - these are bullets
COMMON_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
ELLIPSES = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
"""Marks for omitted text."""

LOREM_IPSUM = "lorem ipsum"
POLICIES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "privacy overview",
    "use of cookies",
    "use cookies",
    "privacy & cookies policy",
    "privacy and cookies policy",
    # Notices that a widely used plug-in for web sites puts on every page.
    "necessary cookies are absolutely essential for the website to function properly. this category only includes "
    "cookies that ensures basic functionalities and security features of the website. these cookies do not store any "
    "personal information.",
    "any cookies that may not be particularly necessary for the website to function and is used specifically to "
    "collect user personal data via analytics, ads, other embedded contents are termed as non-necessary cookies. it "
    "is mandatory to procure user consent prior to running these cookies on your website.",
    "if you continue to browse this site without changing your cookie settings, you agree to this use. acceptread more",
)
"""Phrases of small print, in lower case."""

_ANCHORS = ("lorem", "cookie", "privacy", "terms of")
"""Every phrase above contains one of these."""

SENTENCE_ENDS = frozenset("\"'”’»›…")  # noqa: RUF001 - closing quotation marks
"""Characters that may end a sentence, in addition to Unicode's sentence terminals."""

_KEPT_SCRATCH_BYTES = 64 << 20
_LONGEST_NGRAM = 1 << 40
"""More words than any text has."""

_SCRATCH = threading.local()


@dataclass(frozen=True)
class Check:
    """A score, which is a measure or a ratio of two, and its bounds.

    Args:
        numerator: One of :mod:`tamis.kernels.measures`.
        denominator: The measure to divide by, if any.
        empty: The score of a text whose denominator is zero.
        highest: The highest possible score; a higher one counts as this.
        low: The lowest score that is kept.
        high: The highest score that is kept.
        invert: Whether to keep the scores outside these bounds instead.
    """

    numerator: int
    denominator: int | None = None
    empty: float = 0.0
    highest: float = math.inf
    low: float = -math.inf
    high: float = math.inf
    invert: bool = False

    def __hash__(self) -> int:
        return hash((self.numerator, self.low, self.high))  # enough to tell checks apart, and fast


@dataclass(frozen=True)
class Checked:
    """The result of applying checks to texts.

    Args:
        scores: For each check, the scores of the texts; undefined for a text that failed an earlier check.
        failed: For each text, the number of the check that it failed; -1 if it failed none.
    """

    scores: NDArray[np.float64]
    failed: NDArray[np.int64]


def run_checks(texts: Utf8, rows: NDArray[np.int64], checks: Sequence[Check]) -> Checked | None:
    """Apply the checks to some of the texts; each check to those that passed the checks before it.

    ``None`` as long as the kernel is not compiled; see :func:`tamis.kernels.native.load`.
    """
    kernel = native.load("heuristics")
    if kernel is None:
        return None
    rows = np.ascontiguousarray(rows, np.int64)
    scores = np.zeros((len(checks), len(rows)), np.float64)
    failed = np.empty(len(rows), np.int64)
    arguments = (*_program(tuple(checks)), *_characters(), _vocabulary(), *_phrases())
    needed = np.zeros(1, np.int64)
    done = 0
    data = np.ascontiguousarray(texts.data) if len(texts.data) else np.zeros(1, np.uint8)
    offsets = np.ascontiguousarray(texts.offsets)
    while True:
        scratch = _scratch(int(needed[0]))
        done = kernel(data, offsets, rows, len(rows), done, *arguments, scratch, len(scratch), scores, failed, needed)
        if done == len(rows):
            return Checked(scores, failed)


def ranges_in(written: str) -> Iterator[tuple[int, int]]:
    """The ranges of a property in :mod:`tamis.kernels.unicode_properties`: the begin and end of each.

    >>> list(ranges_in("41+2 61+0"))
    [(65, 68), (97, 98)]
    """
    for item in written.split():
        first, _, following = item.partition("+")
        yield int(first, 16), int(first, 16) + int(following, 16) + 1


@functools.lru_cache(maxsize=64)
def _program(checks: tuple[Check, ...]) -> tuple[int, NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], int]:
    """The checks as the kernel takes them."""
    wanted = {ngram for check in checks if (ngram := measures.ngram_of(check.numerator)) is not None}
    sizes = sorted({n for n, _ in wanted})
    operands = [
        (_numerator(check.numerator, sizes), -1 if check.denominator is None else check.denominator) for check in checks
    ]
    values = [(check.empty, check.highest, check.low, check.high, float(check.invert)) for check in checks]
    ngrams = [(min(n, _LONGEST_NGRAM), (n, True) in wanted) for n in sizes]
    return (
        len(checks),
        np.array(operands, np.int64).reshape(-1),
        np.array(values, np.float64).reshape(-1),
        np.array(ngrams, np.int64).reshape(-1),
        len(sizes),
    )


def _numerator(measure: int, sizes: list[int]) -> int:
    """The number of a measure in the kernel, which numbers n-grams by their place among the requested ones."""
    ngram = measures.ngram_of(measure)
    if ngram is None:
        return measure
    n, is_top = ngram
    return measures.MEASURES + 2 * sizes.index(n) + (0 if is_top else 1)


def _scratch(needed: int) -> NDArray[np.uint8]:
    """Scratch memory of this thread. It is kept for the next call unless it is very large."""
    kept: NDArray[np.uint8] | None = getattr(_SCRATCH, "memory", None)
    if kept is not None and len(kept) >= needed:
        return kept
    memory = np.empty(max(needed * 5 // 4, 1 << 20), np.uint8)
    if len(memory) <= _KEPT_SCRATCH_BYTES:
        _SCRATCH.memory = memory
    return memory


@functools.cache
def _characters() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The kind of each character, in blocks of 256 characters: the block of each, and the different blocks."""
    kinds = np.zeros(0x110000, np.uint8)
    for begin, end in ranges_in(unicode_properties.ALPHABETIC):
        kinds[begin:end] |= measures.IS_LETTER
    for begin, end in ranges_in(unicode_properties.SENTENCE_TERMINAL):
        kinds[begin:end] |= measures.ENDS_SENTENCE
    for begin, end in ranges_in(unicode_properties.DECIMAL):
        # The decimal digits of this Python's str.isdecimal(), which is the definition.
        kinds[[point for point in range(begin, end) if chr(point).isdecimal()]] |= measures.IS_DIGIT
    for flag, members in (
        (measures.IS_SPACE, WHITE_SPACE),
        (measures.IS_BULLET, BULLETS),
        (measures.IS_PARENTHESIS, "⟨⟩"),
        (measures.ENDS_SENTENCE, SENTENCE_ENDS),
    ):
        kinds[[ord(member) for member in members]] |= flag
    every = kinds.tobytes()
    numbers: dict[bytes, int] = {}
    blocks = [numbers.setdefault(every[at : at + 256], len(numbers)) for at in range(0, len(every), 256)]
    return np.array(blocks, np.uint8), np.frombuffer(b"".join(numbers), np.uint8).copy()


@functools.cache
def _vocabulary() -> NDArray[np.uint64]:
    """A hash table of the common words and ellipses: a multiplier that spreads them over 32 places, words, kinds."""
    kinds = {word: measures.COMMON | measures.FIRST_COMMON << i for i, word in enumerate(sorted(COMMON_WORDS))}
    kinds |= {mark: measures.SYMBOL for mark in ELLIPSES if " " not in mark}
    keys = {int.from_bytes(word.encode(), "little"): kind for word, kind in kinds.items()}
    multiplier = 1
    while True:
        multiplier = (multiplier * 6364136223846793005 + 1442695040888963407) % 2**64
        places = {key: (key * multiplier % 2**64) >> 59 for key in keys}
        if len(set(places.values())) == len(keys):
            break
    table = np.zeros(65, np.uint64)
    table[0] = multiplier
    for key, place in places.items():
        table[1 + place], table[33 + place] = key, keys[key]
    return table


@functools.cache
def _phrases() -> tuple[NDArray[np.uint8], NDArray[np.int64], int, int]:
    phrases = [phrase.encode() for phrase in (*_ANCHORS, LOREM_IPSUM, *POLICIES)]
    ends = np.cumsum([len(phrase) for phrase in phrases], dtype=np.int64)
    return np.frombuffer(b"".join(phrases), np.uint8).copy(), ends, len(phrases), len(_ANCHORS)
