"""Published sets of filters by name: the rules that well-known data sets were made with.

Each is one stage that stands for several, with the thresholds of its paper. Where a paper leaves room, the docstring
says how it is read here and how else it has been.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text import filters, modifiers
from tamis.stages.text.filters.base import DocumentFilter
from tamis.tasks import DocumentBatch

__all__ = [
    "C4Quality",
    "DclmHeuristics",
    "EnglishHeuristics",
    "FineWebQuality",
    "GopherQuality",
    "GopherRepetition",
    "NonEnglishHeuristics",
]

_TOP_NGRAMS = {2: 0.2, 3: 0.18, 4: 0.16}
_DUPLICATE_NGRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}


@dataclass(repr=False)
class _FilterSet(CompositeStage[DocumentBatch, DocumentBatch]):
    """What the sets share.

    Args:
        text_field: The column with the text.
        score_fields: Whether every filter writes its score into a column, named after the filter.
    """

    text_field: str = "text"
    score_fields: bool = False

    stage_name: ClassVar[str]

    def filters(self) -> list[DocumentFilter]:
        """The rules, in the order they are applied in."""
        raise NotImplementedError

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [self._keep(self.filters(), self.stage_name)]

    def _keep(self, rules: list[DocumentFilter], name: str) -> ProcessingStage[Any, Any]:
        """The stage that applies filters, one after the other."""
        fields: list[str | None] | None = [rule.name for rule in rules] if self.score_fields else None
        return filters.ScoreFilter([*rules], self.text_field, fields).with_(name=name)


@dataclass(repr=False)
class GopherQuality(_FilterSet):
    """Keep text that reads like prose: the quality rules of Gopher's MassiveText.

    *Scaling Language Models: Methods, Analysis & Insights from Training Gopher* (Rae et al., 2021, arXiv 2112.11446),
    Appendix A.1.1: 50 to 100,000 words; words of 3 to 10 characters on average; at most 0.1 hash signs, and at most 0.1
    ellipses, to a word; at most 90 % of lines begin with a bullet; at most 30 % end with an ellipsis; at least 80 % of
    words have a letter; at least two different ones of *the, be, to, of, and, that, have, with*.

    Also read as: symbols counted as words of their own and both kinds together, common words counted each time (as in
    :class:`EnglishHeuristics`); punctuation not counted among the words, ``-`` taken for a bullet (datatrove).

    Args:
        language: The language of the texts. The rule on common words is for English only; in Chinese, Japanese and
            Thai a dictionary finds the words.

    >>> [stage.name for stage in GopherQuality().decompose()], len(GopherQuality().filters())
    (['gopher_quality'], 8)
    """

    language: str = "en"
    stage_name: ClassVar[str] = "gopher_quality"

    def filters(self) -> list[DocumentFilter]:
        language = self.language
        return [
            filters.WordCountFilter(50, 100_000, lang=language),
            filters.MeanWordLengthFilter(3, 10, lang=language),
            filters.HashesToWordsFilter(0.1, lang=language),
            filters.EllipsesToWordsFilter(0.1, lang=language),
            filters.BulletsFilter(0.9),
            filters.EllipsisFilter(0.3),
            filters.WordsWithoutAlphabetsFilter(0.8, lang=language),
            *([filters.StopWordsFilter(2)] if _is_english(language) else []),
        ]


@dataclass(repr=False)
class GopherRepetition(_FilterSet):
    """Drop text that repeats itself: the repetition rules of Gopher's MassiveText.

    *Scaling Language Models: Methods, Analysis & Insights from Training Gopher* (Rae et al., 2021, arXiv 2112.11446),
    Table A1: at most 30 % of lines and of paragraphs, and at most 20 % of their characters, were there before; at most
    20, 18 and 16 % of characters are in the most frequent sequence of 2, 3 and 4 words; at most 15, 14, 13, 12, 11 and
    10 % are in repeated sequences of 5, 6, 7, 8, 9 and 10 words.

    The characters of the most frequent sequence are those that go when it is removed from the text; also read as its
    length times its count, which counts overlaps twice (datatrove). Repeated lines and sequences count from their
    second occurrence on; also read as: every occurrence counts (DCLM).

    Args:
        language: The language of the texts: in Chinese, Japanese and Thai a dictionary finds the words.

    >>> len(GopherRepetition().filters())
    13
    """

    language: str = "en"
    stage_name: ClassVar[str] = "gopher_repetition"

    def filters(self) -> list[DocumentFilter]:
        return [*_repeated_pieces(), *_repeated_ngrams(self.language)]


@dataclass(repr=False)
class C4Quality(_FilterSet):
    """Keep the sentences of English web pages, and pages with enough of them: C4's rules.

    *Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer* (Raffel et al., 2020, arXiv
    1910.10683), Section 2.2. Pages go that have "lorem ipsum", a curly bracket or a word of a list in them. Lines go
    that do not end with ``. ! ?`` or a quotation mark, have fewer than 5 words or one of more than 1,000 characters, or
    mention JavaScript or a policy; citation marks are cut out. Pages of which fewer than 3 sentences are left go.

    Rules on pages are applied to the page as it comes; C4's code, and datatrove after it, applies them to the lines
    that other rules leave. An earlier version of the paper has 3 words and 5 sentences, as has datatrove.

    Args:
        bad_words: The words and phrases that a page must not have. C4 used a public list; none comes with tamis.
        bad_words_file: A text file with more of them, one on each line.
        end_marks: The characters that a line must end with; ``None``: any, as FineWeb has it.
        min_words_per_line: The fewest words of a line that stays.
        min_sentences: The fewest sentences of a page that stays.
        language: The language of the bad words: in Chinese, Japanese and Thai they count wherever they are.

    >>> [stage.name for stage in C4Quality().decompose()]
    ['c4_pages', 'c4_lines', 'c4_sentences']
    """

    bad_words: list[str] = field(default_factory=list)
    bad_words_file: str | None = None
    end_marks: str | None = '.?!"”'
    min_words_per_line: int = 5
    min_sentences: int = 3
    language: str = "en"

    def page_filters(self) -> list[DocumentFilter]:
        """The rules on whole pages, as they come."""
        rules: list[DocumentFilter] = [filters.PlaceholderTextFilter(), filters.CurlyBracketFilter()]
        if self.bad_words or self.bad_words_file is not None:
            rules.append(filters.BadWordsFilter(self.bad_words, self.bad_words_file, self.language))
        return rules

    def line_cleaner(self) -> modifiers.C4LineCleaner:
        """The rules on lines."""
        return modifiers.C4LineCleaner(self.end_marks, self.min_words_per_line)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            self._keep(self.page_filters(), "c4_pages"),
            modifiers.CleanLines(self.line_cleaner(), self.text_field).with_(name="c4_lines"),
            self._keep([filters.SentenceCountFilter(self.min_sentences)], "c4_sentences"),
        ]


@dataclass(repr=False)
class FineWebQuality(_FilterSet):
    """Drop lists and boilerplate: the rules that FineWeb added to Gopher's and C4's.

    *The FineWeb Datasets: Decanting the Web for the Finest Text Data at Scale* (Penedo et al., 2024, arXiv 2406.17557):
    at least 12 % of lines end like a sentence; at most 67 % have 30 characters or fewer; at most 1 % of characters are
    in lines that were there before; at most 0.3 newlines to a word.

    These are the thresholds of the code that made the data set. The paper says 10 % for repeated lines and does not
    have the rule on newlines. FineWeb applies this set after :class:`GopherRepetition`, :class:`GopherQuality` and
    :class:`C4Quality` without its rule on end marks: the recipe ``fineweb``.

    Args:
        max_duplicate_line_characters_ratio: The highest share of characters in repeated lines that is kept, 0 to 1.
        language: The language of the texts: in Chinese, Japanese and Thai a dictionary finds the words.

    >>> [filter_.name for filter_ in FineWebQuality().filters()]
    ['line_punctuation', 'short_lines', 'duplicate_line_characters', 'newlines_to_words']
    """

    max_duplicate_line_characters_ratio: float = 0.01
    language: str = "en"
    stage_name: ClassVar[str] = "fineweb_quality"

    def filters(self) -> list[DocumentFilter]:
        return [
            filters.LinePunctuationFilter(0.12),
            filters.ShortLinesFilter(0.67),
            filters.DuplicateLineCharactersFilter(self.max_duplicate_line_characters_ratio),
            filters.NewlinesToWordsFilter(0.3, lang=self.language),
        ]


@dataclass(repr=False)
class DclmHeuristics(_FilterSet):
    """The heuristics of RefinedWeb, as DCLM-Baseline applies them before it asks a model.

    *The RefinedWeb Dataset for Falcon LLM* (Penedo et al., 2023, arXiv 2306.01116), Appendix G, and *DataComp-LM: In
    search of the next generation of training sets for language models* (Li et al., 2024, arXiv 2406.11794). Web
    addresses are cut out and runs of newlines shortened to two; then come the rules of :class:`GopherQuality` (common
    words counted each time) and of :class:`GopherRepetition`; then lines go that are mostly upper case, a number, a
    counter or a single word, and what buttons say is cut out of lines of up to 10 words. Documents that lose more than
    5 % of their words to the rules on lines go.

    Not here: the lists of addresses that both block, and the language (English, 0.65), for which see
    :class:`~tamis.stages.text.filters.FastTextLangId`. DCLM counts hash signs and ellipses together, takes ``*`` and
    ``-`` for bullets and counts every occurrence of a repeated line.

    Args:
        max_removed_words_ratio: The highest share of its words that a document may lose to the rules on lines, 0 to 1.
        language: The language of the texts. The rule on common words is for English only; in Chinese, Japanese and
            Thai a dictionary finds the words.

    >>> [stage.name for stage in DclmHeuristics().decompose()]
    ['dclm_clean', 'dclm_quality', 'dclm_repetition', 'dclm_lines']
    """

    max_removed_words_ratio: float = 0.05
    language: str = "en"

    def cleaners(self) -> list[Any]:
        """What is done to the text before anything is measured."""
        return [modifiers.UrlRemover(), modifiers.NewlineNormalizer()]

    def quality_filters(self) -> list[DocumentFilter]:
        """The rules on quality, in the order they are applied in."""
        gopher = GopherQuality(language=self.language).filters()
        others = [rule for rule in gopher if not isinstance(rule, filters.StopWordsFilter)]
        return [*others, *([filters.CommonEnglishWordsFilter(2)] if _is_english(self.language) else [])]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        removed = "removed_words" if self.score_fields else None
        lines = modifiers.CleanLines(
            modifiers.RefinedWebLineCleaner(), self.text_field, self.max_removed_words_ratio, removed
        )
        return [
            modifiers.Modify(self.cleaners(), self.text_field).with_(name="dclm_clean"),
            self._keep(self.quality_filters(), "dclm_quality"),
            self._keep(GopherRepetition(language=self.language).filters(), "dclm_repetition"),
            lines.with_(name="dclm_lines"),
        ]


@dataclass(repr=False)
class EnglishHeuristics(_FilterSet):
    """NeMo Curator's cascade of 28 heuristic filters for English text.

    The rules are Gopher's (Rae et al., 2021, arXiv 2112.11446) and C4's (Raffel et al., 2020, arXiv 1910.10683), as
    filters on whole documents, and more on characters: at most 25 % not alphanumeric, 15 % digits, 20 % in web
    addresses, 25 % white space, 10 % brackets. Order and thresholds are those of NeMo Curator's configuration.

    >>> len(EnglishHeuristics().filters())
    28
    """

    stage_name: ClassVar[str] = "english_heuristics"

    def filters(self) -> list[DocumentFilter]:
        return _heuristics("en")


@dataclass(repr=False)
class NonEnglishHeuristics(_FilterSet):
    """NeMo Curator's cascade of 25 heuristic filters for text in other languages.

    The rules of :class:`EnglishHeuristics` but for those that only make sense in English: alphanumeric characters,
    words with letters, common words. The rule on punctuation at the end of lines drops a lot in some languages.

    Args:
        language: The language of the texts: in Chinese, Japanese and Thai (``"zh"``, ``"ja"``, ``"th"``) a dictionary
            finds the words; ``None``: one whose words stand between spaces.

    >>> len(NonEnglishHeuristics().filters())
    25
    """

    language: str | None = None
    stage_name: ClassVar[str] = "non_english_heuristics"

    def filters(self) -> list[DocumentFilter]:
        only_english = (
            filters.NonAlphaNumericFilter,
            filters.WordsWithoutAlphabetsFilter,
            filters.CommonEnglishWordsFilter,
        )
        return [rule for rule in _heuristics(self.language or "und") if not isinstance(rule, only_english)]


def _heuristics(language: str) -> list[DocumentFilter]:
    """NeMo Curator's cascade for English, with the words of a language."""
    return [
        filters.NonAlphaNumericFilter(0.25),
        filters.SymbolsToWordsFilter(0.1, lang=language),
        filters.NumbersFilter(0.15),
        filters.UrlsFilter(0.2),
        filters.WhiteSpaceFilter(0.25),
        filters.ParenthesesFilter(0.1),
        filters.BoilerPlateStringFilter(max_boilerplate_string_ratio=0.4),
        *_repeated_pieces(),
        filters.WordCountFilter(50, 100_000, lang=language),
        filters.PunctuationFilter(0.85),
        filters.WordsWithoutAlphabetsFilter(0.8, lang=language),
        filters.CommonEnglishWordsFilter(2),
        filters.MeanWordLengthFilter(3, 10, lang=language),
        filters.LongWordFilter(1000, lang=language),
        filters.EllipsisFilter(0.3),
        *_repeated_ngrams(language),
        filters.BulletsFilter(0.9),
    ]


def _repeated_pieces() -> list[DocumentFilter]:
    """Gopher's limits for repeated lines and paragraphs. The parameters say what must at least be left."""
    return [
        filters.RepeatedLinesFilter(0.7),
        filters.RepeatedParagraphsFilter(0.7),
        filters.RepeatedLinesByCharFilter(0.8),
        filters.RepeatedParagraphsByCharFilter(0.8),
    ]


def _repeated_ngrams(language: str) -> list[DocumentFilter]:
    """Gopher's limits for repeated sequences of words."""
    top = [filters.RepeatingTopNGramsFilter(n, ratio, language) for n, ratio in _TOP_NGRAMS.items()]
    repeated = [filters.RepeatingDuplicateNGramsFilter(n, ratio, language) for n, ratio in _DUPLICATE_NGRAMS.items()]
    return [*top, *repeated]


def _is_english(language: str) -> bool:
    return language.lower().replace("_", "-").partition("-")[0] == "en"
