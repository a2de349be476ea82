"""A Grafana dashboard, made of the list of metrics: one panel for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tamis.runs.metrics import LABELS, METRICS, Metric

__all__ = ["dashboard", "expression"]

_ROWS: Final = (
    ("Run", ("state", "run")),
    ("Stages", ("stage",)),
    ("Workers", ("worker", "work")),
    ("GPUs", ("gpu",)),
)
_GAUGE_UNITS: Final = {"bytes": "bytes", "seconds": "s", "ratio": "percentunit"}
_RATE_UNITS: Final = {"bytes": "Bps", "seconds": "short"}
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 7


def expression(metric: Metric, prefix: str = "") -> str:
    """What a panel shows of a metric, in PromQL: a gauge itself, a counter per second.

    Args:
        metric: The metric.
        prefix: What its name begins with: ``ray_`` for metrics that Ray exports.

    >>> print(expression(METRICS[8]))
    sum by (run, stage) (rate(tamis_stage_tasks_in_total{pipeline=~"$pipeline", run=~"$run"}[$__rate_interval]))
    """
    selected = f'{prefix}{metric.name}{{pipeline=~"$pipeline", run=~"$run"}}'
    if metric.kind == "counter":
        selected = f"rate({selected}[$__rate_interval])"
    labels = ", ".join(("run", *LABELS[metric.scope]))
    return f"{'sum' if metric.kind == 'counter' else 'max'} by ({labels}) ({selected})"


def dashboard(prefix: str = "") -> dict[str, Any]:
    """The dashboard, as Grafana reads it.

    Args:
        prefix: What the names of the metrics begin with: ``ray_`` for metrics that Ray exports.
    """
    where = " (through Ray)" if prefix else ""
    return {
        "uid": "tamis-" + hashlib.sha256(prefix.encode()).hexdigest()[:8],
        "title": f"tamis: runs{where}",
        "tags": ["tamis"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": _variables(prefix)},
        "panels": list(_panels(prefix)),
    }


def _variables(prefix: str) -> list[dict[str, Any]]:
    source = {"name": "source", "label": "data source", "type": "datasource", "query": "prometheus"}
    state = f"{prefix}tamis_run_state"
    queries = {
        "pipeline": f"label_values({state}, pipeline)",
        "run": f'label_values({state}{{pipeline=~"$pipeline"}}, run)',
    }
    return [source] + [
        {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
            "sort": 2,
        }
        for name, query in queries.items()
    ]


_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


def _panels(prefix: str) -> Iterator[dict[str, Any]]:
    top = 0
    numbers = iter(range(1, 1000))
    for title, scopes in _ROWS:
        yield {"id": next(numbers), "type": "row", "title": title, "collapsed": False, "gridPos": _place(0, top, 24, 1)}
        top += 1
        metrics = [metric for metric in METRICS if metric.scope in scopes]
        for number, metric in enumerate(metrics):
            down, across = divmod(number, _COLUMNS // _WIDTH)
            place = _place(across * _WIDTH, top + down * _HEIGHT, _WIDTH, _HEIGHT)
            yield _panel(metric, prefix, next(numbers), place)
        top += -(-len(metrics) // (_COLUMNS // _WIDTH)) * _HEIGHT


def _panel(metric: Metric, prefix: str, number: int, place: dict[str, int]) -> dict[str, Any]:
    per_second = metric.kind == "counter"
    legend = " ".join(f"{{{{{label}}}}}" for label in ("run", *_shown(LABELS[metric.scope])))
    unit = _RATE_UNITS.get(metric.unit, "cps") if per_second else _GAUGE_UNITS.get(metric.unit, "short")
    limits = {"min": 0, "max": 1} if metric.unit == "ratio" else {"min": 0}
    return {
        "id": number,
        "type": "stat" if metric.scope == "state" else "timeseries",
        "title": _title(metric),
        "description": f"{metric.help} `{prefix}{metric.name}`{', per second' if per_second else ''}",
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, **limits}, "overrides": []},
        "targets": [{"refId": "A", "expr": expression(metric, prefix), "legendFormat": legend, "datasource": _SOURCE}],
    }


def _title(metric: Metric) -> str:
    """A short title: the name in words.

    >>> _title(METRICS[8])
    'stage: tasks in per second'
    """
    scope, _, words = metric.name.removeprefix("tamis_").removesuffix("_total").partition("_")
    per_second = " per second" if metric.kind == "counter" else ""
    return f"{scope}: {words.replace('_', ' ')}{per_second}"


def _shown(labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label != "node"] if "worker" in labels else list(labels)


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}
