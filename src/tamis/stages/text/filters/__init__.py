"""Filters: which documents to keep, and why the others go.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.stages.text.filters.base import DocumentFilter
    from tamis.stages.text.filters.characters import (
        NonAlphaNumericFilter,
        NumbersFilter,
        ParenthesesFilter,
        PornographicUrlsFilter,
        SubstringFilter,
        UrlsFilter,
        WhiteSpaceFilter,
    )
    from tamis.stages.text.filters.fasttext import FastTextLangId, FastTextQualityFilter
    from tamis.stages.text.filters.fineweb import (
        DuplicateLineCharactersFilter,
        LinePunctuationFilter,
        NewlinesToWordsFilter,
        ShortLinesFilter,
    )
    from tamis.stages.text.filters.histogram import HistogramFilter
    from tamis.stages.text.filters.language import LanguageFilter, ScriptFilter
    from tamis.stages.text.filters.lines import (
        BoilerPlateStringFilter,
        BulletsFilter,
        EllipsisFilter,
        IncompleteStoryFilter,
        PunctuationFilter,
    )
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
    from tamis.stages.text.filters.words import (
        CommonEnglishWordsFilter,
        LongWordFilter,
        MeanWordLengthFilter,
        SymbolsToWordsFilter,
        WordCountFilter,
        WordsWithoutAlphabetsFilter,
    )

_MODULES = {
    "base": "DocumentFilter",
    "characters": (
        "NonAlphaNumericFilter NumbersFilter ParenthesesFilter PornographicUrlsFilter SubstringFilter UrlsFilter "
        "WhiteSpaceFilter"
    ),
    "fasttext": "FastTextLangId FastTextQualityFilter",
    "fineweb": "DuplicateLineCharactersFilter LinePunctuationFilter NewlinesToWordsFilter ShortLinesFilter",
    "histogram": "HistogramFilter",
    "language": "LanguageFilter ScriptFilter",
    "lines": "BoilerPlateStringFilter BulletsFilter EllipsisFilter IncompleteStoryFilter PunctuationFilter",
    "phrases": (
        "BadWordsFilter CurlyBracketFilter EllipsesToWordsFilter HashesToWordsFilter PlaceholderTextFilter "
        "SentenceCountFilter StopWordsFilter"
    ),
    "repetition": (
        "RepeatedLinesByCharFilter RepeatedLinesFilter RepeatedParagraphsByCharFilter RepeatedParagraphsFilter "
        "RepeatingDuplicateNGramsFilter RepeatingTopNGramsFilter"
    ),
    "score_filter": "Filter Score ScoreFilter",
    "token": "TokenCountFilter",
    "words": (
        "CommonEnglishWordsFilter LongWordFilter MeanWordLengthFilter SymbolsToWordsFilter WordCountFilter "
        "WordsWithoutAlphabetsFilter"
    ),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

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
