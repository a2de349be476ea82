"""The published sets decide as their rules, applied one after the other by their plain definitions, would."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.quickstart import sample_files
from tamis.stages.base import CompositeStage
from tamis.stages.text.filters import DocumentFilter, ScoreFilter, SentenceCountFilter
from tamis.stages.text.modifiers import RefinedWebLineCleaner
from tamis.stages.text.sets import (
    C4Quality,
    DclmHeuristics,
    EnglishHeuristics,
    FineWebQuality,
    GopherQuality,
    GopherRepetition,
    NonEnglishHeuristics,
)
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

PARTS = [
    *["the", "of", "and", "to be", "that", "have", "word", "Word", "WORDS", "日本語", "мир", "a1", "12", "#tag", "##"],
    *[".", ". ", "!", "...", "…", '."', "。", "\n", "\n\n", "\n• ", "\n- ", "  ", "{", "(", "read more", "3 likes\n"],
    *["Lorem ipsum", "JavaScript", "terms of use", "http://a.bc/d", "[1]", "Home\n", "MENU HERE\n", "damn"],
    "The quick brown fox jumps over the lazy dog and has to be quick with that.\n",
    "It was the best of times, it was the worst of times. So they say! ",
]
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=80).map(" ".join), max_size=4)
FEW = examples(40, suppress_health_check=[HealthCheck.too_slow])


@functools.cache
def sample() -> list[str]:
    """Every twelfth document of the sample data set, which has some of each of its languages."""
    texts = []
    for path in sample_files():
        with fsspec.open(path, "rt", encoding="utf-8", errors="replace", compression="infer") as file:
            for line in file:
                try:
                    texts.append(json.loads(line)["text"])
                except (ValueError, KeyError, TypeError):
                    continue
    return [text for text in texts if isinstance(text, str)][::12]


def all_keep(text: str, filters: Sequence[DocumentFilter]) -> bool:
    return all(filter_.keep_document(filter_.score_document(text)) for filter_ in filters)


def by_filters(stage: Any) -> Callable[[str], str | None]:
    return lambda text: text if all_keep(text, stage.filters()) else None


def c4_by_row(stage: C4Quality) -> Callable[[str], str | None]:
    def cleaned(text: str) -> str | None:
        if not all_keep(text, stage.page_filters()):
            return None
        text = stage.line_cleaner().modify_document(text)
        return text if all_keep(text, [SentenceCountFilter(stage.min_sentences)]) else None

    return cleaned


def dclm_by_row(stage: DclmHeuristics) -> Callable[[str], str | None]:
    def cleaned(text: str) -> str | None:
        for modifier in stage.cleaners():
            text = modifier.modify_document(text)
        if not all_keep(text, [*stage.quality_filters(), *GopherRepetition(language=stage.language).filters()]):
            return None
        after, words = RefinedWebLineCleaner().modify_document(text), len(text.split())
        return after if (words - len(after.split())) / max(words, 1) <= stage.max_removed_words_ratio else None

    return cleaned


C4 = C4Quality(bad_words=["damn", "worst"])
SETS: list[tuple[CompositeStage[Any, Any], Callable[[str], str | None]]] = [
    *((stage, by_filters(stage)) for stage in (GopherQuality(), GopherQuality(language="fr"), GopherRepetition())),
    *((stage, by_filters(stage)) for stage in (FineWebQuality(), EnglishHeuristics(), NonEnglishHeuristics())),
    *((stage, c4_by_row(stage)) for stage in (C4Quality(), C4, C4Quality(end_marks=None, min_words_per_line=3))),
    *((stage, dclm_by_row(stage)) for stage in (DclmHeuristics(), DclmHeuristics(language="de"))),
]
IDS = [f"{number}-{type(stage).__name__}" for number, (stage, _) in enumerate(SETS)]


def kept(stage: CompositeStage[Any, Any], texts: list[str]) -> list[tuple[int, str]]:
    """What the stages of a set leave, by number."""
    if not texts:
        return []
    batch = stage.process(DocumentBatch({"text": texts, "n": list(range(len(texts)))}))
    return [(row["n"], row["text"]) for row in batch.data.to_pylist()]


def expected(definition: Callable[[str], str | None], texts: list[str]) -> list[tuple[int, str]]:
    return [(n, after) for n, text in enumerate(texts) if (after := definition(text)) is not None]


@pytest.mark.parametrize(("stage", "definition"), SETS, ids=IDS)
def test_set_decides_on_real_documents_as_its_definitions_do(
    stage: CompositeStage[Any, Any], definition: Callable[[str], str | None]
) -> None:
    wanted = expected(definition, sample())
    assert kept(stage, sample()) == wanted
    assert 0 < len(wanted) < len(sample())


@pytest.mark.parametrize(("stage", "definition"), SETS, ids=IDS)
@FEW
@given(texts=TEXTS)
def test_set_decides_on_any_text_as_its_definitions_do(
    stage: CompositeStage[Any, Any], definition: Callable[[str], str | None], texts: list[str]
) -> None:
    assert kept(stage, texts) == expected(definition, texts)


def test_english_cascade_keeps_what_28_stages_keep() -> None:
    filters = EnglishHeuristics().filters()
    assert len(filters) == 28
    rows = [{"n": n, "text": text} for n, text in enumerate(sample())]
    separately = rows
    for filter_ in filters:
        separately = run_stage(ScoreFilter(filter_), separately)
    assert list(run_stage(EnglishHeuristics(), rows)) == list(separately)


def test_non_english_cascade_is_the_english_one_without_what_is_english() -> None:
    english = [repr(filter_) for filter_ in EnglishHeuristics().filters()]
    others = [repr(filter_).replace("'und'", "'en'") for filter_ in NonEnglishHeuristics().filters()]
    left_out = [filter_ for filter_ in english if filter_ not in others]
    assert [filter_ for filter_ in english if filter_ in others] == others
    assert [filter_.partition("(")[0] for filter_ in left_out] == [
        "NonAlphaNumericFilter",
        "WordsWithoutAlphabetsFilter",
        "CommonEnglishWordsFilter",
    ]


@pytest.mark.parametrize(("stage", "definition"), SETS, ids=IDS)
def test_scores_become_columns_and_change_nothing(
    stage: CompositeStage[Any, Any], definition: Callable[[str], str | None]
) -> None:
    scored = type(stage)(**{**stage.parameters(), "score_fields": True})
    plain, rows = (run_stage(s, [{"text": text} for text in sample()]) for s in (stage, scored))
    assert [row["text"] for row in rows] == [row["text"] for row in plain]
    columns = [column for part in scored.unfold() for column in part.outputs()[1] if column != "text"]
    assert len(columns) == len(set(columns)) == len(rows[0]) - 1
    assert all(row[column] is not None for row in rows for column in columns)


def test_every_dropped_row_has_a_reason_of_its_rule() -> None:
    rows = run_stage(C4, [{"text": "int main() { }"}, {"text": "Oh damn."}, {"text": "A title"}])
    assert {row["text"]: reason for row, reason in rows.dropped} == {
        "int main() { }": "'{' in the text",
        "Oh damn.": "a word of the list of bad words",
        "": "sentence_count < 3",
    }


def test_another_column_can_be_judged() -> None:
    rows = [{"body": text, "text": None} for text in sample()]
    judged = run_stage(FineWebQuality(text_field="body"), rows)
    assert [row["body"] for row in judged] == [text for _, text in kept(FineWebQuality(), sample())]


def test_bad_words_can_come_from_a_file(tmp_path: Any) -> None:
    (tmp_path / "words.txt").write_text("\ufeffheck\n\ndamn\n", encoding="utf-8")  # as some editors begin files
    stage = C4Quality(bad_words_file=str(tmp_path / "words.txt"), min_sentences=0)
    rows = run_stage(stage, [{"text": "What the HECK is that?"}, {"text": "Nothing at all is there."}])
    assert [row["text"] for row in rows] == ["Nothing at all is there."]
    with pytest.raises(ValueError, match=r"nowhere\.txt.*cannot be read"):
        C4Quality(bad_words_file="nowhere.txt").decompose()
