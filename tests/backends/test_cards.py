"""GPU stages on the local executor: which worker is given which card. The cards are simulated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.core import host
from tamis.core.host import Gpu
from tamis.errors import ResourceError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, Task

TASKS = [DocumentBatch({"n": [i]}) for i in range(12)]


class OnCard(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds a column with the card and the process that it was given."""

    resources = Resources(gpus=1)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.cards = worker_metadata.gpu_ids

    def process(self, task: DocumentBatch) -> DocumentBatch:
        told = f"{','.join(map(str, self.cards))}|{os.environ['CUDA_VISIBLE_DEVICES']}|{os.getpid()}"
        return task.with_column(self.name, [told] * task.num_items)


class OnCpu(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def pretend(monkeypatch: pytest.MonkeyPatch, *memory_gb: float) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(host, "gpus", lambda: tuple(Gpu(i, "a card", gb) for i, gb in enumerate(memory_gb)))


def run(tmp_path: Path, *stages: ProcessingStage[Any, Any], **settings: Any) -> list[dict[str, Any]]:
    executor = LocalExecutor(**{"workers": 2, **settings})
    result = Pipeline("cards", stages=list(stages)).run(executor, TASKS, run_dir=str(tmp_path / "r"), progress="off")
    return [row for task in result for row in task.data.to_pylist()]


def cards(rows: list[dict[str, Any]], stage: str) -> set[str]:
    """The cards that a stage ran on. CUDA is told the same as the stage."""
    told = [row[stage].split("|") for row in rows]
    assert all(given == visible for given, visible, _ in told)
    return {given for given, _, _ in told}


def test_two_stages_with_a_whole_card_each_get_different_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 24.0, 24.0)
    rows = run(tmp_path, OnCard().with_(name="a"), OnCpu(), OnCard().with_(name="b"))
    assert len(rows) == 12
    assert sorted([*cards(rows, "a"), *cards(rows, "b")]) == ["0", "1"]


def test_stages_that_need_too_many_cards_are_refused_with_the_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 24.0)
    with pytest.raises(
        ResourceError, match=r"1 \(a\) \+ 0\.5 \(b\) = 1\.5 GPUs at the same time, this machine has 1\."
    ):
        run(tmp_path, OnCard().with_(name="a"), OnCpu(), OnCard().with_(name="b", resources=Resources(gpus=0.5)))
    with pytest.raises(ResourceError, match=r"asks for 2 GPUs for each worker, this machine has 1"):
        run(tmp_path, OnCard().with_(resources=Resources(gpus=2)))
    with pytest.raises(ResourceError, match=r"asks for 40 GB of GPU memory .* largest card of this machine has 24 GB"):
        run(tmp_path, OnCard().with_(resources=Resources(gpu_memory_gb=40)))


def test_in_batch_mode_stages_use_the_same_card_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 24.0)
    rows = run(tmp_path, OnCard().with_(name="a"), OnCard().with_(name="b"), execution_mode="batch")
    assert len(rows) == 12
    assert cards(rows, "a") == cards(rows, "b") == {"0"}


def test_shares_of_cards_are_packed_as_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 24.0, 48.0)
    whole = OnCard().with_(name="a", resources=Resources(gpus=1))
    memory = OnCard().with_(name="b", resources=Resources(gpu_memory_gb=24))
    rows = run(tmp_path, whole, OnCpu(), memory)
    assert (cards(rows, "a"), cards(rows, "b")) in (({"0"}, {"1"}), ({"1"}, {"0"}))


class Opaque:
    """Cannot be copied or pickled: only a reference can be passed on."""

    def __deepcopy__(self, memo: object) -> Opaque:
        raise AssertionError("it was copied")

    def __reduce__(self) -> Any:
        raise AssertionError("it was pickled")


class ToDevice(ProcessingStage[DocumentBatch, Task[Any]]):
    resources = Resources(gpus=0.5)
    makes_rows = "new"

    def process(self, task: DocumentBatch) -> Task[Any]:
        return Task([Opaque(), os.getpid(), task["n"].to_pylist()])


class FromDevice(ProcessingStage[Task[Any], DocumentBatch]):
    resources = Resources(gpus=0.5)
    makes_rows = "new"

    def process(self, task: Task[Any]) -> DocumentBatch:
        thing, process, numbers = task.data
        assert isinstance(thing, Opaque)
        return DocumentBatch({"n": numbers, "same": [process == os.getpid()]})


def test_neighbours_with_equal_gpu_needs_share_a_worker_and_pass_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 24.0)
    rows = run(tmp_path, ToDevice(), FromDevice())
    assert sorted(row["n"] for row in rows) == list(range(12))
    assert all(row["same"] for row in rows)
