"""Filters that need no model: they measure the characters, words and lines of a text."""

from tamis.stages.text.filters.characters import (
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    PornographicUrlsFilter,
    SubstringFilter,
    UrlsFilter,
    WhiteSpaceFilter,
)
from tamis.stages.text.filters.lines import (
    BoilerPlateStringFilter,
    BulletsFilter,
    EllipsisFilter,
    IncompleteStoryFilter,
    PunctuationFilter,
)
from tamis.stages.text.filters.words import (
    CommonEnglishWordsFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)

__all__ = [
    "BoilerPlateStringFilter",
    "BulletsFilter",
    "CommonEnglishWordsFilter",
    "EllipsisFilter",
    "IncompleteStoryFilter",
    "LongWordFilter",
    "MeanWordLengthFilter",
    "NonAlphaNumericFilter",
    "NumbersFilter",
    "ParenthesesFilter",
    "PornographicUrlsFilter",
    "PunctuationFilter",
    "SubstringFilter",
    "SymbolsToWordsFilter",
    "UrlsFilter",
    "WhiteSpaceFilter",
    "WordCountFilter",
    "WordsWithoutAlphabetsFilter",
]
