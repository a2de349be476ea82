"""Stages with a GPU, on the streaming executor, on a real one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gpu_stages import Square

from tamis.backends.streaming import StreamingExecutor
from tamis.core import host
from tamis.errors import ResourceError
from tamis.pipeline import Pipeline
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch

pytestmark = pytest.mark.skipif(not host.gpus(), reason="this machine has no NVIDIA GPU")


def rows(tmp_path: Path, resources: Resources, **settings: Any) -> list[dict[str, Any]]:
    pytest.importorskip("torch")
    pytest.importorskip("ray")
    tasks = [DocumentBatch({"n": [float(i)]}) for i in range(400)]
    result = Pipeline("gpu", stages=[Square().with_(resources=resources, **settings)]).run(
        StreamingExecutor(), tasks, run_dir=str(tmp_path / "run"), progress="off"
    )
    return [row for task in result for row in task.data.to_pylist()]


@pytest.mark.parametrize(
    ("resources", "settings", "workers"),
    [
        (Resources(gpus=1), {}, 1),
        (Resources(gpus=0.25), {}, 4),
        (Resources(gpu_memory_gb=10), {"num_workers": 3}, 3),
    ],
)
def test_workers_share_a_card_as_they_say(
    tmp_path: Path, resources: Resources, settings: dict[str, Any], workers: int
) -> None:
    found = rows(tmp_path, resources, **settings)
    assert [row["n"] for row in found] == [float(i * i) for i in range(400)]
    assert {row["gpus"] for row in found} == {1}
    cards = len(host.gpus())
    assert len(Counter(row["pid"] for row in found)) <= workers * cards
    assert {len(row["given"]) for row in found} == {1}


def test_more_memory_than_the_card_has_is_refused(tmp_path: Path) -> None:
    largest = max(card.memory_gb for card in host.gpus())
    with pytest.raises(ResourceError, match="GB"):
        rows(tmp_path, Resources(gpu_memory_gb=largest + 1))
