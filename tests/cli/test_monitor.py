"""``tamis monitor``: what it writes, and what it says when a run cannot be watched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tamis.cli import main
from tamis.pipeline.monitor import ENDPOINT_NOTE


def targets(folder: Path) -> list[str]:
    ((found,),) = (json.loads((folder / "targets.json").read_text()),)
    return list(found["targets"])


def test_it_writes_a_folder_that_starts_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "files"
    assert main(["monitor", "9400", "node7:9401", "--output", str(folder)]) == 0
    assert targets(folder) == ["127.0.0.1:9400", "node7:9401"]
    assert os.access(folder / "start.sh", os.X_OK)
    subprocess.run(["sh", "-n", str(folder / "start.sh")], check=True)
    assert str(folder / "start.sh") in capsys.readouterr().out


def test_a_run_directory_says_where_its_run_listens(tmp_path: Path) -> None:
    (tmp_path / ENDPOINT_NOTE).write_text("http://[::1]:9402/metrics\n")
    assert main(["monitor", str(tmp_path), "--output", str(tmp_path / "files")]) == 0
    assert targets(tmp_path / "files") == ["[::1]:9402"]


def test_a_ray_cluster_is_read_from_the_file_that_ray_writes(tmp_path: Path) -> None:
    assert main(["monitor", "--ray", "--output", str(tmp_path)]) == 0
    jobs = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    assert jobs[1]["file_sd_configs"] == [{"files": ["/tmp/ray/prom_metrics_service_discovery.json"]}]
    board = (tmp_path / "grafana" / "dashboards" / "tamis-ray.json").read_text()
    assert "ray_tamis_stage_rows_in_total" in board


def test_a_directory_that_ray_clients_write_to_is_watched_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "ray-metrics").mkdir()
    assert main(["monitor", "--ray", str(tmp_path / "ray-metrics"), "--output", str(tmp_path / "files")]) == 0
    jobs = yaml.safe_load((tmp_path / "files" / "prometheus.yml").read_text())["scrape_configs"]
    assert jobs[1]["file_sd_configs"] == [{"files": [str(tmp_path / "ray-metrics" / "*.json")]}]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (["."], "has no metrics endpoint now"),
        (["no-such-directory"], "is not a run directory, a port or HOST:PORT"),
        ([], "name what to watch"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["monitor", *named]) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
