"""The example that curates images gives the same tars, drops and quarantine on every executor."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.base import Executor
from tamis.backends.local import LocalExecutor
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.quickstart import sample_images

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("ray_cluster")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "images.py"

EXECUTORS: dict[str, Callable[[], Executor]] = {
    "local-threads": lambda: LocalExecutor(workers=2, substrate="threads"),
    "local-processes": lambda: LocalExecutor(workers=2, substrate="processes"),
    "streaming": StreamingExecutor,
    "ray-actor-pool": RayActorPoolExecutor,
    "ray-data": RayDataExecutor,
    "xenna": XennaExecutor,
}


def curated(executor: Executor, folder: Path) -> dict[str, Any]:
    """What a run of the example leaves behind."""
    pipeline = runpy.run_path(str(EXAMPLE))["image_pipeline"](sample_images(), str(folder / "out"))
    result = pipeline.run(executor, run_dir=str(folder / "run"), progress="off")
    drops = result.drops().select(["source", "position", "reason"]).to_pylist()
    return {
        "tars": {path.name: path.read_bytes() for path in (folder / "out").glob("*.tar")},
        "drops": sorted(tuple(row.values()) for row in drops),
        "set aside": result.summary.rows_set_aside,
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return curated(LocalExecutor(workers=0), tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_curates_images_the_same(executor: str, expected: dict[str, Any], tmp_path: Path) -> None:
    found = curated(EXECUTORS[executor](), tmp_path)
    assert found["drops"] == expected["drops"]
    assert found["set aside"] == expected["set aside"] == 4
    assert found["tars"] == expected["tars"]
    assert found["tars"]
