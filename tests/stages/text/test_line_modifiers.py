"""Rules about single lines: both forms agree, texts they leave alone stay what they are, and what goes is counted."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.stages.text.modifiers import C4LineCleaner, CleanLines, Modify, RefinedWebLineCleaner, UrlRemover
from tamis.stages.text.modifiers.line_rules import LineModifier
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

PARTS = [
    *["the", "be", "word", "Word", "WORD", "É", "ΓΔ", "Ⅷ", "Ⓐ", "x" * 12, "日本語", "e\u0301", "lore\u017f", "and"],
    *[" ", "  ", "\t", "\n", "\n\n", "\r\n", "\x1c", "\x85", "\u3000", "\u2028", "\0"],
    *[".", "!", "...", '"', "”", "。", "{", "12", "٣५", "²", "3 likes", "1.2K Views!", "k", "likes"],
    *["[1]", "[edit]", "[]", "[citation needed]", "javascript", "JavaScript", "JAVASCR\u0130PT"],
    *["use coo\u212aies", "Terms Of Use", "read more...", "Read More", "ITEMS in cart", "sign-in", "Sign-In "],
]
SOME = st.lists(st.sampled_from(PARTS), max_size=25)
TEXTS = st.lists(st.one_of(st.text(), SOME.map("".join), SOME.map(" ".join)), max_size=4)
MODIFIERS: list[LineModifier] = [
    C4LineCleaner(),
    C4LineCleaner(end_marks=None, min_words=2, max_word_length=8),
    C4LineCleaner(end_marks="語。", min_words=None, citations=False),
    RefinedWebLineCleaner(),
    RefinedWebLineCleaner(
        max_upper_case_ratio=0.3, min_words=None, line_ends=["a.b", "日本"], max_words_of_short_line=3
    ),
    RefinedWebLineCleaner(min_words=3, phrases=["the the", "(", "the", "\u0130"]),
]


@pytest.mark.parametrize("modifier", MODIFIERS, ids=range(len(MODIFIERS)))
@examples(100, suppress_health_check=[HealthCheck.too_slow])
@given(texts=TEXTS)
@example(texts=["", " ", "\n", "A", "A.B", "0reAD MORE...", "a\n\n\nSHOUT\n"])
def test_both_forms_give_the_same(modifier: LineModifier, texts: list[str]) -> None:
    assert modifier.vectorised
    column = pa.chunked_array([pa.array([*texts, None], pa.string())])
    cleaned = modifier.clean(column)
    assert cleaned.column.to_pylist() == [*map(modifier.modify_document, texts), None]
    removed = [sum(modifier.clean_line(line) is None for line in text.split("\n")) for text in texts]
    assert sum(cleaned.removed.values()).tolist() == [*removed, 0]  # type: ignore[union-attr]  # there are rules


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_chunks_and_types_make_no_difference(kind: pa.DataType) -> None:
    texts = ["not seen", "MENU HERE\nIt is so.", None, "It is so, too.", "42\nIt was so."]
    whole = pa.array(texts, kind)
    column = pa.chunked_array([whole.slice(1, 2), whole.slice(0, 0), whole.slice(3)])
    cleaned = RefinedWebLineCleaner().modify_column(column)
    assert (cleaned.type, cleaned.to_pylist()) == (kind, ["It is so.", None, "It is so, too.", "It was so."])
    assert len(RefinedWebLineCleaner().modify_column(pa.chunked_array([], kind))) == 0


@pytest.mark.parametrize(
    "modifier", [C4LineCleaner(min_words=2000), RefinedWebLineCleaner(max_words_of_short_line=100_000)], ids=repr
)
def test_limits_may_be_large(modifier: LineModifier) -> None:
    texts = ["It goes on. Read more...", "word " * 1999 + "end.", "word " * 1998 + "end."]
    expected = [modifier.modify_document(text) for text in texts]
    assert modifier.modify_column(pa.chunked_array([texts])).to_pylist() == expected


def test_clean_text_is_not_copied() -> None:
    column = pa.chunked_array(
        [["This is a line of some words.\nThis is another of them!", "And this one, too, is one."]]
    )
    assert C4LineCleaner().modify_column(column) is column
    assert RefinedWebLineCleaner().modify_column(column) is column


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("The quick brown fox jumps.", True),
        ('He said: "I will be back"', True),
        ("The quick brown fox jumps", False),
        ("The quick brown fox jumps...", False),
        ("Only four words here.", False),
        (f"A word that is too {'x' * 1001} long.", False),
        ("Please enable JavaScript to go on.", False),
        ("By this you accept our Privacy Policy.", False),
    ],
)
def test_what_c4_takes_for_a_sentence(line: str, stays: bool) -> None:
    assert (C4LineCleaner().clean_line(line) == line) is stays


def test_c4_cuts_citation_marks_out() -> None:
    assert C4LineCleaner().clean_line("It has [12] been said before.[citation needed]") == "It has  been said before."


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("This is a line.", "This is a line."),
        ("", ""),
        ("SHARE THIS Page", None),
        ("2024", None),
        ("٣", None),
        ("3 likes", None),
        ("· 1,204.5K Followers ·", None),
        ("It has 3 likes", "It has 3 likes"),
        ("Home", None),
        ("The cat sat. Read more...", "The cat sat."),
        ("Sign-in to see it", "to see it"),
        ("You have 3 items in cart now", "You have 3 now"),
        ("Items in cart", None),
        ("A line of more than ten words is never cut, whatever it says: read more", "...: read more"),
    ],
)
def test_what_refinedweb_takes_out(line: str, after: str | None) -> None:
    expected = line if after is not None and after.startswith("...") else after
    assert RefinedWebLineCleaner().clean_line(line) == expected


# --- the stage ------------------------------------------------------------------------------------------------------

TEXT = "MENU HERE\nOne two three four five six seven.\n3 likes"


def test_documents_that_lose_too_much_are_dropped() -> None:
    stage = CleanLines(RefinedWebLineCleaner(), max_removed_words_ratio=0.3, removed_words_field="lost")
    rows = run_stage(stage, [{"text": TEXT}, {"text": TEXT + "\nOne two three four five six seven."}, {"text": None}])
    assert [row["text"] for row in rows] == [TEXT.split("\n")[1] + "\n" + TEXT.split("\n")[1], None]
    assert [row["lost"] for row in rows] == [4 / 18, 0.0]
    assert [reason for _, reason in rows.dropped] == ["removed_words > 0.3"]


@pytest.mark.parametrize("stage", [CleanLines(RefinedWebLineCleaner()), Modify(RefinedWebLineCleaner())], ids=repr)
def test_removed_lines_are_counted_by_rule(stage: CleanLines | Modify) -> None:
    rows = run_stage(stage, [{"text": TEXT}, {"text": "Fine as it is."}])
    assert [row["text"] for row in rows] == ["One two three four five six seven.", "Fine as it is."]
    counted = {name.removeprefix("lines_removed_"): value for name, value in rows.stages[-1].custom.items()}
    assert {name: value for name, value in counted.items() if value} == {"upper_case": 1, "counters": 1}


def test_nothing_is_left_of_a_batch() -> None:
    stage = CleanLines(RefinedWebLineCleaner(), max_removed_words_ratio=0.0)
    rows = run_stage(stage, DocumentBatch({"text": ["MENU HERE"]}))
    assert (list(rows), len(rows.dropped)) == ([], 1)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(TypeError, match="takes a LineModifier"):
        CleanLines(UrlRemover())  # type: ignore[arg-type]  # the error is the point
    with pytest.raises(ValueError, match="give a list of texts"):
        RefinedWebLineCleaner(phrases="items in cart")  # type: ignore[arg-type]  # the error is the point
    with pytest.raises(ValueError, match="None turns the rule off"):
        C4LineCleaner(end_marks="")
