"""The code of NeMo Curator's guides that runs on a Ray cluster."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_faults import small_cluster

from tamis import compat

SEEDS = Path(__file__).parent / "seeds"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with small_cluster(num_cpus=4):
        yield


@pytest.mark.parametrize(
    ("script", "expected"), [("ray_data_executor.py", [["some words"]]), ("end_to_end.py", [["one"], ["two"]])]
)
def test_executors_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: list[list[str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    compat.activate()
    try:
        results = runpy.run_path(str(SEEDS / script), run_name="__main__")["results"]
    finally:
        compat.deactivate()
    assert [task.to_pyarrow()["text"].to_pylist() for task in results] == expected
