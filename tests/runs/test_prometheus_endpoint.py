"""The endpoint that Prometheus reads: what it serves, where, and what it refuses."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tamis.errors import MissingExtraError, PlanError
from tamis.runs.metrics import METRICS, Sample, StageSample
from tamis.runs.prometheus_endpoint import PrometheusEndpoint


def sample(rows: int) -> Sample:
    return Sample(1.0, "", "running", None, 0, 0, 0, 1, 0, (StageSample('odd "name"\n', rows_out=rows),))


def read(endpoint: PrometheusEndpoint) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urllib.request.urlopen(endpoint.url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        f"{family.name}{'_total' if family.type == 'counter' else ''}": [(s.labels, s.value) for s in family.samples]
        for family in families
    }


def test_runs_in_one_process_do_not_clash() -> None:
    first, second = PrometheusEndpoint(), PrometheusEndpoint()
    try:
        for number, endpoint in enumerate((first, second)):
            endpoint.begin("test", f"run-{number}")
            endpoint.take(sample(rows=number))
        for number, endpoint in enumerate((first, second)):
            ((labels, value),) = read(endpoint)["tamis_stage_rows_out_total"]
            assert labels == {"pipeline": "test", "run": f"run-{number}", "stage": 'odd "name"\n'}
            assert value == number
    finally:
        first.close()
        second.close()


def test_all_metrics_are_served_with_their_types_and_labels() -> None:
    endpoint = PrometheusEndpoint()
    try:
        assert read(endpoint) == {}  # before the first sample
        endpoint.take(sample(rows=7))
        found = read(endpoint)
    finally:
        endpoint.close()
    assert set(found) == {m.name for m in METRICS}
    for metric in METRICS:
        assert all(set(labels) == set(metric.labels) for labels, _ in found[metric.name])


def test_it_listens_on_this_machine_only_and_ends_when_it_is_closed() -> None:
    endpoint = PrometheusEndpoint()
    assert endpoint.url.startswith("http://127.0.0.1:")
    endpoint.close()
    endpoint.close()
    with pytest.raises(urllib.error.URLError):
        read(endpoint)


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PlanError, match=f"metrics_port={port}: cannot listen on 127.0.0.1.*0 picks a free one"):
            PrometheusEndpoint(port=port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65536), ("127.0.0.1", -1), ("192.0.2.1", 0)])
def test_addresses_that_cannot_be_are_refused(host: str, port: int) -> None:
    with pytest.raises(PlanError, match=f"metrics_port={port}"):
        PrometheusEndpoint(host, port)


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"prometheus_client.*pip install -e '\.\[metrics\]'"):
        PrometheusEndpoint()
