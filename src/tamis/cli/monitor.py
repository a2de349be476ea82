"""``tamis monitor``."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from tamis.cli.output import write
from tamis.errors import PlanError, StorageError


def run(arguments: argparse.Namespace) -> int:
    """Write the files for Prometheus and Grafana, and say how to start them."""
    from tamis.runs.monitoring_files import (
        GRAFANA_PORT,
        PROMETHEUS_PORT,
        RAY_SERVICES,
        monitoring_files,
        write_monitoring_files,
    )

    targets = [target_of(named) for named in arguments.targets]
    if not targets and arguments.ray is None:
        raise PlanError("name what to watch: a run directory, the port of a run, or --ray for a Ray cluster")
    ray = None if arguments.ray is None else os.path.abspath(arguments.ray or RAY_SERVICES)
    if ray is not None and os.path.isdir(ray):
        ray = os.path.join(ray, "*.json")  # as RayClient(metrics_dir=...) writes them
    folder = arguments.output
    try:
        write_monitoring_files(folder, monitoring_files(targets, ray))
    except OSError as error:
        raise StorageError(f"{error.filename or folder}: cannot write: {error.strerror or error}") from error
    for target in targets:
        write(f"watches http://{target}/metrics")
    if ray:
        write(f"watches the Ray cluster in {ray}")
    write(f"start Prometheus:              {os.path.join(folder, 'start.sh')}")
    write(f"or Prometheus and Grafana:     docker compose -f {os.path.join(folder, 'compose.yaml')} up")
    write(f"then open Grafana or Prometheus: http://127.0.0.1:{GRAFANA_PORT} http://127.0.0.1:{PROMETHEUS_PORT}")
    return 0


def target_of(named: str) -> str:
    """The endpoint, as ``host:port``, that a run directory, a port, an address or ``host:port`` means.

    >>> target_of("9400"), target_of("node7:9400"), target_of("http://node7:9400/metrics")
    ('127.0.0.1:9400', 'node7:9400', 'node7:9400')
    """
    from tamis.pipeline.monitor import ENDPOINT_NOTE

    if re.fullmatch(r"\d{1,5}", named):
        return f"127.0.0.1:{int(named)}"
    if "://" in named:
        return urlsplit(named).netloc
    if os.path.isdir(named):
        try:
            return urlsplit(Path(named, ENDPOINT_NOTE).read_text(encoding="utf-8").strip()).netloc
        except OSError as error:
            raise PlanError(
                f"{named}: the run has no metrics endpoint now. It has one while it runs with --metrics-port; "
                "metrics.jsonl in the directory has its metrics in any case"
            ) from error
    if re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}", named):
        return named
    raise PlanError(f"{named}: is not a run directory, a port or HOST:PORT")
