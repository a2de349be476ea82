"""What is measured in each document, and the bins that its values are counted in."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import measures
from tamis.stages.text import filters
from tamis.stages.text.filters.base import SHARE
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.words import get_sentences

BYTES: Final = "bytes"
CHARACTERS: Final = "characters"
WORDS: Final = "words"
LINES: Final = "lines"

LENGTHS: Final = (BYTES, CHARACTERS, WORDS, LINES)
"""The lengths that every document has, whatever filters there are."""


@dataclass
class _Length(MeasuredFilter):
    """A length, measured along with the filters' scores. It decides nothing."""

    name = "length"

    def bounds(self) -> tuple[float | None, float | None]:
        return None, None


class _Characters(_Length):
    name = CHARACTERS
    measured = Ratio(measures.CHARACTERS)

    def score_document(self, text: str) -> int:
        return len(text)


class _Words(_Length):
    name = WORDS
    measured = Ratio(measures.WORDS)

    def score_document(self, text: str) -> int:
        return len(text.split())


class _Lines(_Length):
    name = LINES
    measured = Ratio(measures.LINES)

    def score_document(self, text: str) -> int:
        return len(get_sentences(text))


def length_filters() -> list[MeasuredFilter]:
    """What measures the lengths of a text, but for its bytes, which are known anyway.

    >>> [length.score_document("one two\\n\\nthree") for length in length_filters()]
    [14, 3, 2]
    """
    return [_Characters(), _Words(), _Lines()]


def default_filters() -> list[MeasuredFilter]:
    """The heuristic filters with their default parameters; those of n-grams with Gopher's (Rae et al., 2021).

    >>> len(default_filters())
    33
    """
    return [
        filters.WordCountFilter(),
        filters.MeanWordLengthFilter(),
        filters.LongWordFilter(),
        filters.CommonEnglishWordsFilter(stop_at_false=False),  # else no score would be above the threshold
        filters.WordsWithoutAlphabetsFilter(),
        filters.SymbolsToWordsFilter(),
        filters.NonAlphaNumericFilter(),
        filters.NumbersFilter(),
        filters.WhiteSpaceFilter(),
        filters.ParenthesesFilter(),
        filters.UrlsFilter(),
        filters.PornographicUrlsFilter(),
        filters.BulletsFilter(),
        filters.PunctuationFilter(),
        filters.EllipsisFilter(),
        filters.BoilerPlateStringFilter(),
        filters.RepeatedLinesFilter(),
        filters.RepeatedLinesByCharFilter(),
        filters.RepeatedParagraphsFilter(),
        filters.RepeatedParagraphsByCharFilter(),
        *(filters.RepeatingTopNGramsFilter(n, ratio) for n, ratio in ((2, 0.2), (3, 0.18), (4, 0.16))),
        *(
            filters.RepeatingDuplicateNGramsFilter(n, ratio)
            for n, ratio in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
        ),
        filters.LinePunctuationFilter(),
        filters.ShortLinesFilter(),
        filters.DuplicateLineCharactersFilter(),
        filters.NewlinesToWordsFilter(),
    ]


@functools.cache
def bin_edges(is_share: bool) -> NDArray[np.float64]:
    """The lower edges of the bins of a measure, ascending; the last bin has no end.

    Args:
        is_share: Whether its values are from 0 to 1. Others, from 0 up, have bins that grow with the value: a tenth up
            to 20, whole numbers up to 100, then a hundredth of a decade.
    """
    if is_share:
        return np.arange(1001) / 1000
    small, whole = np.arange(200) / 10, np.arange(20, 100)
    return np.concatenate([small, whole, np.unique(np.round(np.geomspace(100, 1e12, 1001)))])


def bin_of(values: NDArray[np.float64], is_share: bool) -> NDArray[np.int64]:
    """The bin that each value is in.

    >>> bin_of(np.array([0.0, 0.25, 1.0]), True).tolist(), bin_of(np.array([0.0, 25.0]), False).tolist()
    ([0, 250, 1000], [0, 205])
    """
    edges = bin_edges(is_share)
    places: NDArray[np.int64] = np.searchsorted(edges, values, side="right") - 1
    return np.maximum(places, 0)


def is_share(one: MeasuredFilter) -> bool:
    """Whether a filter's scores are from 0 to 1.

    >>> from tamis.stages.text.filters import MeanWordLengthFilter, NewlinesToWordsFilter, UrlsFilter
    >>> is_share(UrlsFilter()), is_share(MeanWordLengthFilter()), is_share(NewlinesToWordsFilter())
    (True, False, False)
    """
    return one.score_range == SHARE
