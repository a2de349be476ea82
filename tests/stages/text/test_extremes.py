"""Unusual texts: huge words, NUL bytes, half characters. All filters at once, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from tamis.stages.text import filters, modifiers
from tamis.stages.text.filters.measured import MeasuredFilter
from tamis.stages.text.modifiers.pii_rules import RULES
from tamis.tasks import DocumentBatch

MEGABYTE = 1_000_000
MEASURED: list[MeasuredFilter] = [
    made
    for name in filters.__all__
    if name.endswith("Filter") and isinstance(cls := getattr(filters, name), type) and issubclass(cls, MeasuredFilter)
    if isinstance(made := cls(), MeasuredFilter)
]
TEXTS = {
    "one word of 10 MB": "x" * (10 * MEGABYTE),
    "one word of 10 MB, not ASCII": "é" * (5 * MEGABYTE),
    "white space only": " \n\t\u3000" * (MEGABYTE // 4),
    "many words": "a b " * (MEGABYTE // 8),
    "many lines": "line\n" * (MEGABYTE // 8),
    "many newlines": "\n" * (MEGABYTE // 4),
    "NUL bytes": "\0a\0 b\0\n\0" * 1000,
    "words with a NUL": "the\0 to be\0\0 \0of ...\0 that and\0 ",
    "right to left": "שלום עולם مرحبا بالعالم\n" * 1000,
    "combining characters": "e\u0301\u0327 n\u0303\n" * 1000,
    "beyond the first plane": "😀 👩\u200d🚀 \U0001d4b3\U0001d4b4 𐐷\n" * 1000,
    "empty": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_every_score_is_what_its_definition_says(text: str) -> None:
    names = [f"{i}-{f.name}" for i, f in enumerate(MEASURED)]
    stage = filters.Score(list(MEASURED), score_field=names)
    scored = stage.process(DocumentBatch({"text": ["before", text, "after"]}))
    row = scored.data.slice(1, 1).drop_columns(["text"]).to_pylist()[0]
    assert row == {name: f.score_document(text) for name, f in zip(names, MEASURED, strict=True)}


def test_a_huge_text_among_small_ones_is_dropped_alone() -> None:
    batch = DocumentBatch({"text": ["a b c", "y" * (10 * MEGABYTE), "d e f"]})
    kept = filters.ScoreFilter(filters.LongWordFilter()).process(batch)
    assert kept.dropped[0].rows.tolist() == [1]
    assert kept.data.column("text").to_pylist() == ["a b c", "d e f"]


NOT_WITHOUT_ARGUMENTS = ("CleanLines", "DocumentModifier", "FastTextLabelModifier", "LineRemover", "Modify")
ROW_FORMS: list[Any] = [
    *(made.score_document for made in MEASURED),
    *(filters.WordCountFilter(lang=language).score_document for language in ("ja", "th", "zh")),
    filters.LanguageFilter(["en"]).score_document,
    filters.ScriptFilter(["Latn"]).score_document,
    filters.TokenCountFilter(tokenizer=Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))).score_document,
    *(getattr(modifiers, name)().modify_document for name in modifiers.__all__ if name not in NOT_WITHOUT_ARGUMENTS),
    modifiers.FastTextLabelModifier("a").modify_document,
    modifiers.LineRemover(["x"]).modify_document,
    modifiers.PiiRedactor(kinds=list(RULES)).modify_document,
]


@pytest.mark.parametrize("row_form", ROW_FORMS, ids=lambda form: type(form.__self__).__name__)
def test_half_of_a_surrogate_pair_makes_no_row_form_raise(row_form: Any) -> None:
    made = row_form("The \ud83d cat.\n\udfff sat, schÃ¶n &amp; token = \ud800")
    assert isinstance(made, str | int | float | bool | tuple | list | dict)


def test_half_of_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"row 1 of the column 'text'.*surrogate"):
        DocumentBatch({"text": ["fine", "\ud83d"]})
    with pytest.raises(ValueError, match=r"row 0 of the column 'text'.*surrogate"):
        DocumentBatch([{"text": "\ud83d"}])


def test_bytes_that_are_no_text_do_no_harm() -> None:
    # Arrow does not look at what it reads from Parquet. These bytes would be a character beyond the last there is.
    broken = b"\xf7\xbf\xbf\xbf " * 100 + b"\xbf\n\xbf \xff"
    offsets = pa.py_buffer(np.array([0, len(broken)], np.int32))
    column = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(broken)])
    stage = filters.Score(list(MEASURED), score_field=[f"{i}" for i in range(len(MEASURED))])
    scored = stage.process(DocumentBatch(pa.table({"text": column})))
    letters = next(str(i) for i, f in enumerate(MEASURED) if isinstance(f, filters.WordsWithoutAlphabetsFilter))
    assert scored.data.column(letters).to_pylist() == [0.0]
