"""The Prometheus endpoint of a run: a thread of the driver that answers with the latest sample."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final

from tamis.errors import MissingExtraError, PlanError
from tamis.runs.metrics import METRICS, Sample

__all__ = ["LOOPBACK", "PrometheusEndpoint"]

LOOPBACK: Final = "127.0.0.1"
"""The address to listen on unless another one is given: only programs of this machine can read the metrics."""

_POLL_S = 0.05
"""How often the thread looks whether the run has ended, in seconds."""


class PrometheusEndpoint:
    """Serves the latest sample of a run. It has a registry of its own, so that runs in one process do not clash.

    Args:
        host: The address to listen on.
        port: The port; 0 picks a free one.

    Attributes:
        url: The address of the metrics.

    Raises:
        MissingExtraError: ``prometheus_client`` is not installed.
        PlanError: The port is taken, or the address is not one of this machine.
    """

    def __init__(self, host: str = LOOPBACK, port: int = 0) -> None:
        if importlib.util.find_spec("prometheus_client") is None:
            raise MissingExtraError("run(metrics_port=...)", package="prometheus_client", extra="metrics")
        from prometheus_client import CollectorRegistry, MetricsHandler

        if not 0 <= port <= 65535:
            raise PlanError(f"metrics_port={port}: must be between 0 and 65535; 0 picks a free port")
        self._common = ("", "")
        self._sample: Sample | None = None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _server_of(family)((host, port), MetricsHandler.factory(registry))
        except OSError as error:
            raise PlanError(
                f"metrics_port={port}: cannot listen on {host}: {error.strerror or error}. Give another port; 0 picks "
                "a free one"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="tamis-metrics", daemon=True
        )
        self._thread.start()

    def begin(self, pipeline: str, run: str) -> None:
        """The labels of all metrics: the pipeline's name, and the run's."""
        self._common = (pipeline, run)

    def take(self, sample: Sample) -> None:
        """This is the latest sample from now on."""
        self._sample = sample

    def collect(self) -> Iterator[Any]:
        """All metrics. Called by ``prometheus_client``, in the thread of a request."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sample = self._sample  # the driver may replace it meanwhile
        if sample is None:
            return
        for metric in METRICS:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for labels, value in sample.values(metric):
                family.add_metric([*self._common, *labels], value)
            yield family

    def close(self) -> None:
        """Stop listening. Doing it again changes nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def _server_of(family: int) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = family

        def server_bind(self) -> None:
            TCPServer.server_bind(self)  # HTTPServer looks up the name of this machine, which can take seconds

    return Server
