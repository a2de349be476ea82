"""The worker's side of an external engine: an operator processes the parcels for its group and passes the others on.

Engines run a chain of operators, but a plan is a graph. Each parcel names the stage it is for, so any graph runs on a
chain: an operator passes on, unchanged, parcels for another stage. Data travels inside the engine. Files, counts and
failures are sent to the driver's mailbox before the engine receives the outputs. If an engine runs a task twice, the
driver recognises the task id.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.isolation import Isolation
from tamis.backends.outcome import Failure, Outcome, cannot_travel
from tamis.backends.payload import Envelope, TaskFile, decode_payload, encode_payload, release_payload
from tamis.backends.runner import GroupRunner
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.worker import travels
from tamis.plan import END
from tamis.runs.publication import remove_unpublished
from tamis.stages.base import WorkerMetadata
from tamis.stages.io.paths import join
from tamis.stages.scratch import exists, put_task
from tamis.tasks import RowNames, TableTask, Task
from tamis.tasks.storage import pickled

STOP = "stop"
"""A file in the run's scratch directory. While it exists, workers begin nothing new."""

SHOWN_BYTES = 2**16
"""Tasks up to this size are sent to the driver when they fail, so that it can name the files they were made of."""


@dataclass(frozen=True)
class Parcel:
    """Tasks inside an engine: one, or a batch that the driver has put together.

    Args:
        vertex: The stage it is for.
        fresh: Whether it comes straight from a source, so that it need not begin once the user wants to stop.
        envelopes: The tasks. Their payloads are bytes or files; that of a single task may be in the body instead.
        body: The table of a single task, as an Arrow stream, or all of it, pickled.
    """

    vertex: int
    fresh: bool
    envelopes: list[Envelope]
    body: Any = None


@dataclass(frozen=True)
class OperatorSpec:
    """What a worker needs to run an operator. It can be pickled whatever the stages are.

    Args:
        run: A name for the run, unique.
        group: The group's number.
        entry: The vertex its parcels are addressed to.
        name: The name of its first stage.
        stages: The stages, pickled.
        places: The run's directories.
        inside: Vertices later in the chain: tasks for them stay inside the engine.
        barriers: Vertices that list files and receive no tasks.
        path: The driver's module search path.
        retries: How often a task is tried again after a stage raised.
        keep_failed: Whether the data of a task that failed is saved to a file.
        renew: Whether stages are set up again after a failure.
        setup_attempts: How often setup is tried before the first task.
        timeout_s: How long one attempt at a parcel may take.
    """

    run: str
    group: int
    entry: int
    name: str
    stages: bytes
    places: RunPaths
    inside: frozenset[int]
    barriers: frozenset[int]
    path: tuple[str, ...] = ()
    retries: int = 1
    keep_failed: bool = False
    renew: bool = False
    setup_attempts: int = 1
    timeout_s: float | None = None


@dataclass
class Record:
    """What a worker reports to the driver about one parcel.

    Args:
        group: The group that has it.
        batch: Its tasks, without data.
        outcome: The outcome. Its outputs are those that leave the engine: the driver holds them for a later segment.
        inside: The outputs that stayed inside the engine, without data.
        retries: How often it was tried again.
        kept: Files with the data of the tasks, if it failed and the data is kept.
        skipped: Whether it did not begin, since the user wants to stop.
        in_setup: Whether the stages could not be set up: then the task is not at fault.
        begun: In the record of a beginning: the file in which the worker notes the running stage. If the worker dies,
            this record names the task.
    """

    group: int
    batch: list[Envelope]
    outcome: Outcome = field(default_factory=Outcome)
    inside: list[Envelope] = field(default_factory=list)
    retries: int = 0
    kept: list[str] = field(default_factory=list)
    skipped: bool = False
    in_setup: bool = False
    begun: str = ""


class Mailbox(Protocol):
    """Takes the workers' records to the driver."""

    def post(self, message: bytes) -> None:
        """Send a message; it has arrived when this returns."""


class Operator:
    """Runs one group on the parcels that are for it.

    Args:
        spec: The group, its settings and the run's directories.
        mailbox: Takes records to the driver.
        worker: The worker it runs in.
    """

    def __init__(self, spec: OperatorSpec, mailbox: Mailbox, worker: WorkerMetadata) -> None:
        self._spec, self._mailbox, self._worker = spec, mailbox, worker
        sys.path += [p for p in spec.path if p not in sys.path]
        self._group: GroupSpec = pickle.loads(spec.stages)[spec.group]
        self._marker_path = RunningStage.path(spec.places.local, os.urandom(8).hex())
        self._marker = RunningStage(self._marker_path)
        self._runner = self._new_runner()
        self._payloads = spec.places.payloads or join(spec.places.scratch, "payloads")
        self._stop = join(spec.places.scratch, STOP)

    def set_up(self) -> None:
        """Set the stages up before the first task. A failure is reported with the first task."""
        with _process_ends_with_stage():
            for _ in range(self._spec.setup_attempts):
                if self._runner.set_up() is None:
                    return

    def work(self, parcel: Parcel) -> Iterator[Parcel]:
        """Process a parcel; the parcels it makes are for later operators."""
        if parcel.vertex != self._spec.entry:
            yield parcel
            return
        if parcel.fresh and exists(self._stop):
            self._post(Record(self._spec.group, parcel.envelopes, skipped=True))
            return
        self._post(Record(self._spec.group, [_shown(parcel)], begun=self._marker_path))
        with _process_ends_with_stage():
            record, inside = self._processed(parcel)
            self._post(record)
        yield from inside

    def close(self) -> None:
        """Tear the stages down."""
        self._runner.close()

    def _new_runner(self) -> GroupRunner:
        return GroupRunner(self._group, self._worker, self._spec.places, self._marker)

    def _processed(self, parcel: Parcel) -> tuple[Record, list[Parcel]]:
        """The record for the driver, and the outputs that stay inside the engine."""
        tasks: list[Task[Any]] = []
        try:
            tasks = open_parcel(parcel)
            record = self._run(parcel, tasks)
            return record, [] if record.outcome.failure else self._sort(record)
        except Exception as error:  # noqa: BLE001 - a task that cannot travel is reported as any other failure
            record = Record(self._spec.group, [replace(e, attempt=1) for e in parcel.envelopes])
            record.outcome = Outcome(failure=cannot_travel(self._spec.name, error))
            if self._spec.keep_failed:
                record.kept = [self._saved(task) for task in tasks]
            return record, []

    def _attempt(self, parcel: Parcel, tasks: list[Task[Any]], isolation: Isolation | None) -> Outcome:
        """Try once. After ``timeout_s``, tell the driver, which ends the run: a stage cannot be ended from here."""
        limit = self._spec.timeout_s
        if limit is None:
            return self._runner.run(tasks, isolation)

        def report() -> None:
            words = f"it took longer than the {limit:g} s of timeout_s"
            failure = Failure(self._runner.running_stage, words, died=True)
            self._post(Record(self._spec.group, [_shown(parcel)], Outcome(failure=failure)))

        timer = threading.Timer(limit, report)
        timer.daemon = True
        timer.start()
        try:
            return self._runner.run(tasks, isolation)
        finally:
            timer.cancel()

    def _run(self, parcel: Parcel, tasks: list[Task[Any]]) -> Record:
        record = Record(self._spec.group, [_without_data(e) for e in parcel.envelopes])
        isolation: Isolation | None = None
        while True:
            failure = self._runner.set_up()  # separately: it does not count for timeout_s
            record.in_setup = failure is not None
            record.outcome = Outcome(failure=failure) if failure else self._attempt(parcel, tasks, isolation)
            failure = record.outcome.failure
            if failure is None:
                return record
            if failure.permanent or record.retries >= self._spec.retries:
                of_items = failure.of_items and not failure.died and not record.in_setup
                if isolation is not None or not self._spec.keep_failed or not of_items:
                    break
                isolation = Isolation()
            record.retries += 1
        for envelope, task in zip(record.batch, tasks, strict=True):
            envelope.attempt = record.retries + 1
            if task.nbytes <= SHOWN_BYTES:
                envelope.payload = pickled(task)
        if self._spec.keep_failed:
            record.kept = [self._saved(task) for task in tasks]
        if self._spec.renew:
            self._runner.close()
            self._runner = self._new_runner()
        return record

    def _sort(self, record: Record) -> list[Parcel]:
        """The outputs that stay inside the engine; the others stay in the record, in a form that can be pickled."""
        inside: list[Parcel] = []
        outside: list[Envelope] = []
        published = record.outcome.published
        try:
            for envelope in record.outcome.outputs:
                if envelope.vertex in self._spec.barriers:
                    release_payload(envelope.payload)
                elif envelope.vertex in self._spec.inside:
                    inside.append(sealed(envelope))
                else:
                    envelope.payload = self._for_driver(envelope)
                    outside.append(envelope)
        except Exception:
            for item in published:
                remove_unpublished(item)
            raise
        record.outcome.outputs = outside
        record.inside = [replace(parcel.envelopes[0], payload=None) for parcel in inside]
        return inside

    def _for_driver(self, envelope: Envelope) -> Any:
        if envelope.vertex == END:
            return pickled(envelope.payload) if isinstance(envelope.payload, Task) else envelope.payload
        return encode_payload(envelope.payload, self._payloads)

    def _saved(self, task: Task[Any]) -> str:
        """The file to which a task is saved."""
        path = join(self._payloads, os.urandom(8).hex())
        put_task(task, path)
        return path

    def _post(self, record: Record) -> None:
        failure = record.outcome.failure
        if failure is not None and not travels(failure.exception):
            record.outcome.failure = replace(failure, exception=None)
        self._mailbox.post(pickle.dumps(record))


@contextmanager
def _process_ends_with_stage() -> Iterator[None]:
    """End the process if a stage calls ``sys.exit``: it runs in a thread of the engine, which would only end that."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, the thread would end without a message
        code = error.code if isinstance(error, SystemExit) else None
        os._exit(code if isinstance(code, int) else 1)


def sealed(envelope: Envelope) -> Parcel:
    """A parcel for a task in this process: tables as Arrow streams, which are read without a copy."""
    task = envelope.payload
    if not isinstance(task, Task):
        return Parcel(envelope.vertex, False, [envelope])
    if not isinstance(task, TableTask):
        return Parcel(envelope.vertex, False, [replace(envelope, payload=None)], pa.py_buffer(pickled(task)))
    table = task.data if task.names is None else task.names.added_to(task.data)
    shell = task.select([]) if task.names is None else task.select([]).named("")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Parcel(envelope.vertex, False, [replace(envelope, payload=pickled(shell))], sink.getvalue())


def open_parcel(parcel: Parcel) -> list[Task[Any]]:
    """The tasks in a parcel."""
    if parcel.body is None:
        return [decode_payload(e.payload) for e in parcel.envelopes]
    shell = parcel.envelopes[0].payload
    if shell is None:
        return [pickle.loads(parcel.body)]
    table, names = RowNames.taken_from(pa.ipc.open_stream(parcel.body).read_all())
    task = decode_payload(shell)
    assert isinstance(task, TableTask)
    task = task.with_table(table)
    return [task if names is None else task.named(names)]


def _shown(parcel: Parcel) -> Envelope:
    """The first task of a parcel, with its data only if that is small, such as a list of files."""
    first = parcel.envelopes[0]
    small = parcel.body is None and isinstance(first.payload, bytes) and len(first.payload) <= SHOWN_BYTES
    return replace(first, payload=first.payload if small else None)


def _without_data(envelope: Envelope) -> Envelope:
    """An envelope for the driver: without data, but with the file of the data, if any, which the driver frees."""
    payload = envelope.payload
    return replace(envelope, payload=payload if isinstance(payload, TaskFile) else None)
