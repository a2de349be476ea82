"""Documents that contain parts of benchmarks are found: all of them, and no others."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import PlanError, TamisError
from tamis.kernels.utf8 import Utf8
from tamis.stages.text.decontamination import Benchmark, Decontaminate
from tamis.stages.text.decontamination.ngrams import NgramIndex, normalized_words
from tamis.stages.text.decontamination.stage import match
from tamis.testing import run_stage

QUESTION = "How many apples does Anna have if she buys three more apples at the market?"
OTHER = "A train leaves the station at noon and travels north for two hours before it stops."


@pytest.fixture
def benchmarks(tmp_path: Path) -> dict[str, Benchmark]:
    pl.DataFrame({"question": [QUESTION], "answer": ["six"]}).write_ndjson(tmp_path / "sums.jsonl")
    pl.DataFrame({"text": [OTHER, "short"]}).write_parquet(tmp_path / "trains.parquet")
    return {
        "sums": Benchmark(str(tmp_path / "sums.jsonl"), fields=["question", "answer"]),
        "trains": Benchmark(str(tmp_path / "trains.parquet")),
    }


def plain_words(text: str) -> list[str]:
    """The definition: white space separates, lower case, no punctuation and symbols."""
    words = ("".join(c for c in word.lower() if unicodedata.category(c)[0] not in "PS") for word in text.split())
    return [word for word in words if word]


def plain_grams(text: str, n: int) -> set[tuple[str, ...]]:
    words = plain_words(text)
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


TEXT = st.text(" \t\u00a0aAbBcéÉñ.,!'“”—$€日", max_size=60)


@settings(deadline=None)
@given(texts=st.lists(TEXT, max_size=6))
def test_words_are_those_of_the_definition(texts: list[str]) -> None:
    block = Utf8.from_arrow(pa.array(texts, pa.string()))
    found = normalized_words(block)
    assert found.values.to_pylist() == [word for text in texts for word in plain_words(text)]
    raw = bytes(block.data)
    for value, start, end in zip(found.values.to_pylist(), found.starts, found.ends, strict=True):
        assert plain_words(raw[start:end].decode()) == [value]


FEW_WORDS = st.lists(st.sampled_from(["a", "b", "C,", "é", "--"]), max_size=14).map(" ".join)


@settings(deadline=None)
@given(
    examples=st.lists(FEW_WORDS, min_size=1, max_size=5),
    texts=st.lists(FEW_WORDS, min_size=1, max_size=5),
    n=st.integers(1, 4),
    hash_bits=st.sampled_from([1, 3, 64]),
    min_ratio=st.sampled_from([None, 0.3, 0.5, 1.0]),
)
def test_matches_are_those_of_the_definition_even_if_most_hashes_collide(
    examples: list[str], texts: list[str], n: int, hash_bits: int, min_ratio: float | None
) -> None:
    batches = [(pa.array(examples), pa.array(range(len(examples))))]
    index = NgramIndex.build({"benchmark": batches}, n, hash_bits)
    hits = index.find(Utf8.from_arrow(pa.array(texts)))
    found, _ = match(index, hits, min_ratio)
    expected = {}
    for t, text in enumerate(texts):
        for e, example in enumerate(examples):
            common = plain_grams(text, n) & plain_grams(example, n)
            if common and (min_ratio is None or len(common) >= min_ratio * len(plain_grams(example, n))):
                expected[t, e] = len(common)
    pairs = zip(found.documents.tolist(), found.examples.tolist(), found.ngrams.tolist(), strict=True)
    assert {(t, e): count for t, e, count in pairs} == expected
    assert index.too_short.tolist() == [sum(not plain_grams(example, n) for example in examples)]


def test_documents_are_dropped_for_the_benchmark_they_match(benchmarks: dict[str, Benchmark]) -> None:
    rows = [
        {"text": f"Quiz! {QUESTION.upper()} Well."},
        {"text": "Nothing of the kind."},
        {"text": OTHER},
        {"text": None},
    ]
    run = run_stage(Decontaminate(benchmarks), rows)
    assert list(run) == [rows[1], rows[3]]
    assert [dropped.reason for dropped in run.dropped] == ["contaminated: sums", "contaminated: trains"]
    assert run.stages[0].custom == {"sums: documents": 1, "trains: documents": 1}


def test_fewer_words_than_n_in_common_are_no_match(benchmarks: dict[str, Benchmark]) -> None:
    twelve = " ".join(QUESTION.split()[:12])
    assert len(run_stage(Decontaminate(benchmarks), [{"text": twelve}, {"text": f"{twelve} {twelve}"}])) == 2


def test_a_share_of_an_example_can_be_asked_for(benchmarks: dict[str, Benchmark]) -> None:
    half, most = (" ".join(QUESTION.split()[:count]) for count in (11, 14))  # 4 and 7 of 8 8-grams
    run = run_stage(Decontaminate(benchmarks, n=8, min_ratio=0.7), [{"text": half}, {"text": most}])
    assert [row["text"] for row in run] == [half]


def test_a_share_is_met_exactly(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text(" ".join(f"w{n}" for n in range(20)))
    stage = Decontaminate({"b": Benchmark(str(tmp_path / "b.txt"))}, n=1, min_ratio=0.55)  # 0.55 * 20 > 11 in floats
    assert run_stage(stage, [{"text": " ".join(f"w{n}" for n in range(11))}]) == []


def test_cutting_removes_the_match_with_what_is_around_it(benchmarks: dict[str, Benchmark]) -> None:
    before, after = "é" * 30, "ü" * 30
    text = f"{before} {QUESTION} {after}"
    stage = Decontaminate(benchmarks, action="cut", window=10, min_piece_chars=5)
    run = run_stage(stage, [{"text": text, "n": 1}, {"text": "clean", "n": 2}])
    assert list(run) == [{"text": before[:21], "n": 1}, {"text": after[9:], "n": 1}, {"text": "clean", "n": 2}]
    assert not run.dropped


def test_what_is_cut_to_nothing_or_into_too_many_pieces_is_dropped(benchmarks: dict[str, Benchmark]) -> None:
    many = f" {'x' * 50} ".join([QUESTION] * 4)
    stage = Decontaminate(benchmarks, action="cut", window=5, min_piece_chars=10, max_pieces=2)
    run = run_stage(stage, [{"text": QUESTION}, {"text": many}, {"text": f"{QUESTION} {'x' * 50}"}])
    assert [row["text"] for row in run] == ["x" * 46]
    assert [dropped.reason for dropped in run.dropped] == ["contaminated: sums"] * 2


def test_each_match_is_written_down(benchmarks: dict[str, Benchmark], tmp_path: Path) -> None:
    stage = Decontaminate(benchmarks, report_dir=str(tmp_path / "report"), id_field="id")
    run_stage(stage, [{"text": "clean", "id": "x"}, {"text": f"{OTHER} {QUESTION}", "id": "y"}])
    assert pl.read_parquet(tmp_path / "report" / "*.parquet").sort("benchmark").to_dicts() == [
        {"benchmark": "sums", "example": 0, "document": "y", "ngrams": 3, "ratio": 1.0},
        {"benchmark": "trains", "example": 0, "document": "y", "ngrams": 4, "ratio": 1.0},
    ]


def test_examples_that_can_never_be_found_are_said(
    benchmarks: dict[str, Benchmark], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="tamis"):
        run_stage(Decontaminate(benchmarks), [{"text": "a"}])
    assert "benchmark trains: 1 of 2 examples have no 13-gram" in caplog.text


def test_text_files_and_lists_are_benchmarks_too(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(f"{QUESTION}\n{OTHER}\n")
    pl.DataFrame({"choices": [["no", OTHER]]}).write_parquet(tmp_path / "choices.parquet")
    lines = Benchmark(str(tmp_path / "lines.txt"))
    choices = Benchmark(str(tmp_path / "choices.parquet"), fields=["choices"])
    run = run_stage(Decontaminate({"lines": lines, "choices": choices}), [{"text": OTHER}, {"text": QUESTION}])
    assert run.stages[0].custom == {"lines: documents": 2, "choices: documents": 1}


def test_a_field_that_holds_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": {"question": "why"}}\n')
    with pytest.raises(TamisError, match="give columns of text"):
        run_stage(Decontaminate({"b": Benchmark(str(tmp_path / "b.jsonl"))}), [{"text": "why"}])


def test_a_benchmark_that_is_not_there_and_a_field_that_is_not_there(benchmarks: dict[str, Benchmark]) -> None:
    with pytest.raises(TamisError, match="nowhere"):
        run_stage(Decontaminate({"x": Benchmark("nowhere.jsonl")}), [{"text": "a"}])
    wrong = Benchmark(benchmarks["sums"].path, fields=["questoin"])
    with pytest.raises(TamisError, match="Did you mean 'question'"):
        run_stage(Decontaminate({"x": wrong}), [{"text": "a"}])


@pytest.mark.parametrize(
    "wrong",
    [
        {"benchmarks": {}},
        {"benchmarks": {"a": "a.jsonl"}},
        {"n": 0},
        {"min_ratio": 0.0},
        {"action": "mark"},
        {"window": -1},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="Decontaminate"):
        Decontaminate(**{"benchmarks": {"a": Benchmark("a.jsonl")}, **wrong})
