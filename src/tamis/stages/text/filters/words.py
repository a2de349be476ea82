"""Filters that measure the words of a text: ``text.split()``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.pieces import Pieces, equal_to_any, largest_of_pieces, sum_of_pieces, words
from tamis.kernels.utf8 import Utf8, measure, word_character_counts, word_counts
from tamis.stages.text.filters.base import ThresholdFilter, share

__all__ = [
    "ELLIPSES",
    "CommonEnglishWordsFilter",
    "LongWordFilter",
    "MeanWordLengthFilter",
    "SymbolsToWordsFilter",
    "WordCountFilter",
]

ELLIPSES = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
"""How a text shows that something is left out."""

_ELLIPSIS_WORDS = tuple(mark for mark in ELLIPSES if " " not in mark)
_COMMON_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_HASHES = re.compile("#+")


@dataclass
class WordCountFilter(ThresholdFilter):
    """Drop text with too few or too many words.

    Score: the number of words; 0 for an empty text.

    Args:
        min_words: The fewest words that are kept.
        max_words: The most words that are kept.
        lang: The language. Words are separated by white space in all but Chinese and Japanese.

    >>> WordCountFilter().score_document("one two")
    2
    """

    min_words: int = 50
    max_words: int = 100000
    lang: str = "en"
    name = "word_count"

    def __post_init__(self) -> None:
        _refuse_languages_without_spaces(self.lang, type(self).__name__)

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min_words, self.max_words

    def score_document(self, text: str) -> int:
        return len(text.split())

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return measure(column, word_counts)


@dataclass
class LongWordFilter(ThresholdFilter):
    """Drop text with an overlong word: minified code, base64, a missing space.

    Score: the length of the longest word, in characters; 0 for an empty text, which has no long word and is kept.
    The rule is C4's (Raffel et al., 2020).

    Args:
        max_word_length: The longest word that is kept, in characters.
        lang: The language. Words are separated by white space in all but Chinese and Japanese.

    >>> LongWordFilter().score_document("a long word")
    4
    """

    max_word_length: int = 1000
    lang: str = "en"
    name = "max_word_length"

    def __post_init__(self) -> None:
        _refuse_languages_without_spaces(self.lang, type(self).__name__)

    def bounds(self) -> tuple[float | None, float | None]:
        return None, self.max_word_length

    def score_document(self, text: str) -> int:
        return max(map(len, text.split()), default=0)

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        def score(block: Utf8) -> NDArray[np.int64]:
            found = words(block)
            return largest_of_pieces(found.lengths(block), found.counts)

        return measure(column, score)


@dataclass
class MeanWordLengthFilter(ThresholdFilter):
    """Drop text whose words are too short or too long on average.

    Score: the mean length of a word, in characters; 0.0 for an empty text. The rule is Gopher's (Rae et al., 2021).

    Args:
        min_mean_word_length: The lowest mean that is kept, in characters.
        max_mean_word_length: The highest mean that is kept, in characters.
        lang: The language. Words are separated by white space in all but Chinese and Japanese.

    >>> MeanWordLengthFilter().score_document("three words here")
    4.666666666666667
    """

    min_mean_word_length: float = 3
    max_mean_word_length: float = 10
    lang: str = "en"
    name = "mean_word_length"

    def __post_init__(self) -> None:
        _refuse_languages_without_spaces(self.lang, type(self).__name__)

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min_mean_word_length, self.max_mean_word_length

    def score_document(self, text: str) -> float:
        lengths = [len(word) for word in text.split()]
        return sum(lengths) / len(lengths) if lengths else 0.0

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return measure(column, lambda block: share(word_character_counts(block), word_counts(block), 0.0))


@dataclass
class SymbolsToWordsFilter(ThresholdFilter):
    """Drop text with too many words that are ellipses or mostly hash signs.

    Score: the share of words that are an ellipsis (``...``, ``[…]``, ...) or whose runs of ``#`` are more than half as
    many as their characters; 1.0 for a text without words. The rule is Gopher's (Rae et al., 2021).

    Args:
        max_symbol_to_word_ratio: The highest share that is kept, 0 to 1.
        lang: The language. Words are separated by white space in all but Chinese and Japanese.

    >>> SymbolsToWordsFilter().score_document("# a title ...")
    0.5
    """

    max_symbol_to_word_ratio: float = 0.1
    lang: str = "en"
    name = "symbol_to_word"

    def __post_init__(self) -> None:
        _refuse_languages_without_spaces(self.lang, type(self).__name__)

    def bounds(self) -> tuple[float | None, float | None]:
        return None, self.max_symbol_to_word_ratio

    def score_document(self, text: str) -> float:
        found = text.split()
        symbols = sum(word in ELLIPSES or len(_HASHES.findall(word)) / len(word) > 0.5 for word in found)
        return symbols / len(found) if found else 1.0

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        def score(block: Utf8) -> NDArray[np.float64]:
            found = words(block)
            symbols = equal_to_any(block, found, _ELLIPSIS_WORDS) | _mostly_hashes(block, found)
            return share(sum_of_pieces(symbols, found.counts), found.counts, 1.0)

        return measure(column, score)


@dataclass
class CommonEnglishWordsFilter(ThresholdFilter):
    """Keep text that has some of the commonest English words.

    Score: how many words are one of *the, be, to, of, and, that, have, with* in lower case; 0 for an empty text.
    The rule is Gopher's (Rae et al., 2021).

    Args:
        min_num_common_words: The fewest that are kept.
        stop_at_false: Count no further than ``min_num_common_words``, so that no score is higher.

    >>> CommonEnglishWordsFilter(stop_at_false=False).score_document("to be or not to be")
    4
    """

    min_num_common_words: int = 2
    stop_at_false: bool = True
    name = "common_english_words"

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min_num_common_words, None

    def score_document(self, text: str) -> int:
        count = sum(word in _COMMON_WORDS for word in text.split())
        return min(count, self.min_num_common_words) if self.stop_at_false else count

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        def score(block: Utf8) -> NDArray[np.int64]:
            found = words(block)
            counts = sum_of_pieces(equal_to_any(block, found, _COMMON_WORDS), found.counts)
            return np.minimum(counts, self.min_num_common_words) if self.stop_at_false else counts

        return measure(column, score)


def _mostly_hashes(block: Utf8, found: Pieces) -> NDArray[np.bool_]:
    """Which words have more runs of hash signs than half their characters."""
    mostly = np.zeros(len(found.starts), np.bool_)
    hashes = np.flatnonzero(block.data == ord("#"))
    if not len(hashes):
        return mostly
    in_word = np.searchsorted(found.starts, hashes, side="right") - 1
    begins_run = np.ones(len(hashes), np.bool_)
    begins_run[1:] = (np.diff(hashes) > 1) | (np.diff(in_word) > 0)
    with_hash, runs = np.unique(in_word[begins_run], return_counts=True)
    some = Pieces(found.starts[with_hash], found.ends[with_hash], runs)
    mostly[with_hash] = 2 * runs > some.lengths(block)
    return mostly


def _refuse_languages_without_spaces(lang: str, filter_name: str) -> None:
    if lang.lower() in ("zh", "ja"):
        raise ValueError(
            f"{filter_name}(lang={lang!r}): Chinese and Japanese do not put spaces between words, "
            "and tamis has no word splitter for them yet"
        )
