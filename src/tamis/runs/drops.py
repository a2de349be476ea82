"""The drop ledger: which rows were left out, by which stage, why, and with which score."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tamis.stages.emit import Drop
from tamis.tasks.base import Task

__all__ = ["SCHEMA", "DropLog", "read_drops"]

SCHEMA = pa.schema(
    {
        "stage": pa.dictionary(pa.int32(), pa.string()),
        "reason": pa.dictionary(pa.int32(), pa.string()),
        "score": pa.float64(),  # where it is a number
        "score_text": pa.string(),  # where it is not
        "source": pa.dictionary(pa.int32(), pa.string()),
        "row": pa.int64(),  # its number in the table that the stage was given
        "id": pa.string(),  # what the column "id" says, if there is one
    }
)


class DropLog:
    """Collects what one worker drops while it works on one task."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []

    def add(self, stage: str, drop: Drop) -> None:
        """Note some rows."""
        count = len(drop.rows)
        table, selection = drop.batch.selection
        rows = selection[drop.rows]
        numbers, texts = _scores(drop.scores, count)
        ids = pa.nulls(count, pa.string())
        if "id" in table.column_names and not pa.types.is_nested(table.schema.field("id").type):
            ids = _one(table.column("id").take(pa.array(rows)).cast(pa.string()))
        names = (_repeated(value, count) for value in (stage, drop.reason, _source(drop.batch)))
        stages, reasons, sources = names
        columns = [stages, reasons, numbers, texts, sources, pa.array(rows, pa.int64()), ids]
        self._parts.append(pa.table(columns, schema=SCHEMA))

    def write(self, path: str) -> int:
        """Write what was noted as Parquet; gives how many rows that were."""
        import pyarrow.parquet as pq

        table = pa.concat_tables(self._parts).unify_dictionaries()
        pq.write_table(table, path, compression="zstd")
        return int(table.num_rows)

    def __bool__(self) -> bool:
        return bool(self._parts)


def read_drops(folder: str) -> pa.Table:
    """Everything that a run noted: for runs that are not too large."""
    return pa.concat_tables([SCHEMA.empty_table(), *_tables(folder)], promote_options="permissive")


def _tables(folder: str) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.startswith("."):
            yield pq.read_table(os.path.join(folder, name)).cast(SCHEMA)


def _scores(scores: pa.Array | None, count: int) -> tuple[pa.Array, pa.Array]:
    """Scores that are numbers, and as text those that are not."""
    none = pa.nulls(count, pa.float64()), pa.nulls(count, pa.string())
    if scores is None or pa.types.is_null(scores.type):
        return none
    if pa.types.is_floating(scores.type) or pa.types.is_integer(scores.type) or pa.types.is_boolean(scores.type):
        return scores.cast(pa.float64()), none[1]
    if pa.types.is_nested(scores.type):
        return none
    return none[0], scores.cast(pa.string())


def _repeated(value: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def _source(task: Task[object]) -> str:
    files = task._metadata.get("source_files") or ()
    return ", ".join(map(str, files))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
