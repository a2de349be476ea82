"""Traces of runs: with the in-memory exporter of OpenTelemetry, and sent to a server on this machine."""

from __future__ import annotations

import gzip
import itertools
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.errors import MissingExtraError, StageError
from tamis.runs import traces
from tamis.runs.stats import StageStats
from tamis.runs.traces import RunTrace, TaskDone, traces_wanted


@processing_stage(name="double")
def double(task: DocumentBatch) -> DocumentBatch:
    return DocumentBatch({"n": [2 * n for n in task.data["n"].to_pylist()]})


@processing_stage(name="refuse")
def refuse(task: DocumentBatch) -> DocumentBatch:
    raise ValueError("not today")


def run(folder: Path, stage: Any = double, **settings: Any) -> Any:
    batches = [DocumentBatch({"n": [n, n]}) for n in range(5)]
    return Pipeline("numbers", stages=[stage]).run(
        LocalExecutor(workers=1, substrate="threads", retries=0),
        batches,
        run_dir=folder / "run",
        progress="off",
        **settings,
    )


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*traces.ENDPOINTS, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The program's own tracer provider, which keeps spans in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def test_a_run_its_stages_and_its_tasks_have_spans(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    run(tmp_path, traces=True)
    spans = by_name(memory)
    (whole,), (stage,), tasks = spans["run numbers"], spans["stage double"], spans["task"]
    assert whole.parent is None
    assert stage.parent.span_id == whole.context.span_id
    assert {task.parent.span_id for task in tasks} == {stage.context.span_id}
    assert whole.attributes["tamis.state"] == "done"
    assert whole.attributes["tamis.run"] == "run"
    assert {name: stage.attributes[f"tamis.{name}"] for name in ("tasks_in", "rows_in", "rows_out", "dropped")} == {
        "tasks_in": 5,
        "rows_in": 10,
        "rows_out": 10,
        "dropped": 0,
    }
    assert stage.attributes["tamis.tasks_traced"] == len(tasks) == 5
    assert all(task.attributes["tamis.rows"] == 2 and task.attributes["tamis.worker"] == 0 for task in tasks)
    assert all(whole.start_time <= task.start_time <= task.end_time <= whole.end_time for task in tasks)


def test_a_clock_that_jumps_gives_no_span_of_negative_length(
    tmp_path: Path, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, hours = time.time_ns, itertools.cycle([0, 6, -6])
    monkeypatch.setattr(time, "time_ns", lambda: real() + next(hours) * 3600 * 10**9)
    run(tmp_path, traces=True)
    spans = memory.get_finished_spans()
    assert len(spans) == 7
    assert all(0 <= span.end_time - span.start_time < 3600 * 10**9 for span in spans)


def test_what_failed_is_marked(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    with pytest.raises(StageError):
        run(tmp_path, refuse, traces=True)
    spans = by_name(memory)
    assert spans["run numbers"][0].status.status_code is trace.StatusCode.ERROR
    assert "not today" in (spans["task"][0].status.description or "")


def test_traces_are_off_unless_they_are_wanted(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    run(tmp_path)
    assert memory.get_finished_spans() == ()


def test_no_stage_has_more_than_a_thousand_tasks_in_a_trace(memory: InMemorySpanExporter) -> None:
    recorded = RunTrace("many", {}, ["read", "words"])
    now = time.monotonic_ns()
    for number in range(20_000):
        recorded.task(TaskDone(1, (1,), ended_ns=now + number, seconds=0.0))
    for number in range(2_000):
        recorded.task(TaskDone(0, (0,), ended_ns=now + number, seconds=0.0, error="KeyError"))
    recorded.end("done", [StageStats("read"), StageStats("words")])
    spans = by_name(memory)
    words, read = spans["stage words"][0], spans["stage read"][0]
    tasks = [t for t in spans["task"] if t.parent.span_id == words.context.span_id]
    assert 200 < len(tasks) <= traces.MAX_TASKS
    assert max(t.end_time for t in tasks) - min(t.end_time for t in tasks) > 18_000  # from beginning to end
    assert read.attributes["tamis.tasks_traced"] == traces.MAX_TASKS


def test_the_environment_switches_them_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not traces_wanted(None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert traces_wanted(None)
    assert not traces_wanted(False)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not traces_wanted(True)


def test_a_missing_package_is_named_where_traces_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(traces, "_PACKAGES", {"no_such_package.sdk": "opentelemetry-sdk"})
    with pytest.raises(MissingExtraError, match=r"opentelemetry-sdk.*pip install -e '\.\[traces\]'"):
        run(tmp_path, traces=True)
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")  # of the machine, perhaps for others
    run(tmp_path)
    assert "opentelemetry-sdk" in caplog.text


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """A server that takes traces as OpenTelemetry's collector does; its address, and the spans it received."""
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            message = ExportTraceServiceRequest.FromString(body)
            for resource in message.resource_spans:
                service = {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"]
                received.extend((self.path, service, s) for scope in resource.scope_spans for s in scope.spans)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


def test_a_collector_receives_the_whole_trace(
    tmp_path: Path, receiver: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = receiver
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    run(tmp_path)
    assert {(path, service) for path, service, _ in received} == {("/v1/traces", "tamis")}
    spans = [span for _, _, span in received]
    assert sorted(s.name for s in spans) == ["run numbers", "stage double", *["task"] * 5]
    assert len({s.trace_id for s in spans}) == 1
    (stage,) = [s for s in spans if s.name.startswith("stage")]
    assert {a.key: a.value.int_value for a in stage.attributes}["tamis.rows_out"] == 10


def test_a_collector_that_is_not_there_does_not_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    assert run(tmp_path).state == "done"
