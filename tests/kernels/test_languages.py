"""Counts of letters by language: the kernel against its definition in plain Python, with the real tables."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.kernels import native
from tamis.kernels.languages import ShareOfLetters, count_letters
from tamis.kernels.utf8 import Utf8
from tamis.models.cld2 import cld2_tables
from tamis.quickstart import sample_files

PIECES = (
    *("the ", "library ", "is open ", "Bibliothek ", "geöffnet", "ÉCOLE ", "библиотека ", "ЁЖИК"),
    *("図書館", "へ", "圖書", "书", "도서관 ", "ελληνικά ", "ไทย", "עברית ", "العربية ", "42, ", "\n"),
    *("\u2019", "\u0301", "\U00010338", "\U0001f469", "aaaa", "x" * 150, " "),
)
ALPHABETS = st.characters(max_codepoint=0x24F) | st.characters(exclude_categories=["Cs"])
TEXTS = st.text(ALPHABETS, max_size=80) | st.lists(st.sampled_from(PIECES), max_size=400).map("".join)


def counted(texts: list[bytes], has_samples: bool) -> list[list[object]]:
    tables = cld2_tables()
    assert tables is not None, "the package pycld2 exports no tables"
    column = Utf8.from_arrow(pa.array(texts, pa.binary()).view(pa.string()))
    found = count_letters(column.data, column.offsets, column.offsets[1:], tables, has_samples)
    return as_lists(found)


def as_lists(found: ShareOfLetters) -> list[list[object]]:
    return [part.tolist() for part in (found.language, found.nbytes, found.letters, found.is_sure)]


def plain(texts: list[bytes], has_samples: bool) -> list[list[object]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        return counted(texts, has_samples)


@examples(150)
@given(texts=st.lists(TEXTS, max_size=4), has_samples=st.booleans())
@example(texts=["", " ", "é", "a" * 1000, "é" * 700, "図" * 400, "Ж" * 500 + "w" * 500], has_samples=True)
def test_kernel_counts_what_the_plain_definition_does(texts: list[str], has_samples: bool) -> None:
    encoded = [text.encode() for text in texts]
    assert counted(encoded, has_samples) == plain(encoded, has_samples)


@examples(50)
@given(texts=st.lists(st.binary(max_size=60), max_size=4))
@example(texts=[b"the library \xc3", b"\xe5\x9b", b"\xf0", b"\x80 a"])
def test_bytes_that_are_not_utf8_do_no_harm(texts: list[bytes]) -> None:
    together = counted(texts, has_samples=True)
    assert together == plain(texts, has_samples=True)


def test_real_documents() -> None:
    (file,) = [file for file in sample_files() if file.endswith("docs-world-2.jsonl.gz")]
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"].encode()[:3000] for line in list(lines)[::25]]
    for has_samples in (False, True):
        assert counted(texts, has_samples) == plain(texts, has_samples)
