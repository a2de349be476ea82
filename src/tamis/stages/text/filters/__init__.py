"""Filters: which documents to keep, and why the others go.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.stages.text.filters.base import DocumentFilter as DocumentFilter
    from tamis.stages.text.filters.characters import NonAlphaNumericFilter as NonAlphaNumericFilter
    from tamis.stages.text.filters.characters import NumbersFilter as NumbersFilter
    from tamis.stages.text.filters.characters import ParenthesesFilter as ParenthesesFilter
    from tamis.stages.text.filters.characters import PornographicUrlsFilter as PornographicUrlsFilter
    from tamis.stages.text.filters.characters import SubstringFilter as SubstringFilter
    from tamis.stages.text.filters.characters import UrlsFilter as UrlsFilter
    from tamis.stages.text.filters.characters import WhiteSpaceFilter as WhiteSpaceFilter
    from tamis.stages.text.filters.fasttext import FastTextLangId as FastTextLangId
    from tamis.stages.text.filters.fasttext import FastTextQualityFilter as FastTextQualityFilter
    from tamis.stages.text.filters.fineweb import DuplicateLineCharactersFilter as DuplicateLineCharactersFilter
    from tamis.stages.text.filters.fineweb import LinePunctuationFilter as LinePunctuationFilter
    from tamis.stages.text.filters.fineweb import NewlinesToWordsFilter as NewlinesToWordsFilter
    from tamis.stages.text.filters.fineweb import ShortLinesFilter as ShortLinesFilter
    from tamis.stages.text.filters.histogram import HistogramFilter as HistogramFilter
    from tamis.stages.text.filters.language import LanguageFilter as LanguageFilter
    from tamis.stages.text.filters.language import ScriptFilter as ScriptFilter
    from tamis.stages.text.filters.lines import BoilerPlateStringFilter as BoilerPlateStringFilter
    from tamis.stages.text.filters.lines import BulletsFilter as BulletsFilter
    from tamis.stages.text.filters.lines import EllipsisFilter as EllipsisFilter
    from tamis.stages.text.filters.lines import IncompleteStoryFilter as IncompleteStoryFilter
    from tamis.stages.text.filters.lines import PunctuationFilter as PunctuationFilter
    from tamis.stages.text.filters.perplexity import PerplexityFilter as PerplexityFilter
    from tamis.stages.text.filters.phrases import BadWordsFilter as BadWordsFilter
    from tamis.stages.text.filters.phrases import CurlyBracketFilter as CurlyBracketFilter
    from tamis.stages.text.filters.phrases import EllipsesToWordsFilter as EllipsesToWordsFilter
    from tamis.stages.text.filters.phrases import HashesToWordsFilter as HashesToWordsFilter
    from tamis.stages.text.filters.phrases import PlaceholderTextFilter as PlaceholderTextFilter
    from tamis.stages.text.filters.phrases import SentenceCountFilter as SentenceCountFilter
    from tamis.stages.text.filters.phrases import StopWordsFilter as StopWordsFilter
    from tamis.stages.text.filters.repetition import RepeatedLinesByCharFilter as RepeatedLinesByCharFilter
    from tamis.stages.text.filters.repetition import RepeatedLinesFilter as RepeatedLinesFilter
    from tamis.stages.text.filters.repetition import RepeatedParagraphsByCharFilter as RepeatedParagraphsByCharFilter
    from tamis.stages.text.filters.repetition import RepeatedParagraphsFilter as RepeatedParagraphsFilter
    from tamis.stages.text.filters.repetition import RepeatingDuplicateNGramsFilter as RepeatingDuplicateNGramsFilter
    from tamis.stages.text.filters.repetition import RepeatingTopNGramsFilter as RepeatingTopNGramsFilter
    from tamis.stages.text.filters.score_filter import Filter as Filter
    from tamis.stages.text.filters.score_filter import Score as Score
    from tamis.stages.text.filters.score_filter import ScoreFilter as ScoreFilter
    from tamis.stages.text.filters.token import TokenCountFilter as TokenCountFilter
    from tamis.stages.text.filters.words import CommonEnglishWordsFilter as CommonEnglishWordsFilter
    from tamis.stages.text.filters.words import LongWordFilter as LongWordFilter
    from tamis.stages.text.filters.words import MeanWordLengthFilter as MeanWordLengthFilter
    from tamis.stages.text.filters.words import SymbolsToWordsFilter as SymbolsToWordsFilter
    from tamis.stages.text.filters.words import WordCountFilter as WordCountFilter
    from tamis.stages.text.filters.words import WordsWithoutAlphabetsFilter as WordsWithoutAlphabetsFilter

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
    "perplexity": "PerplexityFilter",
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

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
