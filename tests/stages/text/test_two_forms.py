"""The column form of every filter and modifier gives what its row form gives, for any Unicode text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.stages.text import filters, modifiers
from tamis.stages.text.filters import DocumentFilter
from tamis.stages.text.modifiers import DocumentModifier
from tamis.stages.text.modifiers.pii_rules import RULES

PARTS = [
    *["the", "be", "have", "word", "a", "#", "##", "#x#", "12", "٣५", "x" * 12],
    *["日本語", "мир", "שלום", "👩\u200d🚀", "e\u0301", "K", "\u0130", "Σ"],
    *[" ", "  ", "\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n\r\n", "\r", "\0", "\x07", "\x1b", "\x7f", "\x9f"],
    *["\x1c", "\x1d", "\x1e", "\x1f", "\x0b", "\x0c", "\x85", "\xa0", "\u2028", "\u3000", "\u200b", "\u180e"],
    *[".", "!", "?", "...", "…", "[...]", "(...)", "[…]", "-»", "read more", "READ More..", ".\n.", "\n..", ","],
    *["•", " ◦ x", "⦿", "(", "]", "⟨", "{", "*a*", "**b**", "_c_", "[t](u)", "**", "_", "&amp;", "<b>", "schÃ¶n"],
    *['"', "'", "“", "\u2019", "„", "\uff02", "»", '"\n', "Share"],
    *["Privacy Policy", "uses coo\u212aies", "u\u017fes cookies", "lorem IPSUM"],
    *["http://a.bc/%20%zz", "HTTPS://x", "http\u017f://y", "www.z", "https://"],
    *[
        "__label__",
        "__label__label__",
        "&lt;",
        "&copy2",
        "&#65;",
        "&",
        ";",
        "\u0323",
        "각",
        "\u1100\u1161",
        "ﬁ",
        "\uff21",
    ],
    *["a@b.cd", "+49 30 901820", "(212) 555-0100", "93.184.216.34", "2001:db8:1::1", "2a00:1450:4001::1", "Tel.: "],
    *["4111 1111 1111 1111", "GB82 WEST 1234 5698 7654 32", "078-05-1120", "AKIAIOSFODNN7EXAMPLE", "token = "],
]
TEXTS = st.lists(st.one_of(st.text(), st.lists(st.sampled_from(PARTS), max_size=12).map("".join)), max_size=5)
NEED_MORE = {
    "BadWordsFilter",
    "FastTextQualityFilter",
    "HistogramFilter",
    "LanguageFilter",
    "PerplexityFilter",
    "ScriptFilter",
    "TokenCountFilter",
}
"""Filters that cannot be made without a model or a choice; they have tests of their own."""

MANY = examples(120, suppress_health_check=[HealthCheck.too_slow])

FILTERS: list[DocumentFilter] = [
    *(
        getattr(filters, name)()
        for name in filters.__all__
        if name.endswith("Filter")
        and name not in {"DocumentFilter", "Filter", "ScoreFilter", "SubstringFilter", *NEED_MORE}
    ),
    filters.SubstringFilter("the", "prefix"),
    filters.SubstringFilter(".", "suffix"),
    filters.SubstringFilter("日", "any"),
    filters.SubstringFilter("", "any"),
    filters.CommonEnglishWordsFilter(stop_at_false=False),
    filters.NumbersFilter(any_script=True),
    filters.WordCountFilter(min_words=2, max_words=4),
    filters.BadWordsFilter(["a", "word", "мир", "\u0130"]),
    filters.BadWordsFilter(["日"], lang="ja"),
    filters.StopWordsFilter(stop_words=["#", "日本語", "the"]),
    filters.IncompleteStoryFilter(endings="e語\u0301"),
]
MODIFIERS: list[DocumentModifier] = [
    modifiers.BoilerPlateStringModifier(),
    modifiers.BoilerPlateStringModifier(remove_if_at_top_or_bottom=False),
    modifiers.ControlCharacterRemover(),
    modifiers.LineRemover(["Share", "..", "日本語"]),
    modifiers.LineRemover(["", "a"]),
    modifiers.LineRemover([]),
    modifiers.LineRemover(["a" * 70, "Share", ""]),
    modifiers.LineRemover(["x" * n for n in range(12)]),
    modifiers.FastTextLabelModifier("__label__é"),
    modifiers.HtmlEntityUnescaper(),
    modifiers.MarkdownRemover(),
    modifiers.NewlineNormalizer(),
    modifiers.PiiRedactor(),
    modifiers.PiiRedactor(kinds=list(RULES), tags={"email": "@"}),
    modifiers.QuotationRemover(),
    modifiers.QuotationUnifier(),
    modifiers.Slicer(),
    modifiers.Slicer(1, 4, strip=False),
    modifiers.Slicer(-3, -1),
    modifiers.Slicer(2, -2),
    modifiers.Slicer(5, 2),
    modifiers.Slicer("the", ".", include_left=False),
    modifiers.Slicer("\n", "語", include_right=False, strip=False),
    modifiers.Slicer("", ""),
    modifiers.Slicer(None, "e"),
    modifiers.UnicodeNormalizer(),
    modifiers.UnicodeNormalizer("NFD"),
    modifiers.UnicodeNormalizer("NFKC"),
    modifiers.UnicodeNormalizer("NFKD"),
    modifiers.UnicodeReformatter(),
    modifiers.UnicodeReformatter(uncurl_quotes=True, fix_line_breaks=True, normalization="NFKC"),
    modifiers.UrlRemover(),
    modifiers.WhitespaceCollapser(),
]
MODIFIER_IDS = [f"{i}-{modifier.name}" for i, modifier in enumerate(MODIFIERS)]


@pytest.mark.parametrize("filter_", FILTERS, ids=repr)
def test_every_filter_of_ours_is_vectorised(filter_: DocumentFilter) -> None:
    assert filter_.vectorised


@pytest.mark.parametrize("filter_", FILTERS, ids=repr)
@MANY
@given(texts=TEXTS)
@example(texts=["", " ", "\n\n", "\x1c\x1d\x1e\x1f", "\0", "\u3000"])
@example(texts=["#", "#", ".", "..", "read", "more", "e", "\u0301"])
def test_filter_scores_and_decides_the_same_in_both_forms(filter_: DocumentFilter, texts: list[str]) -> None:
    column = pa.chunked_array([pa.array(texts, pa.string())])
    scores = filter_.score_column(column)
    expected = [filter_.score_document(text) for text in texts]
    assert np.asarray(scores).tolist() == expected
    assert filter_.keep_scores(scores).tolist() == [filter_.keep_document(score) for score in expected]


@pytest.mark.parametrize("filter_", FILTERS, ids=repr)
def test_filter_takes_chunks_slices_and_nulls(filter_: DocumentFilter) -> None:
    texts = ["not seen", "the first one.\nread more", "", None, "日本 ...\n\n日本 ...", "# • http://a.bc 12 (x)"]
    whole = pa.array(texts, pa.large_string())
    column = pa.chunked_array([whole.slice(1, 2), whole.slice(0, 0), whole.slice(3)])
    assert np.asarray(filter_.score_column(column)).tolist() == [filter_.score_document(t or "") for t in texts[1:]]


@pytest.mark.parametrize("modifier", MODIFIERS, ids=MODIFIER_IDS)
@MANY
@given(texts=TEXTS)
@example(texts=["", " ", "\n\n", "\x1c\x1d\x1e\x1f", "\0", "\u3000"])
@example(texts=['"a"', '"a\nb"', '"a"\n"b"', '""', '"""', '"'])
def test_modifier_changes_the_same_in_both_forms(modifier: DocumentModifier, texts: list[str]) -> None:
    column = pa.chunked_array([pa.array([*texts, None], pa.string())])
    expected = [modifier.modify_document(text) for text in texts]
    assert modifier.modify_column(column).to_pylist() == [*expected, None]


@pytest.mark.parametrize("modifier", MODIFIERS, ids=MODIFIER_IDS)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_modifier_keeps_the_type_over_chunks(modifier: DocumentModifier, kind: pa.DataType) -> None:
    texts = ["a  b", None, "“é” \x00 www.x", "Share\n\n\n\n**x**", '"q"', "uses cookies\n\nyes", "schÃ¶n"]
    column = pa.chunked_array([pa.array(texts[:3], kind), pa.array([], kind), pa.array(texts[3:], kind)])
    result = modifier.modify_column(column)
    assert result.type == kind
    assert result.to_pylist() == [None if t is None else modifier.modify_document(t) for t in texts]


@pytest.mark.parametrize("operation", [*FILTERS, *MODIFIERS], ids=lambda operation: operation.name)
def test_column_without_chunks_is_no_special_case(operation: DocumentFilter | DocumentModifier) -> None:
    column = pa.chunked_array([], pa.string())
    if isinstance(operation, DocumentFilter):
        assert len(operation.score_column(column)) == 0
    else:
        assert len(operation.modify_column(column)) == 0
