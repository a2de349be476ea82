"""Rows that leave the pipeline while a worker works on a task: those that were dropped, and those it could not read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tamis.backends.group_spec import RunPaths
from tamis.backends.isolation import FailedItem
from tamis.errors import redacted
from tamis.runs.drops import DropLog
from tamis.runs.kept_scores import ScoreLog
from tamis.runs.quarantine import FailedRows
from tamis.runs.set_aside import DATA, SetAsideTask
from tamis.stages.emit import BadRows, Drop, Publish
from tamis.stages.scratch import save_task, write_file
from tamis.tasks import FileGroup, TableTask
from tamis.tasks.scored import Scored
from tamis.tasks.storage import format_order

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TaskRecords", "quarantine_file"]

DROPS_ROWS = 4096
"""A drop ledger up to this length is handed to the driver, which writes those of many tasks to one file."""


class TaskRecords:
    """What one worker notes while it works on one task.

    Args:
        places: The run's directories.
    """

    def __init__(self, places: RunPaths) -> None:
        self._places, self._drops = places, DropLog()
        self._bad: dict[str, list[dict[str, Any]]] = {}
        self._failed: list[FailedItem] = []
        self._scores = ScoreLog()

    def drop(self, stage: str, drop: Drop) -> None:
        """Note rows that a stage dropped, if the run has a drop ledger."""
        if self._places.drops:
            self._drops.add(stage, drop)

    def score(self, stage: str, scored: Scored, batch: TableTask) -> None:
        """Note the scores that a stage gave to rows of a batch, if the run keeps them."""
        self._scores.add(stage, scored, batch)

    def quarantine(self, stage: str, bad: BadRows) -> None:
        """Note rows that a stage could not read."""
        self._bad.setdefault(stage, []).extend(
            {
                "source": redacted(row.path),
                "position": row.byte,
                "line": row.line,
                "problem": row.problem,
                "raw": row.raw[:1000].decode("utf-8", "backslashreplace"),
            }
            for row in bad.rows
        )

    def fail(self, item: FailedItem) -> None:
        """Note an item that a stage fails on."""
        self._failed.append(item)

    def write(self, group: int, task_id: str) -> tuple[list[Publish], pa.Table | None]:
        """Write what was noted: files to publish, and a drop ledger that is too short for a file."""
        published = [self._write_quarantine(stage, task_id) for stage in self._bad]
        published += self._write_failed(task_id)
        if self._scores:
            final = os.path.join(self._places.scores, f"{group}-{task_id}.parquet")
            published.append(write_file(final, 0, self._scores.write, self._places.staging))
        if not self._drops:
            return published, None
        table = self._drops.table()
        if table.num_rows <= DROPS_ROWS:
            return published, table
        final = os.path.join(self._places.drops, f"{group}-{task_id}.parquet")
        try:
            return [*published, write_file(final, 0, self._drops.write, self._places.staging)], None
        except OSError as e:
            raise OSError(
                f"the drop ledger {final} cannot be written: {e}. Free some space, put the run directory "
                "elsewhere, or do without it: run(drop_ledger=False), tamis run --no-drop-ledger"
            ) from e

    def _write_failed(self, task_id: str) -> Iterator[Publish]:
        """Files for the items that stages fail on: rows as Parquet, other things each in a file."""
        alike: dict[tuple[str, type[TableTask], str], list[FailedItem]] = {}
        for number, item in enumerate(self._failed):
            task = item.task
            if isinstance(task, TableTask):
                alike.setdefault((item.failure.stage, type(task), str(task.data.schema)), []).append(item)
            else:
                yield from self._write_item(item, f"{task_id}-{number}")
        for number, ((stage, kind, _), items) in enumerate(alike.items()):
            rows = kind.concat([item.task for item in items if isinstance(item.task, kind)])
            place = format_order(items[0].task.order)
            errors, messages, frames = zip(*(item.words for item in items), strict=True)
            failed = FailedRows(stage, rows, errors, messages, frames, place)
            final = quarantine_file(self._places.quarantine, stage, f"{task_id}-{number}", ".parquet")
            yield write_file(final, 0, failed.write, self._places.staging)

    def _write_item(self, item: FailedItem, name: str) -> Iterator[Publish]:
        final = quarantine_file(self._places.quarantine, item.failure.stage, name, DATA)
        yield save_task(item.task, final, self._places.staging)
        error, message, frames = item.words
        aside = SetAsideTask(
            stage=item.failure.stage,
            first_stage=item.failure.stage,
            task=item.task.task_id,
            place=format_order(item.task.order),
            rows=None if isinstance(item.task, FileGroup) else 1,
            files=[redacted(str(p)) for p in item.task.data] if isinstance(item.task, FileGroup) else [],
            error=error,
            message=message,
            traceback=frames,
            attempts=2,
            data=os.path.basename(final),
            directory=self._places.quarantine,
        )
        record = quarantine_file(self._places.quarantine, item.failure.stage, name)
        yield write_file(record, 0, lambda sink: sink.write(aside.encoded()), self._places.staging)

    def _write_quarantine(self, stage: str, task_id: str) -> Publish:
        entries = ({"stage": stage, "task": task_id, **row} for row in self._bad[stage])
        content = "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries).encode()
        final = quarantine_file(self._places.quarantine, stage, task_id)
        return write_file(final, 0, lambda sink: sink.write(content), self._places.staging)


def quarantine_file(directory: str, stage: str, task_id: str, ending: str = ".jsonl") -> str:
    """The quarantine's file for what a stage could not do of a task."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in stage)
    return os.path.join(directory, f"{name}-{task_id}{ending}")
