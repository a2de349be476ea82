"""What the report shows of duplicates."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import Page

from tamis.runs.duplicates import Duplicates
from tamis.runs.pages import duplicate_section
from tamis.runs.result import RunResult
from tamis.runs.text_differences import compared, shortened_spans
from tests.support.duplicate_runs import run_planted
from tests.support.sample_runs import EVIL, duplicates_run


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run_planted(tmp_path_factory.mktemp("planted"))


def test_the_report_shows_groups_pairs_and_sources(result: RunResult) -> None:
    page = Page(Path(result.run_dir, "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.text.split())
    assert "Duplicates: FuzzyDeduplication 25 of 65 rows removed (38.5%); 15 groups" in text
    assert "Rows in a group Share of the most frequent Groups Rows removed 2 10 10 4 5 15" in text
    assert "similarity 0.9" in text
    assert "with one <i>more</i> sentence" in text
    assert "Folder Rows read Removed Share web 50 15 30.0% books 15 10 66.7%" in text
    assert "books books 10 web web 10 web books 5" in text


def test_hostile_duplicates_are_shown_and_do_nothing(tmp_path: Path) -> None:
    run = duplicates_run(tmp_path / "run", tmp_path / "data")
    page = Page(Path(run.run_dir, "report.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert f"Duplicates: similar {EVIL}" in page.text


def test_a_large_ledger_is_read_in_part(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    files = len(list(Path(result.run_dir, "drops").glob("*.parquet")))
    assert files > 1
    found = Duplicates(result.run_dir, most_rows=1)
    assert found.is_partial
    assert 0 < found.removed < 25
    assert not result.duplicates().is_partial
    monkeypatch.setattr(duplicate_section, "_MOST_ROWS", 1)
    (shown,) = duplicate_section.duplicates_sections(found._view)
    assert "25 of 65 rows removed" in shown
    assert f"counted from {found.removed} of them" in shown
    assert "Sizes of groups" not in shown


_TEXTS = st.text(st.sampled_from("ab \n字句.<"), max_size=60)


@given(_TEXTS, _TEXTS)
def test_the_spans_of_two_texts_hold_all_their_words(one: str, other: str) -> None:
    spans = compared(one, other)
    for text, side in ((one, "one"), (other, "other")):
        assert " ".join("".join("".join(getattr(span, side)) for span in spans).split()) == " ".join(text.split())
    for span in spans:
        assert span.equal == ([word.strip() for word in span.one] == [word.strip() for word in span.other])
    assert all(a.equal != b.equal for a, b in itertools.pairwise(spans))


@given(_TEXTS, _TEXTS, st.integers(1, 4), st.integers(1, 20))
def test_what_is_left_out_is_counted(one: str, other: str, around: int, most: int) -> None:
    spans = compared(one, other)
    shown = shortened_spans(spans, around, most)
    assert sum(len(s.one) + s.skipped_one for s in shown) == sum(len(s.one) for s in spans)
    assert sum(len(s.other) + s.skipped_other for s in shown) == sum(len(s.other) for s in spans)
    assert sum(len(s.one) for s in shown if not s.equal) <= most


def test_long_texts_are_compared_in_little_time() -> None:
    one = " ".join(f"a{n}" for n in range(100_000))
    other = " ".join(f"b{n}" for n in range(100_000))
    assert [(span.equal, len(span.one)) for span in compared(f"x {one} y", f"x {other} y")] == [
        (True, 1),
        (False, 100_000),
        (True, 1),
    ]
