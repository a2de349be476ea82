"""What each filter measures, what it keeps, and what it says about what it drops."""

from __future__ import annotations

import re

import pytest

from tamis.stages.text import filters
from tamis.stages.text.filters import DocumentFilter
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.tasks import DocumentBatch

SCORES = [
    (filters.NonAlphaNumericFilter(), "Hi, you!\n", 1 / 9),  # only the space counts
    (filters.NonAlphaNumericFilter(), "日本", 1.0),
    (filters.NumbersFilter(), "1²٣a", 0.25),  # a superscript and an Arabic digit are none of 0 to 9
    (filters.NumbersFilter(any_script=True), "1²٣a", 0.5),  # a superscript is no decimal digit, an Arabic one is
    (filters.WhiteSpaceFilter(), "a \t\n\r\b\x0b", 5 / 7),
    (filters.ParenthesesFilter(), "⟨a⟩ {b}", 4 / 7),
    (filters.UrlsFilter(), "http://a.b https://c", 19 / 20),
    (filters.UrlsFilter(url_regex=r"ftp://(\w+)"), "ftp://ab c", 0.8),
    (filters.BulletsFilter(), "• a\n\n  ‣ b\nc\nd", 0.5),
    (filters.PunctuationFilter(), 'a.\nb?  \n"c"\nd', 0.25),
    (filters.EllipsisFilter(), "a…\nREAD MORE\nb [...] \nc", 0.75),
    (filters.WordCountFilter(), " a\u3000b\x1cc\u200bd ", 3),  # a zero-width space is none
    (filters.LongWordFilter(), "a déjà\x85vu", 4),
    (filters.MeanWordLengthFilter(), "ab é", 1.5),
    (filters.SymbolsToWordsFilter(), "# ## #a# ... read more…", 3 / 6),
    (filters.CommonEnglishWordsFilter(stop_at_false=False), "The end of the tale and be", 4),
    (filters.CommonEnglishWordsFilter(), "to be or not to be", 2),
    (filters.BoilerPlateStringFilter(), "a\n\nPRIVACY POLICY\n\nb\n\nc", 0.25),
    (filters.BoilerPlateStringFilter(), "a\n\nLorem ipsum\n\nb", 1.0),
    (filters.RepeatedLinesFilter(), "a\na\n \nb\n a", 3 / 4),  # compared as they are, not stripped
    (filters.RepeatedParagraphsFilter(), "a\n\nb\n\na\n\na", 0.5),
    (filters.RepeatedLinesByCharFilter(), "aaa\nb\nb\nb", 4 / 6),
    (filters.RepeatedParagraphsByCharFilter(), "aaa\n\nb\n\nb", 4 / 5),
    (filters.IncompleteStoryFilter(), "He said: “The end.”\n", True),
    (filters.SubstringFilter("b", "suffix"), "ab", 1),
]


@pytest.mark.parametrize(("filter_", "text", "score"), SCORES, ids=lambda v: v.name if hasattr(v, "name") else None)
def test_score(filter_: DocumentFilter, text: str, score: float) -> None:
    assert filter_.score_document(text) == pytest.approx(score)


@pytest.mark.parametrize(
    ("filter_", "kept_if_empty", "kept_if_blank"),
    [
        (filters.NonAlphaNumericFilter(), False, False),
        (filters.NumbersFilter(), False, True),
        (filters.WhiteSpaceFilter(), False, False),
        (filters.ParenthesesFilter(), False, True),
        (filters.UrlsFilter(), False, True),
        (filters.BulletsFilter(), False, False),
        (filters.PunctuationFilter(), False, False),
        (filters.EllipsisFilter(), False, False),
        (filters.WordCountFilter(), False, False),
        (filters.LongWordFilter(), True, True),
        (filters.MeanWordLengthFilter(), False, False),
        (filters.SymbolsToWordsFilter(), False, False),
        (filters.CommonEnglishWordsFilter(), False, False),
        (filters.BoilerPlateStringFilter(), True, True),
        (filters.RepeatedLinesFilter(), False, False),
        (filters.RepeatedParagraphsFilter(), True, True),
        (filters.RepeatedLinesByCharFilter(), False, False),
        (filters.RepeatedParagraphsByCharFilter(), False, True),
        (filters.IncompleteStoryFilter(), False, False),
    ],
    ids=lambda v: v.name if hasattr(v, "name") else None,
)
def test_text_without_words_never_raises(filter_: DocumentFilter, kept_if_empty: bool, kept_if_blank: bool) -> None:
    assert filter_.keep_document(filter_.score_document("")) is kept_if_empty
    assert filter_.keep_document(filter_.score_document("   ")) is kept_if_blank


@pytest.mark.parametrize(
    ("filter_", "reason"),
    [
        (filters.WordCountFilter(), "word_count outside 50..100000"),
        (filters.NumbersFilter(), "numbers_ratio > 0.15"),
        (filters.RepeatedLinesFilter(), "repeated_lines < 0.7"),
        (filters.SubstringFilter("#!", "prefix"), "no '#!' at the beginning"),
        (filters.IncompleteStoryFilter(), "does not end like a finished story"),
    ],
)
def test_reason_names_the_measure_and_the_bound(filter_: DocumentFilter, reason: str) -> None:
    assert filter_.reason() == reason


def test_bounds_are_included() -> None:
    filter_ = filters.WordCountFilter(min_words=2, max_words=3)
    assert [filter_.keep_document(n) for n in (1, 2, 3, 4)] == [False, True, True, False]


def test_urls_with_a_pattern_of_ones_own_are_found_row_by_row() -> None:
    assert filters.UrlsFilter().vectorised
    assert not filters.UrlsFilter(url_regex=re.compile(r"\S+(?=!)")).vectorised


def test_words_of_languages_without_spaces_are_found_with_a_dictionary() -> None:
    text = "我们今天去公园散步"
    assert filters.WordCountFilter().score_document(text) == 1
    in_chinese = filters.WordCountFilter(min_words=1, lang="zh")
    assert in_chinese.score_document(text) > 3
    assert not in_chinese.scores_columns
    kept = filters.ScoreFilter(in_chinese, score_field="words").process(DocumentBatch({"text": [text]}))
    assert kept.data.column("words").to_pylist() == [in_chinese.score_document(text)]


def test_the_whole_match_of_a_regular_expression_is_a_url_whatever_its_groups() -> None:
    text = "see ftp://a.bc/porn now"
    for expression in (r"ftp://\S+", r"(ftp)://(\S+)", r"(?:ftp)://\S+"):
        assert filters.UrlsFilter(url_regex=expression).score_document(text) == len("ftp://a.bc/porn") / len(text)
        assert filters.PornographicUrlsFilter(url_regex=expression).score_document(text) == 1


def test_what_stands_at_the_ends_of_lines_and_blank_paragraphs_count() -> None:
    assert filters.DuplicateLineCharactersFilter().score_document("la \nla\nla") == 2 / 7
    assert filters.ShortLinesFilter().score_document("x" * 30 + "\r\n" + "y" * 30) == 0.5
    assert filters.RepeatedParagraphsFilter().score_document("a\n\n\n\n\n\nb") == 3 / 4
    assert filters.MeanWordLengthFilter().score_document("word - 42") == 7 / 3


def test_unknown_position_of_a_substring_is_refused() -> None:
    with pytest.raises(ValueError, match="'prefix', 'suffix' or 'any'"):
        filters.SubstringFilter("a", "middle")  # type: ignore[arg-type]  # the error is the point


def test_new_row_form_in_a_subclass_replaces_the_inherited_column_form() -> None:
    class LettersOnly(filters.WordCountFilter):
        def score_document(self, text: str) -> int:
            return sum(word.isalpha() for word in text.split())

    filter_ = LettersOnly(min_words=1)
    assert not filter_.scores_columns
    assert filter_.keeps_columns


def test_name_is_the_class_name_unless_set() -> None:
    class Mine(DocumentFilter):
        pass

    class Named(DocumentFilter):
        def __init__(self) -> None:
            super().__init__()
            self._name = "mine"  # as in filters written for NeMo Curator

    assert (Mine().name, Named().name) == ("Mine", "mine")


def test_repr_shows_the_parameters() -> None:
    class Longer(ThresholdFilter):
        def __init__(self, than: int) -> None:
            self.than = than

    assert repr(Longer(3)) == "Longer(than=3)"
    assert repr(filters.BulletsFilter(0.5)) == "BulletsFilter(max_bullet_lines_ratio=0.5)"


def test_heuristic_filters_are_found_where_nemo_curator_has_them() -> None:
    from tamis.stages.text.filters import heuristic, repetition

    assert heuristic.WordCountFilter is filters.WordCountFilter
    assert repetition.RepeatedLinesFilter is filters.RepeatedLinesFilter
