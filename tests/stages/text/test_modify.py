"""The Modify stage, and what each modifier does."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from tamis.errors import ColumnError, MissingExtraError
from tamis.stages.text.modifiers import (
    BoilerPlateStringModifier,
    ControlCharacterRemover,
    DocumentModifier,
    LineRemover,
    MarkdownRemover,
    Modify,
    NewlineNormalizer,
    QuotationRemover,
    QuotationUnifier,
    Slicer,
    UnicodeReformatter,
    UrlRemover,
    WhitespaceCollapser,
)
from tamis.tasks import DocumentBatch

CHANGES = [
    (QuotationUnifier(), "\u2018a\u2019 “b” „c“ «d»", '\'a\' "b" "c" «d»'),
    (UnicodeReformatter(), "schÃ¶n &lt;", "schön <"),
    (UnicodeReformatter(), "&lt;b> &amp;", "<b> &"),
    (UnicodeReformatter(), "“curly” ﬁ", "“curly” ﬁ"),
    (UnicodeReformatter(uncurl_quotes=True), "“curly”", '"curly"'),
    (NewlineNormalizer(), "a\n\n\n\nb\r\n\r\n\r\nc\n\nd", "a\n\nb\r\n\r\nc\n\nd"),
    (UrlRemover(), "a HTTP://b.c/d,e www.f\x1cg wwwh", "a  \x1cg wwwh"),
    (LineRemover(["x", ""]), "a\nx\n\n x\nb", "a\n x\nb"),
    (LineRemover(["x"]), "x", ""),
    (MarkdownRemover(), "**a** *b* _c_ [d](e)\n*f\ng*", "a b c e\n*f\ng*"),
    (QuotationRemover(), '"a"', "a"),
    (QuotationRemover(), '"a\nb"', "a\nb"),
    (QuotationRemover(), '"a"\n"b"', '"a"\n"b"'),
    (QuotationRemover(), '""', '""'),
    (Slicer(1, 3), "abcd", "bc"),
    (Slicer("<", ">"), "a <b> c> d", "<b> c>"),
    (Slicer("<", ">", include_left=False, include_right=False, strip=False), "a < b > c", " b "),
    (Slicer("<"), "a", ""),
    (Slicer(right="!"), "a", ""),
    (BoilerPlateStringModifier(), "Terms of Use\n\na\n\nb", "a\n\nb"),
    (BoilerPlateStringModifier(), "a\n\nuse cookies\n\nb", "a\n\nuse cookies\n\nb"),
    (BoilerPlateStringModifier(), "use cookies\n\na\n\nuse cookies", "use cookies\n\na\n\nuse cookies"),
    (BoilerPlateStringModifier(), "use cookies\n\nprivacy policy", "use cookies\n\nprivacy policy"),
    (BoilerPlateStringModifier(remove_if_at_top_or_bottom=False), "a\n\nuse cookies\n\nb", ""),
    (BoilerPlateStringModifier(), "a\n\nLorem Ipsum", ""),
    (ControlCharacterRemover(), "a\x00\x1b\x7f\x85b\tc\r\nd\re\n", "ab\tc\nd\ne\n"),
    (WhitespaceCollapser(), " a \t b\t\n\n\tc  \xa0 ", " a b\n\n c \xa0"),
]


@pytest.mark.parametrize(("modifier", "text", "changed"), CHANGES, ids=lambda v: getattr(v, "name", None))
def test_modifier(modifier: DocumentModifier, text: str, changed: str) -> None:
    batch = Modify(modifier).process(DocumentBatch({"text": [text, "same", None]}))
    assert modifier.modify_document(text) == changed
    assert batch.data["text"].to_pylist()[0] == changed


def one(text: str | None = "a") -> DocumentBatch:
    return DocumentBatch({"title": ["T"], "text": [text]}, dataset_name="d", task_id="t")


@pytest.mark.parametrize("modifier", [QuotationUnifier(), UnicodeReformatter(), UrlRemover(), Slicer(), str.strip])
def test_column_that_does_not_change_is_not_copied(modifier: Any) -> None:
    batch = one()
    result = Modify(modifier).process(batch)
    assert result is batch


def test_other_columns_and_identity_are_kept() -> None:
    result = Modify(str.upper).process(one())
    assert result.data.to_pylist() == [{"title": "T", "text": "A"}]
    assert (result.dataset_name, result.task_id) == ("d", "t")


def test_null_stays_null_and_functions_do_not_see_it() -> None:
    result = Modify([str.upper, QuotationUnifier(), UnicodeReformatter()]).process(one(None))
    assert result.data["text"].to_pylist() == [None]


def test_several_modifiers_work_one_after_the_other() -> None:
    result = Modify([QuotationUnifier(), QuotationRemover(), str.upper]).process(one("“a”"))
    assert result.data["text"].to_pylist() == ["A"]


def test_result_may_go_into_another_column() -> None:
    stage = Modify(str.upper, output_fields="loud")
    assert stage.process(one()).data.to_pylist() == [{"title": "T", "text": "a", "loud": "A"}]
    assert (stage.inputs(), stage.outputs()) == ((["data"], ["text"]), (["data"], ["loud"]))
    assert stage.columns_after(frozenset({"text"})) == frozenset({"text", "loud"})


def test_modifiers_may_have_columns_of_their_own() -> None:
    stage = Modify([str.lower, str.upper], input_fields=["title", "text"], output_fields=[None, "loud"])
    assert stage.process(one()).data.to_pylist() == [{"title": "t", "text": "a", "loud": "A"}]


def test_function_of_several_columns_gets_them_by_name() -> None:
    stage = Modify(lambda title, text: f"{title}: {text}", ["title", "text"], "both")
    assert stage.process(one(None)).data["both"].to_pylist() == ["T: None"]
    assert stage.inputs() == (["data"], ["title", "text"])


def test_later_modifier_may_read_what_an_earlier_one_wrote() -> None:
    stage = Modify(
        [lambda title, text: title + text, str.lower], [["title", "text"], "both"], output_fields=["both", None]
    )
    assert stage.process(one("A")).data["both"].to_pylist() == ["ta"]
    assert stage.inputs() == (["data"], ["title", "text"])


def test_function_may_return_something_else_than_text() -> None:
    result = Modify(len, output_fields="length").process(one("abc"))
    assert result.data["length"].to_pylist() == [3]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_type_of_the_column_is_kept(kind: pa.DataType) -> None:
    batch = DocumentBatch({"text": pa.array(["“a”", None], kind)})
    for modifier in (QuotationUnifier(), str.upper, UnicodeReformatter(uncurl_quotes=True)):
        assert Modify(modifier).process(batch).data["text"].type == kind


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (Modify(QuotationUnifier()), True),
        (Modify([QuotationUnifier(), UrlRemover()]), True),
        (Modify([QuotationUnifier(), str.upper]), False),
        (Modify(Slicer()), True),
        (Modify(UnicodeReformatter()), False),
    ],
)
def test_stage_releases_the_lock_only_if_all_of_it_is_vectorised(stage: Modify, expected: bool) -> None:
    assert stage.releases_gil is expected


def test_stage_is_named_after_its_modifiers() -> None:
    assert Modify(QuotationUnifier()).name == "QuotationUnifier"
    assert Modify([UrlRemover(), str.upper]).name == "Modify_chain_of_UrlRemover_upper"


def test_new_row_form_in_a_subclass_replaces_the_inherited_column_form() -> None:
    class Louder(UrlRemover):
        def modify_document(self, text: str) -> str:
            return super().modify_document(text).upper()

    assert Modify(Louder()).process(one()).data["text"].to_pylist() == ["A"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Modify([]),
        lambda: Modify([str.upper, str.lower], ["a", "b", "c"]),
        lambda: Modify([str.upper, str.lower], output_fields="a"),
        lambda: Modify(lambda title, text: "", ["title", "text"]),
    ],
)
def test_columns_that_do_not_fit_the_modifiers_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"is empty|one entry each|as many columns|say in output_fields"):
        make()


def test_class_instead_of_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match=r"give an object: UrlRemover\("):
        Modify(UrlRemover)


def test_missing_column_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ColumnError, match=r"there is no column 'txt'.*Did you mean 'text'"):
        Modify(UrlRemover(), "txt").process(one())


def test_lines_given_as_one_text_are_refused() -> None:
    with pytest.raises(TypeError, match="give a list of lines"):
        LineRemover("Share")  # type: ignore[arg-type]  # the error is the point


def test_missing_ftfy_is_said_when_the_stage_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(MissingExtraError, match=r"UnicodeReformatter needs the package 'ftfy'.*\[unicode\]"):
        UnicodeReformatter()
