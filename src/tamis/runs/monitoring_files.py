"""Files that start Prometheus and Grafana against runs: ``tamis monitor`` writes them into a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tamis.runs.dashboard import dashboard

__all__ = ["monitoring_files", "write_monitoring_files"]

PROMETHEUS_PORT: Final = 9090
GRAFANA_PORT: Final = 3000
PROMETHEUS_IMAGE: Final = "prom/prometheus:v3.4.1"
GRAFANA_IMAGE: Final = "grafana/grafana:12.0.2"

RAY_SERVICES: Final = "/tmp/ray/prom_metrics_service_discovery.json"
"""Where a Ray cluster says which ports Prometheus can read, on its head node."""

_COMPOSE = f"""\
# Prometheus and Grafana on this machine: docker compose up
# They use the network of the machine, because runs listen on 127.0.0.1 only; so do both of them.
services:
  prometheus:
    image: {PROMETHEUS_IMAGE}
    network_mode: host
    command:
      - --config.file=/etc/prometheus/prometheus.yml
      - --storage.tsdb.path=/prometheus
      - --web.listen-address=127.0.0.1:{PROMETHEUS_PORT}
    volumes:
      - .:/etc/prometheus:ro
      - prometheus-data:/prometheus
@ray@  grafana:
    image: {GRAFANA_IMAGE}
    network_mode: host
    environment:
      GF_SERVER_HTTP_ADDR: 127.0.0.1
      GF_SERVER_HTTP_PORT: "{GRAFANA_PORT}"
      GF_AUTH_ANONYMOUS_ENABLED: "true"
      GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: /etc/grafana/dashboards/tamis.json
      TAMIS_DASHBOARDS: /etc/grafana/dashboards
    volumes:
      - ./grafana/provisioning:/etc/grafana/provisioning:ro
      - ./grafana/dashboards:/etc/grafana/dashboards:ro
      - grafana-data:/var/lib/grafana
volumes:
  prometheus-data: {{}}
  grafana-data: {{}}
"""

_START = """\
#!/bin/sh
# Starts Prometheus and Grafana until Ctrl-C: the programs of this machine where it has them, else containers.
set -eu
cd "$(dirname "$0")"
pids=
has_compose() { docker compose version > /dev/null 2>&1; }
stop() { [ -z "$pids" ] || kill $pids 2> /dev/null || true; }
trap stop EXIT
trap 'exit 130' INT TERM

if command -v prometheus > /dev/null; then
    address="127.0.0.1:${PROMETHEUS_PORT:-@prometheus@}"
    prometheus --config.file=prometheus.yml --storage.tsdb.path=data/prometheus --web.listen-address="$address" &
    pids="$pids $!"
    echo "Prometheus: http://$address"
elif has_compose; then
    exec docker compose up
else
    echo "Install Prometheus (apt-get install prometheus) or Docker with its compose plugin first." >&2
    exit 1
fi

if command -v grafana > /dev/null; then
    mkdir -p data/grafana
    export GF_PATHS_PROVISIONING="$PWD/grafana/provisioning" GF_PATHS_DATA="$PWD/data/grafana"
    export GF_PATHS_LOGS="$PWD/data/grafana" TAMIS_DASHBOARDS="$PWD/grafana/dashboards"
    export GF_SERVER_HTTP_ADDR=127.0.0.1 GF_SERVER_HTTP_PORT="${GRAFANA_PORT:-@grafana@}" GF_AUTH_ANONYMOUS_ENABLED=true
    grafana server --homepath "${GRAFANA_HOME:-/usr/share/grafana}" > data/grafana/output.log 2>&1 &
    pids="$pids $!"
    echo "Grafana: http://127.0.0.1:$GF_SERVER_HTTP_PORT"
elif has_compose; then
    docker compose up grafana &
    pids="$pids $!"
    echo "Grafana: http://127.0.0.1:@grafana@"
else
    echo "Grafana is not installed; its dashboard is grafana/dashboards/tamis.json"
fi
wait
"""


def monitoring_files(targets: Sequence[str], ray_services: str | None = None) -> dict[str, str]:
    """The files, by their path in the folder.

    Args:
        targets: The endpoints of runs, as ``host:port``.
        ray_services: The file in which a Ray cluster lists its own endpoints, if they are to be read, too.

    >>> sorted(monitoring_files(["127.0.0.1:9400"]))[:3]
    ['compose.yaml', 'grafana/dashboards/tamis.json', 'grafana/provisioning/dashboards/tamis.yaml']
    """
    jobs: list[dict[str, Any]] = [{"job_name": "tamis", "file_sd_configs": [{"files": ["targets.json"]}]}]
    boards = {"tamis": dashboard()}
    mount = ""
    if ray_services is not None:
        jobs.append({"job_name": "ray", "file_sd_configs": [{"files": [ray_services]}]})
        boards["tamis-ray"] = dashboard("ray_")
        folder = os.path.dirname(ray_services)
        mount = f"      - {json.dumps(f'{folder}:{folder}:ro')}\n"
    prometheus = {"global": {"scrape_interval": "5s"}, "scrape_configs": jobs}
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": f"http://127.0.0.1:{PROMETHEUS_PORT}",
        "isDefault": True,
        "jsonData": {"timeInterval": "5s"},
    }
    provider = {"name": "tamis", "type": "file", "options": {"path": "$TAMIS_DASHBOARDS"}}
    return {
        "prometheus.yml": _yaml(prometheus),
        "targets.json": json.dumps([{"targets": sorted(set(targets))}], indent=1) + "\n",
        "compose.yaml": _COMPOSE.replace("@ray@", mount),
        "start.sh": _START.replace("@prometheus@", str(PROMETHEUS_PORT)).replace("@grafana@", str(GRAFANA_PORT)),
        "grafana/provisioning/datasources/prometheus.yaml": _yaml({"apiVersion": 1, "datasources": [source]}),
        "grafana/provisioning/dashboards/tamis.yaml": _yaml({"apiVersion": 1, "providers": [provider]}),
        **{f"grafana/dashboards/{name}.json": json.dumps(board, indent=1) + "\n" for name, board in boards.items()},
    }


def write_monitoring_files(folder: str | os.PathLike[str], files: dict[str, str]) -> None:
    """Write the files into a folder. Prometheus reads ``targets.json`` again when it changes."""
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            path.chmod(0o755)


def _yaml(values: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(values, sort_keys=False)
    return text
