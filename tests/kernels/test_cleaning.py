"""The kernels of the modifiers: columns that stay as they are, the ends of buffers, and finding needles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.kernels.needles import Needles, any_case, digits, exactly, rows_with
from tamis.stages.text import modifiers
from tamis.stages.text.modifiers import DocumentModifier, Modify
from tamis.tasks import DocumentBatch

CLEAN = ["Plain text, of two lines.\nThat is all. " * 40, "", None, "Ein schöner Satz. 日本語 שלום мир e\u0323", "a\tb"]
MODIFIERS: list[DocumentModifier] = [
    modifiers.BoilerPlateStringModifier(),
    modifiers.ControlCharacterRemover(),
    modifiers.HtmlEntityUnescaper(),
    modifiers.LineRemover(["Share"]),
    modifiers.MarkdownRemover(),
    modifiers.NewlineNormalizer(),
    modifiers.PiiRedactor(),
    modifiers.QuotationRemover(),
    modifiers.QuotationUnifier(),
    modifiers.Slicer(strip=False),
    modifiers.UnicodeReformatter(),
    modifiers.UrlRemover(),
]
HUGE = ["x" * 10_000_000, "é" * 1_000_000, "\0" * 1_000_000, '"' + "word " * 1_000_000 + '"']


@pytest.mark.parametrize("modifier", MODIFIERS, ids=lambda modifier: modifier.name)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_column_in_which_nothing_changes_is_the_same_object(modifier: DocumentModifier, kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array(CLEAN, kind), pa.array(CLEAN, kind).slice(1)])
    assert modifier.modify_column(column) is column
    batch = DocumentBatch(pa.table({"text": column}))
    assert Modify(modifier).process(batch) is batch


@pytest.mark.parametrize("modifier", MODIFIERS, ids=lambda modifier: modifier.name)
def test_chunk_in_which_nothing_changes_keeps_its_memory(modifier: DocumentModifier) -> None:
    broken = '"**x** \x01 “a” &amp;\n\n\n\nShare\nhttp://a.bc a@b.cd use cookies schÃ¶n"'
    column = pa.chunked_array([pa.array(CLEAN), pa.array([broken])])
    changed = modifier.modify_column(column)
    assert changed.chunk(0).buffers()[2].address == column.chunk(0).buffers()[2].address


@pytest.mark.parametrize("modifier", MODIFIERS, ids=lambda modifier: modifier.name)
@pytest.mark.parametrize("text", HUGE, ids=["word", "letters", "nulls", "words"])
def test_huge_texts(modifier: DocumentModifier, text: str) -> None:
    if isinstance(modifier, modifiers.UnicodeReformatter) and not text.isascii():
        pytest.skip("ftfy alone takes long")
    column = pa.chunked_array([pa.array(["a", text, "b"])])
    assert modifier.modify_column(column).to_pylist() == ["a", modifier.modify_document(text), "b"]


@pytest.mark.parametrize("size", [0, 1, 2, 62, 63, 64, 65, 127, 128, 129, 190, 192, 256, 300])
def test_what_stands_at_the_end_of_a_buffer_is_found(size: int) -> None:
    tails = [
        "“",
        "\r",
        "\x07",
        " ",
        "\t ",
        "\n\n\n",
        "www.x",
        "http://é",
        "*a*",
        "[a](b)",
        "\nShare",
        "&lt;",
        "e\u0301",
    ]
    texts = [f"{'a' * size}{tail}" for tail in tails]
    every = [*MODIFIERS, modifiers.WhitespaceCollapser(), modifiers.UnicodeNormalizer(), modifiers.Slicer(2, -1)]
    for text in texts:
        data = pa.py_buffer(text.encode())  # of exactly that size
        offsets = pa.py_buffer(memoryview(pa.array([0, len(data)], pa.int64()).buffers()[1])[:16])
        column = pa.chunked_array([pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, data])])
        for modifier in every:
            assert modifier.modify_column(column).to_pylist() == [modifier.modify_document(text)], modifier.name


ALPHABET = "abAB1-é "
NEEDLES = {
    "exact": (Needles.of(exactly("ab"), exactly("é")), lambda text: "ab" in text or "é" in text),
    "one byte": (Needles.of(exactly("-")), lambda text: "-" in text),
    "any case": (Needles.of(any_case("aba")), lambda text: "aba" in text.lower()),
    "digits": (Needles.of(digits(2), [*digits(1), *exactly("-")]), lambda text: "11" in text or "1-" in text),
}


@pytest.mark.parametrize("name", NEEDLES)
@examples(300)
@given(texts=st.lists(st.text(ALPHABET, max_size=150), max_size=8), cut=st.integers(0, 3))
def test_texts_with_a_needle_are_found(name: str, texts: list[str], cut: int) -> None:
    needles, contains = NEEDLES[name]
    rows = rows_with(pa.array([*texts, None], pa.string()).slice(cut), needles)
    assert rows is not None
    assert rows.tolist() == [row for row, text in enumerate(texts[cut:]) if contains(text)]


def test_without_kernels_the_results_are_the_same(tmp_path: Path) -> None:
    broken = '"**x** \x01 “a” &amp;\n\n\n\nShare\nhttp://a.bc a@b.cd use cookies schÃ¶n"'
    texts = [broken, None, "e\u0301 \t\nb ", "clean"]
    every = [*MODIFIERS, modifiers.WhitespaceCollapser(), modifiers.UnicodeNormalizer(), modifiers.Slicer(2, -1)]
    script = tmp_path / "modify.py"
    script.write_text(
        "import json, sys, pyarrow as pa\nfrom tamis.stages.text.modifiers import *\n"
        "column = pa.chunked_array([json.loads(sys.argv[1])])\n"
        f"print(json.dumps([m.modify_column(column).to_pylist() for m in {every!r}]))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, script, json.dumps(texts)],
        env={**os.environ, "TAMIS_KERNELS": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    column = pa.chunked_array([pa.array(texts)])
    assert json.loads(done.stdout) == [modifier.modify_column(column).to_pylist() for modifier in every]
