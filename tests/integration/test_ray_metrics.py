"""The metrics of a run on Ray: among Ray's own, under the same names and labels."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray
from prometheus_client.parser import text_string_to_metric_families
from ray_faults import wait_for

from tamis import DocumentBatch, Pipeline, processing_stage
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.runs.metrics import METRICS
from tamis.runs.metrics_file import read_metrics


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a cluster's metrics, which are reported every second."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=150_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _metrics_export_port=chosen,
        _system_config={"enable_worker_prestart": False, "metrics_report_interval_ms": 1000},
    )
    try:
        yield chosen
    finally:
        ray.shutdown()


@processing_stage(name="double")
def double(task: DocumentBatch) -> DocumentBatch:
    return DocumentBatch({"n": [2 * n for n in task.data["n"].to_pylist()]})


def exported(port: int, run: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("ray_tamis_") and sample.labels["run"] == run:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.parametrize("executor", [StreamingExecutor, RayActorPoolExecutor])
def test_ray_exports_the_counts_of_a_run(tmp_path: Path, port: int, executor: Any) -> None:
    name = executor.__name__
    batches = [DocumentBatch({"n": [n, n]}) for n in range(5)]
    Pipeline("numbers", stages=[double]).run(executor(), batches, run_dir=tmp_path / name, progress="off")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}

    def is_complete() -> bool:
        found.update(exported(port, name))
        done = [value for labels, value in found.get("ray_tamis_run_state", []) if labels["state"] == "done"]
        rows = [
            value for labels, value in found.get("ray_tamis_stage_rows_out_total", []) if labels["stage"] == "double"
        ]
        return done == [1.0] and rows == [10.0]

    wait_for(is_complete, "the counts among Ray's metrics", 100)
    expected = {f"ray_{m.name}": set(m.labels) for m in METRICS if m.scope != "gpu"}
    optional = {"ray_tamis_run_progress_ratio", "ray_tamis_stage_busy_ratio", "ray_tamis_worker_busy_ratio"}
    assert expected.keys() - found.keys() <= optional
    for metric, values in found.items():
        assert all(expected[metric] <= labels.keys() for labels, _ in values)
    states = {labels["state"]: value for labels, value in found["ray_tamis_run_state"]}
    assert states.get("running", 0.0) == 0.0
    peaks = [value for _, value in found["ray_tamis_worker_memory_peak_bytes"]]
    assert min(peaks) > 2**20
    last = list(read_metrics(tmp_path / name))[-1]
    assert last["stages"]["double"]["rows_out"] == 10
