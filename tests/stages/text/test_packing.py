"""Packing tokens into sequences loses none of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.stages.io import JsonlReader
from tamis.stages.text.sequence_packing import PackSequences
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

DOCUMENTS = st.lists(st.integers(0, 30), min_size=1, max_size=25)


def batch_of(lengths: list[int]) -> DocumentBatch:
    """Documents whose tokens are all different, so that each can be found again."""
    numbers = itertools.count()
    return DocumentBatch({"input_ids": [[next(numbers) for _ in range(length)] for length in lengths] or [[]]})


def pieces(rows: list[dict[str, Any]]) -> list[list[int]]:
    """The pieces of documents that the boundaries show."""
    return [row["input_ids"][a:b] for row in rows for a, b in itertools.pairwise(row["cu_seqlens"])]


@settings(deadline=None)
@given(lengths=DOCUMENTS, length=st.integers(1, 12), strategy=st.sampled_from(["concat", "best_fit"]))
def test_no_token_is_lost_and_boundaries_tell_documents_apart(lengths: list[int], length: int, strategy: str) -> None:
    batch = batch_of(lengths)
    rows = PackSequences(length, strategy=strategy).process(batch).data.to_pylist()
    document = {t: d for d, tokens in enumerate(batch.data["input_ids"].to_pylist()) for t in tokens}
    assert sorted(t for row in rows for t in row["input_ids"]) == sorted(document)
    assert all(0 < len(row["input_ids"]) <= length for row in rows)
    assert [t for piece in pieces(rows) for t in piece] == [t for row in rows for t in row["input_ids"]]
    for piece in pieces(rows):
        assert len({document[t] for t in piece}) == 1
        assert piece == list(range(piece[0], piece[0] + len(piece)))


@settings(deadline=None)
@given(lengths=DOCUMENTS, length=st.integers(1, 12))
def test_concatenated_sequences_are_full_but_the_last_and_in_order(lengths: list[int], length: int) -> None:
    rows = PackSequences(length).process(batch_of(lengths)).data.to_pylist()
    assert [t for row in rows for t in row["input_ids"]] == list(range(sum(lengths)))
    assert all(len(row["input_ids"]) == length for row in rows[:-1])


@settings(deadline=None)
@given(lengths=DOCUMENTS, length=st.integers(1, 12))
def test_best_fit_cuts_only_documents_longer_than_a_sequence(lengths: list[int], length: int) -> None:
    rows = PackSequences(length, strategy="best_fit").process(batch_of(lengths)).data.to_pylist()
    assert len(pieces(rows)) == sum(-(-n // length) for n in lengths)


@settings(deadline=None)
@given(lengths=DOCUMENTS, length=st.integers(1, 12), strategy=st.sampled_from(["concat", "best_fit"]))
def test_padding_positions_and_segments_follow_from_the_boundaries(
    lengths: list[int], length: int, strategy: str
) -> None:
    stage = PackSequences(
        length, strategy=strategy, pad_token_id=-1, position_ids_field="positions", segment_ids_field="segments"
    )
    for row in stage.process(batch_of(lengths)).data.to_pylist():
        runs = [b - a for a, b in itertools.pairwise(row["cu_seqlens"])]
        filling = length - sum(runs)
        assert len(row["input_ids"]) == length
        assert row["input_ids"][sum(runs) :] == [-1] * filling
        assert row["positions"] == [i for n in runs for i in range(n)] + [0] * filling
        assert row["segments"] == [s for s, n in enumerate(runs, start=1) for _ in range(n)] + [0] * filling


def test_best_fit_prefers_the_fullest_sequence() -> None:
    rows = PackSequences(10, strategy="best_fit").process(batch_of([6, 7, 3, 4])).data.to_pylist()
    assert [row["cu_seqlens"] for row in rows] == [[0, 6, 10], [0, 7, 10]]


def test_documents_without_tokens_are_no_sequences_and_nothing_counts_as_dropped() -> None:
    run = run_stage(PackSequences(4), [{"input_ids": [1, 2], "id": "a"}, {"input_ids": None, "id": "b"}])
    assert run == [{"input_ids": [1, 2], "cu_seqlens": [0, 2]}]
    assert run.stages[-1].custom == {"tokens": 2, "sequences": 1, "documents cut": 0}
    assert sum(stats.rows_dropped for stats in run.stages) == 0


def test_sequences_know_the_documents_they_begin_with() -> None:
    packed = PackSequences(4).process(batch_of([3, 2, 0, 9]).named("a"))
    assert packed["cu_seqlens"].to_pylist() == [[0, 3, 4], [0, 1, 4], [0, 4], [0, 2]]
    assert packed.names is not None
    assert packed.names.to_texts() == ["a:0+1", "a:1/1+1", "a:3/1", "a:3/2"]


@pytest.mark.parametrize("strategy", ["concat", "best_fit"])
def test_sequences_are_filled_across_batches_whatever_the_number_of_workers(tmp_path: Path, strategy: str) -> None:
    """25 files, each a batch of 12 tokens, would leave 25 sequences that are not full."""
    for number in range(25):
        tokens = [list(range(number * 100, number * 100 + length)) for length in (6, 4, 2)]
        rows = [json.dumps({"input_ids": some}) for some in tokens]
        (tmp_path / f"{number:02}.jsonl").write_text("\n".join(rows))
    stages = [JsonlReader(str(tmp_path), files_per_partition=1), PackSequences(5, strategy=strategy, group_tokens=80)]
    runs = [[task.data.to_pylist() for task in Pipeline("p", "", stages).run(LocalExecutor(n))] for n in (0, 3)]
    assert runs[0] == runs[1]
    assert len(runs[0]) == 7  # groups, of four files each
    lengths = [len(row["input_ids"]) for group in runs[0] for row in group]
    assert sum(lengths) == 25 * 12
    assert sum(length < 5 for length in lengths) <= (7 if strategy == "concat" else 14)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sequence_length": 0},
        {"sequence_length": 4, "strategy": "first_fit"},
        {"sequence_length": 4, "tokens_field": "cu_seqlens"},
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        PackSequences(**wrong)


def test_a_column_without_tokens_is_refused() -> None:
    with pytest.raises(TypeError, match="must hold lists of token ids"):
        PackSequences(4).process(DocumentBatch({"input_ids": ["text"]}))
