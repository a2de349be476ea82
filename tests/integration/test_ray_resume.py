"""A run on an engine of Ray whose driver is killed; the same command continues it and ends with the same files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL"),
]


@pytest.mark.parametrize("executor", ["ray_data", "xenna"])
def test_a_killed_run_is_continued(tmp_path: Path, executor: str) -> None:
    if executor == "xenna":
        pytest.importorskip("cosmos_xenna")
    from killed_runs import KilledRun

    KilledRun(tmp_path, tmp_path, ray.get_runtime_context().gcs_address).check(executor)
