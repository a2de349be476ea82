"""Filters: which documents to keep, and why the others go."""

from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.fasttext import FastTextLangId, FastTextQualityFilter
from tamis.stages.text.filters.fineweb import (
    DuplicateLineCharactersFilter,
    LinePunctuationFilter,
    NewlinesToWordsFilter,
    ShortLinesFilter,
)
from tamis.stages.text.filters.heuristic import (
    BoilerPlateStringFilter,
    BulletsFilter,
    CommonEnglishWordsFilter,
    EllipsisFilter,
    IncompleteStoryFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    PornographicUrlsFilter,
    PunctuationFilter,
    SubstringFilter,
    SymbolsToWordsFilter,
    UrlsFilter,
    WhiteSpaceFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)
from tamis.stages.text.filters.histogram import HistogramFilter
from tamis.stages.text.filters.language import LanguageFilter, ScriptFilter
from tamis.stages.text.filters.phrases import (
    BadWordsFilter,
    CurlyBracketFilter,
    EllipsesToWordsFilter,
    HashesToWordsFilter,
    PlaceholderTextFilter,
    SentenceCountFilter,
    StopWordsFilter,
)
from tamis.stages.text.filters.repetition import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
)
from tamis.stages.text.filters.score_filter import Filter, Score, ScoreFilter
from tamis.stages.text.filters.token import TokenCountFilter

__all__ = [
    "BadWordsFilter",
    "BoilerPlateStringFilter",
    "BulletsFilter",
    "CommonEnglishWordsFilter",
    "CurlyBracketFilter",
    "DocumentFilter",
    "DuplicateLineCharactersFilter",
    "EllipsesToWordsFilter",
    "EllipsisFilter",
    "FastTextLangId",
    "FastTextQualityFilter",
    "Filter",
    "HashesToWordsFilter",
    "HistogramFilter",
    "IncompleteStoryFilter",
    "LanguageFilter",
    "LinePunctuationFilter",
    "LongWordFilter",
    "MeanWordLengthFilter",
    "NewlinesToWordsFilter",
    "NonAlphaNumericFilter",
    "NumbersFilter",
    "ParenthesesFilter",
    "PlaceholderTextFilter",
    "PornographicUrlsFilter",
    "PunctuationFilter",
    "RepeatedLinesByCharFilter",
    "RepeatedLinesFilter",
    "RepeatedParagraphsByCharFilter",
    "RepeatedParagraphsFilter",
    "RepeatingDuplicateNGramsFilter",
    "RepeatingTopNGramsFilter",
    "Score",
    "ScoreFilter",
    "ScriptFilter",
    "SentenceCountFilter",
    "ShortLinesFilter",
    "StopWordsFilter",
    "SubstringFilter",
    "SymbolsToWordsFilter",
    "TokenCountFilter",
    "UrlsFilter",
    "WhiteSpaceFilter",
    "WordCountFilter",
    "WordsWithoutAlphabetsFilter",
]
