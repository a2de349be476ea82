"""Filters that measure the words of a text: ``text.split()``."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from tamis.kernels import measures, unicode_properties
from tamis.kernels.heuristics import COMMON_WORDS, ELLIPSES, ranges_in
from tamis.stages.text.filters.base import SHARE
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.words import get_word_splitter

__all__ = [
    "CommonEnglishWordsFilter",
    "LongWordFilter",
    "MeanWordLengthFilter",
    "SymbolsToWordsFilter",
    "WordCountFilter",
    "WordsWithoutAlphabetsFilter",
]

_HASHES = re.compile("#+")


@functools.cache
def letters() -> re.Pattern[str]:
    """Matches a letter: what Unicode calls alphabetic.

    >>> bool(letters().search("42é")), bool(letters().search("42 %"))
    (True, False)
    """
    return re.compile(f"[{''.join(f'{chr(a)}-{chr(b - 1)}' for a, b in ranges_in(unicode_properties.ALPHABETIC))}]")


class WordFilter(MeasuredFilter):
    """A filter that measures words. Its field ``lang`` says how they are found.

    Attributes:
        lang: The language: words are separated by white space in all but Chinese, Japanese and Thai, where a
            dictionary finds them (``tamis[segmentation]``), text by text and much more slowly.
    """

    lang: str

    def words(self, text: str) -> list[str]:
        """The words of a text."""
        return get_word_splitter(self.lang)(text.strip())

    @property
    def splits_at_spaces(self) -> bool:
        """Whether words are what ``str.split()`` gives."""
        return type(self).words is WordFilter.words and get_word_splitter(self.lang) is str.split

    def ratio(self) -> Ratio | None:
        return super().ratio() if self.splits_at_spaces else None


@dataclass
class WordCountFilter(WordFilter):
    """Drop text with too few or too many words.

    Score: the number of words; 0 for an empty text.

    Args:
        min_words: The fewest words that are kept.
        max_words: The most words that are kept.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> WordCountFilter().score_document("one two")
    2
    """

    min_words: int = 50
    max_words: int = 100000
    lang: str = "en"
    name = "word_count"
    measured = Ratio(measures.WORDS)

    def score_document(self, text: str) -> int:
        return len(self.words(text))


@dataclass
class LongWordFilter(WordFilter):
    """Drop text with an overlong word: minified code, base64, a missing space.

    Score: the length of the longest word, in characters; 0 for an empty text, which has no long word and is kept.
    The rule is C4's (Raffel et al., 2020).

    Args:
        max_word_length: The longest word that is kept, in characters.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> LongWordFilter().score_document("a long word")
    4
    """

    max_word_length: int = 1000
    lang: str = "en"
    name = "max_word_length"
    measured = Ratio(measures.LONGEST_WORD)

    def score_document(self, text: str) -> int:
        return max(map(len, self.words(text)), default=0)


@dataclass
class MeanWordLengthFilter(WordFilter):
    """Drop text whose words are too short or too long on average.

    Score: the mean length of a word, in characters, also of words without a letter; 0.0 for an empty text. The rule is
    Gopher's (Rae et al., 2021).

    Args:
        min_mean_word_length: The lowest mean that is kept, in characters.
        max_mean_word_length: The highest mean that is kept, in characters.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> MeanWordLengthFilter().score_document("three words here")
    4.666666666666667
    """

    min_mean_word_length: float = 3
    max_mean_word_length: float = 10
    lang: str = "en"
    name = "mean_word_length"
    measured = Ratio(measures.WORD_CHARACTERS, measures.WORDS, empty=0.0)

    def score_document(self, text: str) -> float:
        lengths = [len(word) for word in self.words(text) if word]
        return sum(lengths) / len(lengths) if lengths else 0.0


@dataclass
class SymbolsToWordsFilter(WordFilter):
    """Drop text with too many words that are ellipses or mostly hash signs.

    Score: the share of words that are an ellipsis (``...``, ``[…]``, ...) or whose runs of ``#`` are more than half as
    many as their characters; 1.0 for a text without words. The rule is Gopher's (Rae et al., 2021).

    Args:
        max_symbol_to_word_ratio: The highest share that is kept, 0 to 1.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> SymbolsToWordsFilter().score_document("# a title ...")
    0.5
    """

    max_symbol_to_word_ratio: float = 0.1
    lang: str = "en"
    name = "symbol_to_word"
    score_range = SHARE
    measured = Ratio(measures.SYMBOL_WORDS, measures.WORDS, empty=1.0)

    def score_document(self, text: str) -> float:
        found = self.words(text)
        symbols = sum(word in ELLIPSES or len(_HASHES.findall(word)) / len(word) > 0.5 for word in found)
        return symbols / len(found) if found else 1.0


@dataclass
class CommonEnglishWordsFilter(MeasuredFilter):
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

    def score_document(self, text: str) -> int:
        count = sum(word in COMMON_WORDS for word in text.split())
        return min(count, self.min_num_common_words) if self.stop_at_false else count

    def ratio(self) -> Ratio | None:
        return Ratio(measures.COMMON_WORDS, highest=self.min_num_common_words if self.stop_at_false else math.inf)


@dataclass
class WordsWithoutAlphabetsFilter(WordFilter):
    """Drop text with too many words that have no letter in them.

    Score: the share of words with a letter (what Unicode calls alphabetic); 0.0 for a text without words. The rule is
    Gopher's (Rae et al., 2021).

    Args:
        min_words_with_alphabets: The lowest share that is kept, 0 to 1.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> WordsWithoutAlphabetsFilter().score_document("24 hours")
    0.5
    """

    min_words_with_alphabets: float = 0.8
    lang: str = "en"
    name = "words_without_alphabets"
    score_range = SHARE
    measured = Ratio(measures.LETTER_WORDS, measures.WORDS, empty=0.0)

    def score_document(self, text: str) -> float:
        found = self.words(text)
        return sum(letters().search(word) is not None for word in found) / len(found) if found else 0.0
