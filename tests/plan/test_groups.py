"""Which stages share a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.plan import make_plan
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch


@dataclass
class Step(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class Waits(ProcessingStage[DocumentBatch, DocumentBatch]):
    async def process(self, task: DocumentBatch) -> DocumentBatch:  # type: ignore[override]
        return task


def groups(*stages: ProcessingStage[Any, Any]) -> list[tuple[int, float]]:
    """How many stages are in each group, and the GPUs that one of its workers holds."""
    plan = make_plan("p", stages, initial=DocumentBatch)
    return [(len(g.vertices), g.resources.gpus) for g in plan.groups]


def on_gpu(gpus: float, **settings: Any) -> Step:
    return Step().with_(resources=Resources(gpus=gpus), **settings)


def test_whole_cards_are_held_once_by_neighbours_that_need_the_same() -> None:
    assert groups(Step(), on_gpu(1), on_gpu(1), Step()) == [(1, 0), (2, 1), (1, 0)]
    assert groups(on_gpu(2), on_gpu(2)) == [(2, 2)]


def test_parts_of_a_card_add_up_as_long_as_they_fit_on_one() -> None:
    assert groups(on_gpu(0.25), on_gpu(0.25), on_gpu(0.25)) == [(3, 0.75)]
    assert groups(on_gpu(0.4), on_gpu(0.4), on_gpu(0.4)) == [(2, 0.8), (1, 0.4)]


def test_gpu_stages_with_other_needs_have_workers_of_their_own() -> None:
    assert groups(on_gpu(1), on_gpu(0.5)) == [(1, 1), (1, 0.5)]
    assert groups(on_gpu(1), on_gpu(1, num_workers=2)) == [(1, 1), (1, 1)]
    in_gb = Step().with_(resources=Resources(gpu_memory_gb=10))
    assert groups(in_gb, in_gb) == [(1, 0), (1, 0)]


def test_gpu_stages_that_take_as_many_tokens_at_once_share_a_worker() -> None:
    assert groups(on_gpu(1, batch_tokens=100), on_gpu(1, batch_tokens=100)) == [(2, 1)]
    assert groups(on_gpu(1, batch_tokens=100), on_gpu(1, batch_tokens=200)) == [(1, 1), (1, 1)]
    assert groups(on_gpu(1), on_gpu(1, batch_tokens=100)) == [(1, 1), (1, 1)]
    assert groups(Step().with_(batch_rows=9), Step().with_(batch_rows=9)) == [(1, 0), (1, 0)]


def test_a_stage_can_opt_out() -> None:
    assert groups(on_gpu(1), on_gpu(1, fuse=False)) == [(1, 1), (1, 1)]
    assert groups(Step(), Step().with_(fuse=False), Step()) == [(1, 0)] * 3


def test_an_async_stage_has_workers_of_its_own() -> None:
    assert groups(Step(), Waits(), Step()) == [(1, 0)] * 3
