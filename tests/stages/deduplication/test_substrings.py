"""Repeated spans are removed as the definition says, byte for byte, whatever tasks, memory and executors are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.deduplication.substrings import REASON, SubstringDeduplication
from tamis.stages.io import JsonlReader
from tamis.tasks import DocumentBatch
from tamis.testing import run_everywhere, run_stage

Texts = Sequence[str | None]


def covered(documents: list[Sequence[Any]], length: int, keep: str) -> list[set[int]]:
    """The units of each document that lie in a repeated window: the definition."""
    windows = [(number, at) for number, units in enumerate(documents) for at in range(len(units) - length + 1)]
    contents = [tuple(documents[number][at : at + length]) for number, at in windows]
    counts, seen = Counter(contents), set()
    removed: list[set[int]] = [set() for _ in documents]
    for (number, at), content in zip(windows, contents, strict=True):
        if content in seen or (keep == "none" and counts[content] > 1):
            removed[number].update(range(at, at + length))
        seen.add(content)
    return removed


def without_bytes(texts: Texts, length: int, keep: str) -> list[str | None]:
    """The texts without repeated spans of bytes; those of which nothing is left are left out."""
    removed = covered([(text or "").encode() for text in texts], length, keep)
    left: list[str | None] = []
    for text, places in zip(texts, removed, strict=True):
        kept, at = "", 0
        for character in text or "":
            size = len(character.encode())
            kept += "" if places >= {*range(at, at + size)} else character
            at += size
        if kept or not text:
            left.append(None if text is None else kept)
    return left


def without_words(texts: Texts, length: int, keep: str) -> list[str | None]:
    """The texts without repeated spans of words. Words are made of ASCII letters here."""
    removed = covered([(text or "").split() for text in texts], length, keep)
    left: list[str | None] = []
    for text, places in zip(texts, removed, strict=True):
        kept, word, is_inside = "", -1, False
        for character in text or "":
            starts, is_inside = not is_inside and not character.isspace(), not character.isspace()
            word += starts
            kept += "" if word in places else character
        if kept or not text:
            left.append(None if text is None else kept)
    return left


def batches(texts: Texts, size: int, kind: str = "string") -> list[DocumentBatch]:
    return [DocumentBatch({"text": pa.array(texts[at : at + size], kind)}) for at in range(0, len(texts), size)]


def texts_left(stage: SubstringDeduplication, texts: Texts, size: int) -> list[str | None]:
    return [row["text"] for row in run_stage(stage, batches(texts, size))]


@st.composite
def corpora(draw: st.DrawFn, alphabet: Sequence[str]) -> list[str | None]:
    """Texts with parts in common."""
    part = st.lists(st.sampled_from(alphabet), max_size=40).map("".join)
    parts = draw(st.lists(part, min_size=2, max_size=5))
    text = st.lists(st.sampled_from(parts), max_size=4).map("".join)
    return draw(st.lists(st.one_of(st.none(), text, text, text), min_size=1, max_size=12))


@examples(25)
@given(
    st.sampled_from(["a", "ab", "abcd", "aé", "日本a\U0001f600"]).flatmap(corpora),
    st.integers(1, 20),
    st.sampled_from(["first", "none"]),
    st.integers(1, 12),
    st.sampled_from([1, 3, 16]),
)
def test_bytes_are_removed_as_defined(texts: Texts, length: int, keep: Any, size: int, partitions: int) -> None:
    stage = SubstringDeduplication(min_bytes=length, keep=keep, partitions=partitions)
    assert texts_left(stage, texts, size) == without_bytes(texts, length, keep)


@examples(10)
@given(corpora(["a ", "b ", "cc\n", " "]), st.integers(1, 5), st.sampled_from(["first", "none"]), st.integers(1, 12))
def test_words_are_removed_as_defined(texts: Texts, length: int, keep: Any, size: int) -> None:
    stage = SubstringDeduplication(min_words=length, keep=keep)
    assert texts_left(stage, texts, size) == without_words(texts, length, keep)


def long_texts(chance: random.Random, alphabet: str) -> list[str]:
    """Texts with more windows and anchors than the smallest memory budget has room for."""
    parts = ["".join(chance.choices(alphabet, k=chance.randint(20, 200))) for _ in range(40)]
    return ["".join(chance.choices(parts, k=8)) for _ in range(20)]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget may be small, and is for two tasks at a time."""
    monkeypatch.setattr("tamis.stages.deduplication.memory.LEAST_MEMORY", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)


@pytest.mark.parametrize("keep", ["first", "none"])
def test_the_memory_budget_changes_nothing(keep: Any, little_memory: None) -> None:
    texts = [*long_texts(random.Random(1), "ab"), "-" * 3000, "x" + "-" * 2000]
    expected = without_bytes(texts, 16, keep)
    for budget, size in (("128KiB", 3), ("128KiB", 100), ("1GiB", 100)):
        stage = SubstringDeduplication(min_bytes=16, keep=keep, memory_budget=budget)
        assert texts_left(stage, texts, size) == expected


@pytest.mark.parametrize("keep", ["first", "none"])
def test_one_span_in_more_surroundings_than_fit_into_memory(keep: Any, little_memory: None) -> None:
    chance = random.Random(2)
    around = ["".join(chance.choices("abcdefgh", k=24)) for _ in range(1500)]
    texts = [f"{text[:12]} the same in all of them {text[12:]}" for text in around]
    stage = SubstringDeduplication(min_bytes=20, keep=keep, memory_budget="128KiB")
    assert texts_left(stage, texts, 500) == without_bytes(texts, 20, keep)


def test_the_result_is_the_same_on_threads_and_processes() -> None:
    texts = long_texts(random.Random(3), "abcé")
    expected = without_bytes(texts, 30, "first")

    def check(result: RunResult) -> None:
        assert [row["text"] for task in result for row in task.data.to_pylist()] == expected

    run_everywhere(
        lambda folder: Pipeline("p", stages=[SubstringDeduplication(min_bytes=30)]),
        initial_tasks=batches(texts, 4),
        check=check,
        workers=2,
    )


@pytest.mark.usefixtures("ray_cluster")
def test_substrings_are_removed_the_same_on_ray(tmp_path: Path) -> None:
    from tamis.backends.streaming import StreamingExecutor

    texts = long_texts(random.Random(4), "abc")
    result = Pipeline("p", stages=[SubstringDeduplication(min_bytes=30)]).run(
        StreamingExecutor(), batches(texts, 5), run_dir=str(tmp_path / "run"), progress="off"
    )
    assert [row["text"] for task in result for row in task.data.to_pylist()] == without_bytes(texts, 30, "first")


def test_the_result_does_not_depend_on_how_files_are_cut(tmp_path: Path) -> None:
    texts = long_texts(random.Random(5), "abcd")
    pl.DataFrame({"text": texts}).write_ndjson(tmp_path / "in.jsonl")
    for number, blocksize in enumerate(("4kB", "1MiB")):
        stages = [JsonlReader(str(tmp_path / "in.jsonl"), blocksize=blocksize), SubstringDeduplication(min_bytes=40)]
        result = Pipeline("p", stages=stages).run(run_dir=str(tmp_path / f"run{number}"), progress="off")
        assert [row["text"] for task in result for row in task.data.to_pylist()] == without_bytes(texts, 40, "first")


def test_what_was_removed_is_counted_and_what_was_dropped_has_a_reason() -> None:
    rows = [{"text": "one two three"}, {"text": "and one two three"}, {"text": "one two three"}, {"text": ""}]
    run = run_stage(SubstringDeduplication(min_bytes=10, removed_bytes_field="removed"), rows)
    assert run == [
        {"text": "one two three", "removed": 0},
        {"text": "and ", "removed": 13},
        {"text": "", "removed": 0},
    ]
    assert [(dropped.row["text"], dropped.reason) for dropped in run.dropped] == [("one two three", REASON)]
    (stats,) = [stage for stage in run.stages if stage.name == "SubstringDeduplication"]
    assert stats.custom == {"bytes_removed": 26, "spans_removed": 2, "documents_changed": 2}


def test_of_characters_that_are_repeated_in_part_all_stays() -> None:
    # é and è begin with the same byte, 日 and 旦 with the same two.
    assert run_stage(SubstringDeduplication(min_bytes=5), [{"text": "abcdé"}, {"text": "abcdè"}]) == [
        {"text": "abcdé"},
        {"text": "è"},
    ]
    assert run_stage(SubstringDeduplication(min_bytes=4), [{"text": "ab日"}, {"text": "ab旦"}, {"text": "ab日"}]) == [
        {"text": "ab日"},
        {"text": "旦"},
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_column_keeps_its_type_and_its_nulls(kind: pa.DataType) -> None:
    texts = pa.chunked_array([pa.array(["one two", None]), pa.array([], pa.string()), pa.array(["one two!"])])
    column = texts.cast(kind)
    run = run_stage(SubstringDeduplication(min_bytes=6), DocumentBatch(pa.table({"text": column})))
    assert [row["text"] for row in run] == ["one two", None, "!"]
    assert run.tasks[0].data.schema.field("text").type == kind


def test_other_columns_and_names_of_rows_stay() -> None:
    batch = DocumentBatch({"n": [1, 2, 3], "text": ["same text", "same text", "x same text"]}).named("file")
    run = run_stage(SubstringDeduplication(min_bytes=8), batch)
    assert run == [{"n": 1, "text": "same text"}, {"n": 3, "text": "x "}]
    names = run.tasks[0].names
    assert names is not None
    assert names.to_texts() == ["file:0", "file:2"]


def test_texts_without_a_window_pass() -> None:
    texts: list[str | None] = ["", None, "short", "short"]
    assert texts_left(SubstringDeduplication(), texts, 2) == texts
    assert run_stage(SubstringDeduplication(), DocumentBatch({"text": pa.nulls(2)})) == [{"text": None}] * 2


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(PlanError, match="min_bytes=0: must be at least 1"):
        SubstringDeduplication(min_bytes=0)
    with pytest.raises(PlanError, match="keep='last': must be 'first' or 'none'"):
        SubstringDeduplication(keep="last")  # type: ignore[arg-type]  # the test
    with pytest.raises(PlanError, match=r"memory_budget='1kB'.: must be at least 64 MiB"):
        SubstringDeduplication(memory_budget="1kB")
    with pytest.raises(PlanError, match="not a valid size"):
        SubstringDeduplication(memory_budget="much")


def test_tasks_that_are_too_many_for_the_memory_budget_are_refused(little_memory: None) -> None:
    texts = [f"{n} the same text" for n in range(520)]
    with pytest.raises(
        DataError, match=r"520 files of hashes takes 65 KiB .* more than the 64 KiB .* memory_budget, 128 KiB"
    ) as error:
        texts_left(SubstringDeduplication(min_bytes=10, memory_budget="128KiB"), texts, 1)
    assert "blocksize" in str(error.value)
