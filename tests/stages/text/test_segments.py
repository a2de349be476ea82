"""Splitting and joining documents."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_tests import examples

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError
from tamis.pipeline import Pipeline
from tamis.stages.io import JsonlReader
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.segments import DocumentJoiner, DocumentSplitter
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

TEXTS = st.lists(st.one_of(st.none(), st.text("ab|-é日", max_size=12)), min_size=1, max_size=8)


def split(texts: list[str | None], separator: str) -> DocumentBatch:
    batch = DocumentBatch(pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string())}))
    return DocumentSplitter(separator).process(batch)


@settings(deadline=None)
@given(texts=TEXTS, separator=st.sampled_from(["|", "||", "-|", "é"]))
def test_split_is_what_str_split_does(texts: list[str | None], separator: str) -> None:
    expected = [
        {"id": i, "text": segment, "segment_id": number}
        for i, text in enumerate(texts)
        for number, segment in enumerate([None] if text is None else text.split(separator))
    ]
    assert split(texts, separator).data.to_pylist() == expected


@settings(deadline=None)
@given(texts=TEXTS, separator=st.sampled_from(["|", "||", "-|", "é"]), data=st.data())
def test_split_then_join_is_what_it_was_in_whatever_order_the_segments_come(
    texts: list[str | None], separator: str, data: st.DataObject
) -> None:
    segments = split(texts, separator)
    order = data.draw(st.permutations(range(segments.num_items)))
    joined = DocumentJoiner(separator).process(segments.with_table(segments.data.take(pa.array(order))))
    assert {row["id"]: row["text"] for row in joined.data.to_pylist()} == dict(enumerate(texts))


@examples(15)
@given(texts=TEXTS, size=st.integers(1, 10))
def test_segments_in_different_batches_are_joined(texts: list[str | None], size: int) -> None:
    rows = split(texts, "|").data.to_pylist()
    tasks = [DocumentBatch(rows[i : i + size]) for i in range(0, len(rows), size)]
    joined = run_stage(DocumentJoiner("|", partitions=3), tasks)
    assert {row["id"]: row["text"] for row in joined} == dict(enumerate(texts))
    assert len(joined) == len(texts)


def plainly(segments: list[tuple[str, int]], separator: str, max_length: int) -> list[tuple[str, int]]:
    """Greedy packing: a segment is added as long as the whole is not too long."""
    parts: list[tuple[str, int]] = []
    for text, length in segments:
        if parts and parts[-1][1] + len(separator) + length <= max_length:
            parts[-1] = (parts[-1][0] + separator + text, parts[-1][1] + len(separator) + length)
        else:
            parts.append((text, length))
    return parts


@settings(deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=6),
    separator=st.sampled_from(["", "+", "--"]),
    max_length=st.integers(1, 25),
)
def test_with_a_largest_length_segments_are_packed_one_after_the_other(
    documents: list[list[int]], separator: str, max_length: int
) -> None:
    rows = [
        {"id": d, "segment_id": s, "text": f"<{d}.{s}>", "length": length}
        for d, lengths in enumerate(documents)
        for s, length in enumerate(lengths)
    ]
    joiner = DocumentJoiner(separator, max_length=max_length, length_field="length", drop_segment_id_field=False)
    expected = [
        {"id": d, "segment_id": number, "text": text, "length": length}
        for d, group in itertools.groupby(rows, key=lambda row: row["id"])
        for number, (text, length) in enumerate(
            plainly([(str(r["text"]), int(str(r["length"]))) for r in group], separator, max_length)
        )
    ]
    assert joiner.process(DocumentBatch(rows)).data.to_pylist() == expected


def test_other_columns_are_those_of_the_first_segment() -> None:
    rows = [
        {"id": "a", "segment_id": 1, "text": "y", "url": "second"},
        {"id": "a", "segment_id": 0, "text": "x", "url": "first"},
    ]
    joined = DocumentJoiner(drop_segment_id_field=False).process(DocumentBatch(rows))
    assert joined.data.to_pylist() == [{"id": "a", "segment_id": 0, "text": "x\n\ny", "url": "first"}]


def test_rows_without_a_document_id_stay_apart() -> None:
    rows = [{"id": None, "segment_id": 0, "text": "x"}, {"id": None, "segment_id": 0, "text": "y"}]
    assert [row["text"] for row in DocumentJoiner().process(DocumentBatch(rows)).data.to_pylist()] == ["x", "y"]


def test_within_batches_nothing_counts_as_dropped() -> None:
    rows = split(["a|b|c", "d"], "|").data.to_pylist()
    run = run_stage(DocumentJoiner("|", across_batches=False), rows)
    assert [row["text"] for row in run] == ["a|b|c", "d"]
    assert sum(stats.rows_dropped for stats in run.stages) == 0


def test_a_text_column_alone_can_be_split() -> None:
    assert DocumentSplitter(",").process(DocumentBatch({"text": ["a,b"]})).data.to_pylist() == [
        {"text": "a", "segment_id": 0},
        {"text": "b", "segment_id": 1},
    ]


def test_columns_that_are_missing_are_refused_before_the_run() -> None:
    pipeline = Pipeline("p", stages=[DocumentSplitter("|", segment_id_field="part"), DocumentJoiner("|")])
    with pytest.raises(ColumnError, match="'segment_id'"):
        pipeline.run(initial_tasks=[DocumentBatch({"text": ["a"], "id": [1]})], progress="off")


@pytest.mark.parametrize(
    "make",
    [
        lambda: DocumentSplitter(""),
        lambda: DocumentSplitter(",", segment_id_field="text"),
        lambda: DocumentJoiner(max_length=5),
        lambda: DocumentJoiner(length_field="n"),
        lambda: DocumentJoiner(max_length=0, length_field="n"),
    ],
)
def test_wrong_parameters_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"DocumentSplitter|DocumentJoiner"):
        make()


def test_lengths_that_are_no_numbers_are_refused() -> None:
    rows = [{"id": 1, "segment_id": 0, "text": "x", "n": None}]
    with pytest.raises(DataError, match="whole number"):
        DocumentJoiner(max_length=5, length_field="n").process(DocumentBatch(rows))


def test_a_dropped_segment_is_found_again_and_joined_rows_get_their_name_back(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1, "text": "a b+c+d e"}\n{"id": 2, "text": "f g"}\n', encoding="utf-8")
    stages = [
        JsonlReader(str(file)),
        DocumentSplitter("+"),
        ScoreFilter(WordCountFilter(min_words=2)),
        DocumentJoiner("+", across_batches=False),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(0), run_dir=str(tmp_path / "run"), progress="off")
    (dropped,) = result.drops().select(["source", "position", "part"]).to_pylist()
    assert dropped == {"source": str(file), "position": 0, "part": "/1"}
    (joined,) = result
    assert joined["text"].to_pylist() == ["a b+d e", "f g"]
    assert joined.names.to_texts() == [f"{file}:0", f"{file}:31"]
