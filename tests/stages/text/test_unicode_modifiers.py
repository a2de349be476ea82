"""The repair of broken text gives what ftfy gives for the whole text, whatever the options."""

# ruff: noqa: RUF001 - characters that look like others are what this is about

from __future__ import annotations

import unicodedata
from typing import Any

import ftfy
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.stages.text.modifiers import Modify, UnicodeNormalizer, UnicodeReformatter
from tamis.stages.text.modifiers.mojibake import find_suspects
from tamis.tasks import DocumentBatch

MANY = examples(250, suppress_health_check=[HealthCheck.too_slow])
ENCODINGS = [
    *["latin-1", "sloppy-windows-1252", "sloppy-windows-1251", "sloppy-windows-1250", "sloppy-windows-1253"],
    *["sloppy-windows-1254", "sloppy-windows-1257", "iso-8859-2", "macroman", "cp437"],
]
SOUND = ["schön", "naïve café", "Добрый день", "Ελληνικά", "日本語", "العربية", "ž“quoted”…", "plain", "5 € – £", "x²"]
CHARACTERS = (
    "ÃÂÎÐØÙ€œŠš¢ß×²à√≈‚âвЂāβ™°µ aZ\n\r\t&<;.,\xa0\xad\x85\x9f…–\u2019“”ŒГўВ│█¶§½"
    "\u0301\u0323ﬁ가\u1161𝒜🙂\ufeff\x1b[\x7f\ufffd"
)
PARTS = [
    *["&lt;", "&#0;", "&EACUTE;", "&x", "<b>", "\x1b[31m", "\r\n", "\u2028", "\u206a", "Ａ", "ｱ", "ГўВЂВ™s", "вЂ"],
    *["â€œ", "Â ", "\u2018&#0;\u2019", "à ", "Ã ", "e\u0301", "\u1100\u1161\u11a8", "\n"],
]
OPTIONS: dict[str, Any] = {
    **{name: st.booleans() for name in ftfy.TextFixerConfig._fields if name not in ("normalization", "explain")},
    "unescape_html": st.sampled_from(["auto", True, False]),
    "normalization": st.sampled_from([None, "NFC", "NFD", "NFKC", "NFKD"]),
    "max_decode_length": st.sampled_from([1_000_000, 8, 40]),
    "explain": st.booleans(),
}


def damaged(text: str, encodings: list[str]) -> str:
    """The text, written as UTF-8 and read as something else, once or twice."""
    for encoding in encodings:
        text = text.encode().decode(encoding, "replace")
    return text


BROKEN = st.builds(damaged, st.sampled_from(SOUND), st.lists(st.sampled_from(ENCODINGS), max_size=2))
LINES = st.lists(st.one_of(BROKEN, st.sampled_from(PARTS), st.text(CHARACTERS, max_size=8)), max_size=8).map("".join)


@pytest.mark.slow
@MANY
@given(texts=st.lists(LINES, max_size=4), options=st.fixed_dictionaries(OPTIONS))
@example(texts=["example, or \u2018&#0;\u2019)."], options={})
@example(texts=["&lt;\n<b>\n&lt; schÃ¶n\n"], options={})
@example(texts=["a Ã b\n", "Ã b"], options={"max_decode_length": 8})
@example(texts=["&amp; a b c d <b>"], options={"max_decode_length": 8})
def test_repair_equals_ftfy_on_the_whole_text(texts: list[str], options: dict[str, Any]) -> None:
    config = ftfy.TextFixerConfig(**options)
    column = pa.chunked_array([pa.array([None, *texts], pa.string())])
    repaired = UnicodeReformatter(config).modify_column(column)
    assert repaired.to_pylist() == [None, *(ftfy.fix_text(text, config) for text in texts)]


@MANY
@given(text=st.text(), form=st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_normal_form_is_that_of_python(text: str, form: Any) -> None:
    assert UnicodeNormalizer(form).modify_column(pa.chunked_array([[text]])).to_pylist() == [
        unicodedata.normalize(form, text)
    ]


def test_only_the_lines_that_may_be_broken_go_through_ftfy() -> None:
    text = "Ein schöner, naïver Satz – “mit” Zeichen…\nschÃ¶n\nДобрый день, 日本語, 5 €.\n"
    lines = find_suspects(pa.array(["plain", text]), ftfy.TextFixerConfig(uncurl_quotes=False, normalization=None))
    assert lines is not None
    (line,) = lines.tolist()
    assert (line[0], text.encode()[line[1] : line[2]].decode()) == (1, "schÃ¶n\n")


@pytest.mark.parametrize("modifier", [UnicodeReformatter(), UnicodeNormalizer(), UnicodeNormalizer("NFKC")])
def test_sound_text_is_passed_on_as_it_is(modifier: Any) -> None:
    batch = DocumentBatch({"text": ["Ein schöner Satz.", None, "Добрый день", "日本語", "שלום"]})
    assert Modify(modifier).process(batch) is batch


def test_normal_form_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="one of NFC, NFD, NFKC, NFKD"):
        UnicodeNormalizer("nfc")  # type: ignore[arg-type]  # the error is the point


def test_options_that_ftfy_cannot_work_with_are_refused() -> None:
    with pytest.raises(ValueError, match="max_decode_length=0"):
        UnicodeReformatter(max_decode_length=0)
    with pytest.raises(ValueError, match="one of NFC, NFD, NFKC, NFKD, or None"):
        UnicodeReformatter(ftfy.TextFixerConfig(normalization="nfc"))  # type: ignore[arg-type]  # the error is the point


def test_long_line_of_entities_before_markup_is_left_alone_quickly() -> None:
    column = pa.chunked_array([["&amp;" * 150_000 + "<b>"]])
    assert UnicodeReformatter().modify_column(column) is column
