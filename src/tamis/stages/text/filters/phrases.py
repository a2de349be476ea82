"""Filters that look for certain words, phrases and symbols in a text."""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import measures
from tamis.kernels.heuristics import COMMON_WORDS, LOREM_IPSUM
from tamis.kernels.utf8 import WHITE_SPACE
from tamis.stages.text.filters.base import NOT_NEGATIVE, DocumentFilter, ThresholdFilter, text_series
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.filters.words import WordFilter
from tamis.stages.text.words import WITHOUT_SPACES

__all__ = [
    "BadWordsFilter",
    "CurlyBracketFilter",
    "EllipsesToWordsFilter",
    "HashesToWordsFilter",
    "PlaceholderTextFilter",
    "SentenceCountFilter",
    "StopWordsFilter",
]

# These patterns mean the same to Python and to Polars, which knows fewer kinds of white space.
_SPACES = "".join(f"\\u{ord(space):04x}" for space in WHITE_SPACE)
_BLANKS = "".join(f"\\u{ord(space):04x}" for space in WHITE_SPACE if space != "\n")
_CLOSING = "\"'”’»›)\\]」』"  # noqa: RUF001 - what may stand between the end of a sentence and the space after it
_LINE = rf"[^{_SPACES}][^\n]*"
_INNER_END = rf"(?:[.!?…][{_CLOSING}]*[{_BLANKS}]+|[。！？][{_CLOSING}]*[{_BLANKS}]*)[^{_SPACES}a-z]"  # noqa: RUF001 - full width


class _PhraseFilter(ThresholdFilter):
    """Drops text with a phrase in it, in upper or lower case. Score: 1 where it is there, else 0."""

    _phrase: ClassVar[str]

    def bounds(self) -> tuple[float | None, float | None]:
        return None, 0

    def reason(self) -> str:
        return f"{self._phrase!r} in the text"

    def score_document(self, text: str) -> int:
        return int(self._phrase in text.lower())

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        # The phrases are in ASCII, and no character outside it becomes a part of one of them in lower case.
        found = text_series(column).str.contains_any([self._phrase], ascii_case_insensitive=True)
        return found.to_numpy().astype(np.int64)


@dataclass
class PlaceholderTextFilter(_PhraseFilter):
    """Drop text with "lorem ipsum" in it, in upper or lower case: pages that were never filled in.

    Score: 1 where it is there, else 0. The rule is C4's (Raffel et al., 2020).

    >>> PlaceholderTextFilter().score_document("Lorem ipsum dolor sit amet")
    1
    """

    name = "placeholder_text"
    _phrase: ClassVar[str] = LOREM_IPSUM


@dataclass
class CurlyBracketFilter(_PhraseFilter):
    """Drop text with a ``{`` in it: programs, which use it, rather than prose, which does not.

    Score: 1 where there is one, else 0. The rule is C4's (Raffel et al., 2020).

    >>> CurlyBracketFilter().score_document("int main() { }")
    1
    """

    name = "curly_bracket"
    _phrase: ClassVar[str] = "{"


@dataclass
class BadWordsFilter(ThresholdFilter):
    """Drop text with a word or phrase of a list in it, in upper or lower case.

    A word counts where no letter, digit or underscore stands right before or after it; in Chinese, Japanese and Thai,
    wherever it is. Score: 1 where there is one, else 0. The rule is C4's (Raffel et al., 2020), which used the *List
    of Dirty, Naughty, Obscene, and Otherwise Bad Words*. No list comes with tamis.

    Args:
        words: The words.
        words_file: A text file with more of them, one on each line.
        lang: The language, which says whether words have to stand by themselves.

    >>> BadWordsFilter(["damn"]).score_document("Damn! A dam."), BadWordsFilter(["dam"]).score_document("Damn!")
    (1, 0)
    """

    words: list[str] = field(default_factory=list)
    words_file: str | None = None
    lang: str = "en"
    name = "bad_words"

    def __post_init__(self) -> None:
        if isinstance(self.words, str):
            raise TypeError(f"BadWordsFilter(words={self.words!r}): give a list of words")
        if not self._all_words:
            raise ValueError("BadWordsFilter: no words are given, neither in words nor in words_file")

    def bounds(self) -> tuple[float | None, float | None]:
        return None, 0

    def reason(self) -> str:
        return "a word of the list of bad words"

    def score_document(self, text: str) -> int:
        return int(self._pattern.search(text.lower()) is not None)

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        import polars as pl

        texts, words = text_series(column), self._all_words
        # Few texts have one of the words even as a part of another: only those are searched word by word.
        suspects = texts.str.contains_any(words, ascii_case_insensitive=True)
        has_more_than_ascii = texts.str.len_bytes() != texts.str.len_chars()
        if has_more_than_ascii.any():
            lowered = pl.Series([text.lower() for text in texts.filter(has_more_than_ascii)], dtype=pl.String)
            suspects = suspects.scatter(has_more_than_ascii.arg_true(), lowered.str.contains_any(words))
        scores = np.zeros(len(texts), np.int64)
        scores[suspects.to_numpy()] = [self.score_document(text) for text in texts.filter(suspects)]
        return scores

    @functools.cached_property
    def _all_words(self) -> list[str]:
        words = list(self.words)
        if self.words_file is not None:
            try:
                words += Path(self.words_file).read_text(encoding="utf-8-sig").split("\n")
            except (OSError, UnicodeDecodeError) as e:
                raise ValueError(f"BadWordsFilter(words_file={self.words_file!r}): cannot be read: {e}") from e
        return list(dict.fromkeys(word.strip().lower() for word in words if word.strip()))

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        # The longest first: of alternatives, the first that fits is taken.
        words = "|".join(map(re.escape, sorted(self._all_words, key=len, reverse=True)))
        by_itself = self.lang.lower().replace("_", "-").partition("-")[0] not in WITHOUT_SPACES
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)" if by_itself else words)


@dataclass
class SentenceCountFilter(ThresholdFilter):
    """Drop text with too few sentences.

    A sentence ends at the end of a line, and at a run of ``. ! ? …`` (with closing quotation marks and brackets) where
    a space and something other than a small Latin letter follow; at ``。 ！ ？`` no space is needed. Score: the number
    of sentences; 0 for an empty text. The rule is C4's (Raffel et al., 2020), which had a trained model find them.

    Args:
        min_sentences: The fewest sentences that are kept.
        max_sentences: The most sentences that are kept; ``None``: any number.

    >>> SentenceCountFilter().score_document('"It is late." He yawned, e.g. twice.\\nThen he left!')
    3
    """  # noqa: RUF002 - the marks of Chinese and Japanese are meant

    min_sentences: int = 3
    max_sentences: int | None = None
    name = "sentence_count"
    score_range = NOT_NEGATIVE

    def score_document(self, text: str) -> int:
        return len(re.findall(_LINE, text)) + len(re.findall(_INNER_END, text))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        texts = text_series(column)
        return (texts.str.count_matches(_LINE) + texts.str.count_matches(_INNER_END)).to_numpy().astype(np.int64)


@dataclass
class StopWordsFilter(MeasuredFilter):
    """Keep text that has several of the commonest words.

    Score: how many different ones it has, in lower case and with white space around them; 0 for an empty text. This is
    how the rule reads in Gopher's paper (Rae et al., 2021);
    :class:`~tamis.stages.text.filters.CommonEnglishWordsFilter` counts every occurrence.

    Args:
        min_stop_words: The fewest that are kept.
        stop_words: The words; by default *the, be, to, of, and, that, have, with*.

    >>> StopWordsFilter().score_document("to be or not to be")
    2
    """

    min_stop_words: int = 2
    stop_words: list[str] = field(default_factory=lambda: sorted(COMMON_WORDS))
    name = "stop_words"

    def __post_init__(self) -> None:
        for word in self.stop_words:
            if word.split() != [word]:
                raise ValueError(f"StopWordsFilter(stop_words=...): {word!r} is not a single word")

    def score_document(self, text: str) -> int:
        return len({*text.split()} & {*self.stop_words})

    def ratio(self) -> Ratio | None:
        return Ratio(measures.DIFFERENT_COMMON_WORDS) if {*self.stop_words} == COMMON_WORDS else None

    @property
    def scores_columns(self) -> bool:
        return self._has_column_form("score_document", "score_column", DocumentFilter)

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        if self.ratio() is not None:
            return super().score_column(column)
        import polars as pl

        texts = text_series(column)
        # One search for each, but a search ends where it finds something, which in prose is soon.
        found = [
            texts.str.contains(rf"(?:\A|[{_SPACES}]){pl.escape_regex(word)}(?:[{_SPACES}]|\z)").cast(pl.Int64)
            for word in dict.fromkeys(self.stop_words)
        ]
        return functools.reduce(operator.add, found, pl.zeros(len(texts), pl.Int64, eager=True)).to_numpy()


class _SymbolFilter(WordFilter):
    """Drops text with too many of some symbols for its words."""

    _symbols: ClassVar[tuple[str, ...]]
    max_symbols_per_word: float

    def score_document(self, text: str) -> float:
        count = len(self.words(text))
        return sum(map(text.count, self._symbols)) / count if count else 1.0


@dataclass
class HashesToWordsFilter(_SymbolFilter):
    """Drop text with too many hash signs.

    Score: the number of ``#``, divided by the number of words; 1.0 for a text without words. This is how the rule reads
    in Gopher's paper (Rae et al., 2021); :class:`~tamis.stages.text.filters.SymbolsToWordsFilter` counts the words that
    are mostly hash signs.

    Args:
        max_symbols_per_word: The highest ratio that is kept.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> HashesToWordsFilter().score_document("#one #two three four")
    0.5
    """

    max_symbols_per_word: float = 0.1
    lang: str = "en"
    name = "hashes_to_words"
    measured = Ratio(measures.HASH_SIGNS, measures.WORDS, empty=1.0)
    _symbols: ClassVar[tuple[str, ...]] = ("#",)


@dataclass
class EllipsesToWordsFilter(_SymbolFilter):
    """Drop text with too many ellipses.

    Score: the number of ``...`` and ``…``, divided by the number of words; 1.0 for a text without words. This is how
    the rule reads in Gopher's paper (Rae et al., 2021); :class:`~tamis.stages.text.filters.SymbolsToWordsFilter` counts
    the words that are an ellipsis.

    Args:
        max_symbols_per_word: The highest ratio that is kept.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> EllipsesToWordsFilter().score_document("So... what now?")
    0.3333333333333333
    """

    max_symbols_per_word: float = 0.1
    lang: str = "en"
    name = "ellipses_to_words"
    measured = Ratio(measures.ELLIPSES, measures.WORDS, empty=1.0)
    _symbols: ClassVar[tuple[str, ...]] = ("...", "…")
