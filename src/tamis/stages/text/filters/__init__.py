"""Filters: which documents to keep, and why the others go.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
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

_HOMES = {
    "BadWordsFilter": "tamis.stages.text.filters.phrases",
    "BoilerPlateStringFilter": "tamis.stages.text.filters.heuristic",
    "BulletsFilter": "tamis.stages.text.filters.heuristic",
    "CommonEnglishWordsFilter": "tamis.stages.text.filters.heuristic",
    "CurlyBracketFilter": "tamis.stages.text.filters.phrases",
    "DocumentFilter": "tamis.stages.text.filters.base",
    "DuplicateLineCharactersFilter": "tamis.stages.text.filters.fineweb",
    "EllipsesToWordsFilter": "tamis.stages.text.filters.phrases",
    "EllipsisFilter": "tamis.stages.text.filters.heuristic",
    "FastTextLangId": "tamis.stages.text.filters.fasttext",
    "FastTextQualityFilter": "tamis.stages.text.filters.fasttext",
    "Filter": "tamis.stages.text.filters.score_filter",
    "HashesToWordsFilter": "tamis.stages.text.filters.phrases",
    "HistogramFilter": "tamis.stages.text.filters.histogram",
    "IncompleteStoryFilter": "tamis.stages.text.filters.heuristic",
    "LanguageFilter": "tamis.stages.text.filters.language",
    "LinePunctuationFilter": "tamis.stages.text.filters.fineweb",
    "LongWordFilter": "tamis.stages.text.filters.heuristic",
    "MeanWordLengthFilter": "tamis.stages.text.filters.heuristic",
    "NewlinesToWordsFilter": "tamis.stages.text.filters.fineweb",
    "NonAlphaNumericFilter": "tamis.stages.text.filters.heuristic",
    "NumbersFilter": "tamis.stages.text.filters.heuristic",
    "ParenthesesFilter": "tamis.stages.text.filters.heuristic",
    "PlaceholderTextFilter": "tamis.stages.text.filters.phrases",
    "PornographicUrlsFilter": "tamis.stages.text.filters.heuristic",
    "PunctuationFilter": "tamis.stages.text.filters.heuristic",
    "RepeatedLinesByCharFilter": "tamis.stages.text.filters.repetition",
    "RepeatedLinesFilter": "tamis.stages.text.filters.repetition",
    "RepeatedParagraphsByCharFilter": "tamis.stages.text.filters.repetition",
    "RepeatedParagraphsFilter": "tamis.stages.text.filters.repetition",
    "RepeatingDuplicateNGramsFilter": "tamis.stages.text.filters.repetition",
    "RepeatingTopNGramsFilter": "tamis.stages.text.filters.repetition",
    "Score": "tamis.stages.text.filters.score_filter",
    "ScoreFilter": "tamis.stages.text.filters.score_filter",
    "ScriptFilter": "tamis.stages.text.filters.language",
    "SentenceCountFilter": "tamis.stages.text.filters.phrases",
    "ShortLinesFilter": "tamis.stages.text.filters.fineweb",
    "StopWordsFilter": "tamis.stages.text.filters.phrases",
    "SubstringFilter": "tamis.stages.text.filters.heuristic",
    "SymbolsToWordsFilter": "tamis.stages.text.filters.heuristic",
    "TokenCountFilter": "tamis.stages.text.filters.token",
    "UrlsFilter": "tamis.stages.text.filters.heuristic",
    "WhiteSpaceFilter": "tamis.stages.text.filters.heuristic",
    "WordCountFilter": "tamis.stages.text.filters.heuristic",
    "WordsWithoutAlphabetsFilter": "tamis.stages.text.filters.heuristic",
}

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

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
