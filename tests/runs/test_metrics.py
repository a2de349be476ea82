"""The list of metrics: everything that names metrics is made of it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from tamis.runs.dashboard import dashboard, expression
from tamis.runs.metrics import (
    LABEL_MEANINGS,
    METRICS,
    Metric,
    Sample,
    StageSample,
    WorkerSample,
    labels_table,
    metrics_table,
)
from tamis.runs.monitoring_files import monitoring_files
from tamis.runs.stats import GpuUse, WorkCounts

ROOT = Path(__file__).parents[2]
WORK = {"a + b": WorkCounts(1, 2, 3, 4, 5, 6.0, 7.0)}
FULL = Sample(
    at_s=1.0,
    time="2026-01-01T00:00:00.000+00:00",
    state="running",
    fraction=0.5,
    held_bytes=1,
    budget_bytes=2,
    running=3,
    workers=4,
    memory_bytes=5,
    stages=(StageSample("read", rows_out=9, busy_ratio=0.25), StageSample("words")),
    each_worker=(WorkerSample(7, "node-a", 2.0, 0.5, 1024, WORK),),
    gpus=(GpuUse(1, 0.75, 2**30, "node-a"),),
)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_names_follow_the_rules_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"tamis_(run|stage|worker|gpu)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    for unit in ("bytes", "seconds", "ratio"):
        assert (f"_{unit}" in metric.name) == (metric.unit == unit)
    assert metric.help.endswith(".")
    assert set(metric.labels) <= set(LABEL_MEANINGS)


def test_no_name_is_there_twice() -> None:
    assert len({m.name for m in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_every_metric_has_a_value(metric: Metric) -> None:
    found = list(FULL.values(metric))
    assert found
    assert all(len(labels) + 2 == len(metric.labels) for labels, _ in found)


def test_values_that_are_not_known_are_absent() -> None:
    unknown = Sample(1.0, "", "running", None, 0, 0, 0, 0, 0, (StageSample("read"),))
    missing = {m.name for m in METRICS if m.scope in ("run", "stage") and not list(unknown.values(m))}
    assert missing == {"tamis_run_progress_ratio", "tamis_stage_busy_ratio"}


def test_the_documentation_lists_the_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert metrics_table() in page
    assert labels_table() in page


@pytest.mark.parametrize("prefix", ["", "ray_"])
def test_the_dashboard_shows_every_metric_once(prefix: str) -> None:
    panels = [p for p in dashboard(prefix)["panels"] if p["type"] != "row"]
    shown = [t["expr"] for panel in panels for t in panel["targets"]]
    assert sorted(shown) == sorted(expression(metric, prefix) for metric in METRICS)
    assert len({p["id"] for p in dashboard(prefix)["panels"]}) == len(dashboard(prefix)["panels"])


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_files_in_deploy_are_the_ones_that_the_command_writes() -> None:
    folder = ROOT / "deploy" / "monitoring"
    files = [p for p in folder.rglob("*") if p.is_file() and folder / "data" not in p.parents]  # which start.sh makes
    there = {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in files}
    assert there == monitoring_files(["127.0.0.1:9400"], "/tmp/ray/prom_metrics_service_discovery.json")


def test_the_files_belong_together() -> None:
    files = monitoring_files(["127.0.0.1:9400", "node7:9400"])
    config = yaml.safe_load(files["prometheus.yml"])
    assert config["scrape_configs"][0]["file_sd_configs"] == [{"files": ["targets.json"]}]
    assert json.loads(files["targets.json"]) == [{"targets": ["127.0.0.1:9400", "node7:9400"]}]
    compose = yaml.safe_load(files["compose.yaml"])
    assert set(compose["services"]) == {"prometheus", "grafana"}
    mounts = [m for s in compose["services"].values() for m in s["volumes"] if m.startswith(".")]
    below = {"."} | {f"./{Path(*Path(name).parts[:depth])}" for name in files for depth in (1, 2, 3)}
    assert {m.partition(":")[0] for m in mounts} <= below
    (source,) = yaml.safe_load(files["grafana/provisioning/datasources/prometheus.yaml"])["datasources"]
    assert source["url"].rpartition(":")[2] in str(compose["services"]["prometheus"]["command"])
    (provider,) = yaml.safe_load(files["grafana/provisioning/dashboards/tamis.yaml"])["providers"]
    variable = provider["options"]["path"].removeprefix("$")
    assert variable in compose["services"]["grafana"]["environment"]
    assert f"{variable}=" in files["start.sh"]


def test_a_line_of_the_file_has_every_number_of_a_stage() -> None:
    from tamis.runs.metrics_file import as_line

    stages = as_line(FULL)["stages"]
    assert set(stages["read"]) == {f.name for f in fields(StageSample)} - {"name", "busy_ratio"}
