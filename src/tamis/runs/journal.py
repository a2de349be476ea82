"""The journal of a run: finished work becomes durable, then its files get their final names.

Each task costs the driver an entry in a list. A thread of the journal commits the entries of a short while together:

1. the data of the output files is forced to disk, by several threads, from the moment a file is recorded;
2. the drop ledgers of the tasks become one Parquet file;
3. the records are appended to the ledger, with one ``fsync``: from here on the work counts;
4. the files get their final names, and output tasks are listed in ``outputs.jsonl``.

If the run directory is on an object store, the record is uploaded before output files get their final names.

When a run is continued, what earlier starts have finished is not recorded again, only counted.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis.errors import DataError, PublishError, redacted
from tamis.runs.directory import RunDirectory, kept_output
from tamis.runs.finished_work import FinishedBatch, FinishedWork
from tamis.runs.ledger import Ledger
from tamis.runs.mirror import SEGMENT_BYTES, Mirror
from tamis.runs.publication import publish, remove_unpublished, sync
from tamis.stages.emit import Publish
from tamis.stages.io.paths import base_name, is_local, write_problem
from tamis.tasks.storage import temporary_beside

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_S = 0.25
"""Seconds between two commits. This is how long finished work may stay without its final name."""

UPLOAD_S = 1.0
"""The same where each commit is an upload to an object store."""

MAX_PENDING = 2000
"""Records that are committed earlier than that."""

MAX_PENDING_DROPS = 1_000_000
"""Rows of drop ledgers in memory that are committed earlier than that."""

THREADS = 8
"""Files that are forced to disk, or renamed on a remote file system, at the same time."""

MAX_LISTED = 1000
"""How many output files ``run.json`` names."""

_LOG = logging.getLogger("tamis")


@dataclass
class _Commit:
    """What is made durable together."""

    fed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    published: list[Publish] = field(default_factory=list)
    syncing: list[Future[None]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    drops: list[tuple[str, pa.Table]] = field(default_factory=list)
    drop_rows: int = 0
    removed: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.records or self.outputs)

    @property
    def is_full(self) -> bool:
        return len(self.records) >= MAX_PENDING or self.drop_rows >= MAX_PENDING_DROPS


class RunJournal:
    """Records finished work and publishes its files.

    All methods are called from one thread, the driver's. What went wrong in a commit is raised by the next
    :meth:`record` or :meth:`flush`.

    Args:
        directory: The run's directory.
        commit_s: Seconds between two commits; :data:`COMMIT_S` or :data:`UPLOAD_S` by default.
        check: Called with each file before it is recorded. It raises for a file that must not become output.
        finished: What earlier starts of the run have finished.
    """

    def __init__(
        self,
        directory: RunDirectory,
        commit_s: float | None = None,
        check: Callable[[Publish], None] | None = None,
        finished: FinishedWork | None = None,
    ) -> None:
        self._directory, self._check, self._mirror = directory, check, directory.mirror
        self._commit_s = commit_s if commit_s is not None else COMMIT_S if self._mirror is None else UPLOAD_S
        self.finished = finished or FinishedWork(directory)
        self._ledger = Ledger(directory.ledger, None if self._mirror is None else SEGMENT_BYTES)
        self._output_log = Path(directory.path, "outputs.jsonl").open("w", encoding="utf-8")  # noqa: SIM115 - held open
        self._drop_files = 0
        self._pool: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._pending = _Commit()
        self._committing = self._hurry = self._closed = False
        self._error: Exception | None = None
        self.outputs = 0
        """Tasks that reached the end of the pipeline."""
        self.files: list[dict[str, Any]] = []
        """The first :data:`MAX_LISTED` output files."""
        self.file_count = self.file_rows = self.file_bytes = 0
        self.beside_count = self.beside_bytes = 0
        """Files that describe output files, such as the index of a tar."""
        self.tasks_before = 0
        """Tasks that earlier starts of the run have finished."""
        self.removed: list[str] = []
        """Output files of earlier starts that do not belong to the run any more."""

    # -- what the driver calls ---------------------------------------------------------------------------------------

    def fed(self, source: str, task_id: str, number: int, files: list[dict[str, Any]]) -> None:
        """Record the number that a task of a source got. It is committed with the next finished task."""
        entry: dict[str, Any] = {"id": task_id, "number": number}
        if files:
            entry["files"] = files
        with self._changed:
            self._pending.fed.setdefault(source, []).append(entry)

    def record(self, batch: FinishedBatch, published: list[Publish], drops: pa.Table | None = None) -> None:
        """Record that a stage, and those that run in the same worker, has finished some tasks.

        Args:
            batch: The tasks, and what became of them.
            published: The files they made, under temporary names.
            drops: The rows they dropped, as :meth:`tamis.runs.drops.DropLog.table` gives them.
        """
        finals: set[str] = set()
        for item in published:
            if item.final in finals:
                raise DataError(
                    f"stage {batch.stage!r}, or one after it in the same worker, has given two files this name, so one "
                    "would replace the other",
                    path=redacted(item.final),
                )
            finals.add(item.final)
            if self._check is not None:
                self._check(item)
            self._count(item.final, item.rows, item.nbytes, is_beside=item.beside)
            self.finished.supersede(redacted(item.final))
        self.finished.repeated(batch.key, {*map(redacted, finals)})
        record = batch.line([*batch.files, *map(ledger_entry, published)])
        syncing = [self._threads().submit(_sync, item) for item in published if item.needs_sync]
        with self._changed:
            while self._pending.is_full and self._thread is not None and self._error is None:
                self._changed.wait()  # the disk cannot keep up
            self._raise_error()
            self._pending.records.append(record)
            self._pending.published += published
            self._pending.syncing += syncing
            if drops is not None:
                self._pending.drops.append((batch.key, drops))
                self._pending.drop_rows += drops.num_rows
            self._wake()

    def recalled(self, batch: FinishedBatch) -> None:
        """Count what an earlier start of the run has recorded."""
        self.tasks_before += len(batch.tasks)
        for file in batch.files:
            self._count(file["path"], file["rows"], file["bytes"], is_beside=bool(file.get("beside")))

    def forget(self, stages: Iterable[str] | None = None) -> None:
        """Remove what earlier starts have finished and this one has no use for.

        Args:
            stages: Only what groups that begin with one of these stages have finished. Without them everything, from
                the drop ledger too.
        """
        removed, files = self.finished.remove_unused(stages)
        self.removed += [path for path in files if not self._directory.keeps(path)]
        with self._changed:
            self._pending.removed += files
        resized = list(self.finished.clean_drops()) if stages is None else []
        for path, nbytes in resized:
            self.note({"resized": path, "bytes": nbytes})
        if removed:
            self.note({"removed": removed})
        if removed or resized:
            self.flush()

    def finish(self, line: dict[str, Any]) -> None:
        """Record that the run has come to its end."""
        self.note(line)
        self.flush()

    def note(self, line: dict[str, Any]) -> None:
        """Add a line to the ledger that is not about finished tasks. It is committed with the next ones."""
        with self._changed:
            self._pending.records.append(line)
            self._wake()

    def resized(self, finished: Publish, grown: int) -> None:
        """Note that a published file was written again, which made it larger by some bytes."""
        self.file_bytes += grown
        self.note({"resized": redacted(finished.final), "bytes": finished.nbytes})
        for file in self.files:
            if file["path"] == redacted(finished.final):
                file["bytes"] = finished.nbytes

    def output(self, envelope: Any) -> None:
        """Record that a task has reached the end of the pipeline."""
        self.outputs += 1
        entry = {"order": envelope.order, **kept_output(envelope.payload)}
        with self._changed:
            self._pending.outputs.append(json.dumps(entry) + "\n")
            self._wake()

    def flush(self) -> None:
        """Wait until everything recorded so far is durable and has its final names."""
        with self._changed:
            while (self._pending or self._committing) and self._error is None and self._thread is not None:
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait()
            self._raise_error()

    def discard(self, published: Iterable[Publish]) -> None:
        """Remove the files of an attempt that does not count."""
        for item in published:
            remove_unpublished(item)

    def close(self) -> None:
        """Commit what is left and close the files. A run that ended well has called :meth:`flush` before."""
        try:
            self.flush()
        except PublishError:  # the run has failed already; its own error is the one to raise
            _LOG.exception("finished work could not be published")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()
        self._ledger.close()
        self._output_log.close()
        self.finished.close()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # -- the journal's own thread ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """There is something to commit. The condition is held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tamis-journal", daemon=True)
            self._thread.start()
        elif len(self._pending.records) + len(self._pending.outputs) == 1 or self._pending.is_full:
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed)
                self._changed.wait_for(lambda: self._hurry or self._closed or self._pending.is_full, self._commit_s)
                if not self._pending:
                    return
                commit, self._pending = self._pending, _Commit()
                self._committing, self._hurry = True, False
                self._changed.notify_all()  # there is room again
            try:
                self._commit(commit)
            except Exception as error:  # noqa: BLE001 - raised in the driver's thread, see flush()
                self._error = error
            with self._changed:
                self._committing = False
                self._changed.notify_all()
                if self._error is not None:
                    self._thread = None
                    return

    def _commit(self, commit: _Commit) -> None:
        for future in commit.syncing:
            future.result()
        if commit.drops:
            drops = self._write_drops(commit.drops)
            commit.published.append(drops)
            commit.records.append({"drops": drops.rows, "files": [ledger_entry(drops)]})
        with _explained(self._directory.ledger, "finished work cannot be recorded"):
            for source, tasks in commit.fed.items():
                self._ledger.append({"fed": source, "tasks": tasks})
            for record in commit.records:
                self._ledger.append(record)
            self._ledger.commit()
        if self._mirror is not None:
            self._upload(self._mirror, commit)
        for item in commit.published:
            if is_local(item.final):
                _publish(item)
        list(self._threads().map(_publish, [item for item in commit.published if not is_local(item.final)]))
        self._output_log.writelines(commit.outputs)
        self._output_log.flush()

    def _upload(self, mirror: Mirror, commit: _Commit) -> None:
        """Upload the record of finished work, and the files of the run directory that it names."""
        for item in commit.published:
            if self._directory.records(item.final):
                _publish(item)
        named = [file["path"] for record in commit.records for file in record.get("files", ())]
        resized = [record["resized"] for record in commit.records if "resized" in record]
        mirror.commit([*named, *resized, *commit.removed])

    def _write_drops(self, drops: list[tuple[str, pa.Table]]) -> Publish:
        """One Parquet file for the drop ledgers of several tasks."""
        from tamis.runs.drops import joined_drops, write_drops

        self._drop_files += 1
        final = os.path.join(self._directory.drops, f"{self._ledger.segment:06d}-{self._drop_files:06d}.parquet")
        table = joined_drops(drops)
        hint = ". To run without it: run(drop_ledger=False), or tamis run --no-drop-ledger"
        with _explained(final, "the drop ledger cannot be written", hint), temporary_beside(final) as temporary:
            write_drops(table, temporary)
            return sync(Publish(temporary, final, table.num_rows, os.path.getsize(temporary), needs_sync=True))

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tamis-publish")
        return self._pool

    def _count(self, path: str, rows: int, nbytes: int, *, is_beside: bool) -> None:
        if self._directory.keeps(path):
            return
        if is_beside:
            self.beside_count += 1
            self.beside_bytes += nbytes
            return
        self.file_count += 1
        self.file_rows += rows
        self.file_bytes += nbytes
        if len(self.files) < MAX_LISTED:
            self.files.append({"path": redacted(path), "rows": rows, "bytes": nbytes})


def ledger_entry(item: Publish) -> dict[str, Any]:
    """A file as the ledger names it. With the temporary name, a rename that a crash prevented can be made up for."""
    entry: dict[str, Any] = {"path": redacted(item.final), "rows": item.rows, "bytes": item.nbytes}
    if item.temporary != item.final:
        entry["temporary"] = base_name(item.temporary)
    if item.beside:
        entry["beside"] = True
    return entry


def _publish(item: Publish) -> None:
    with _explained(item.final, "a finished file cannot get its final name"):
        publish(item)


def _sync(item: Publish) -> None:
    with _explained(item.final, "the file cannot be forced to disk"):
        sync(item)


@contextmanager
def _explained(path: str, problem: str, hint: str = "") -> Iterator[None]:
    """Say which file an error of the file system is about."""
    try:
        yield
    except OSError as error:
        raise PublishError(redacted(f"{path}: {problem}: {write_problem(error)}{hint}")) from error
