"""The drop ledger: which rows were left out, by which stage, why, and with which score."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
        self._drops: list[tuple[str, Drop, pa.Table, NDArray[np.int64]]] = []

    def add(self, stage: str, drop: Drop) -> None:
        """Note some rows."""
        table, selection = drop.batch.selection
        self._drops.append((stage, drop, table, selection[drop.rows]))

    def write(self, path: str) -> None:
        """Write what was noted as Parquet."""
        import pyarrow.parquet as pq

        pq.write_table(self.table(), path, compression="zstd")

    def table(self) -> pa.Table:
        """What was noted."""
        counts = [len(rows) for *_, rows in self._drops]
        names = zip(*((stage, drop.reason, _source(drop.batch)) for stage, drop, *_ in self._drops), strict=True)
        stages, reasons, sources = (_repeated(values, counts) for values in names)
        scores = [_scores(drop.scores, count) for (_, drop, *_), count in zip(self._drops, counts, strict=True)]
        numbers, texts = (pa.concat_arrays(parts) for parts in zip(*scores, strict=True))
        rows = pa.array(np.concatenate([rows for *_, rows in self._drops]), pa.int64())
        return pa.table([stages, reasons, numbers, texts, sources, rows, self._ids()], schema=SCHEMA)

    def __bool__(self) -> bool:
        return bool(self._drops)

    def _ids(self) -> pa.Array:
        """What the column "id" says of the rows, if there is one. Mostly they are all of one table."""
        parts = []
        for _, run in itertools.groupby(self._drops, lambda drop: id(drop[2])):
            drops = list(run)
            table, rows = drops[0][2], np.concatenate([rows for *_, rows in drops])
            if "id" in table.column_names and not pa.types.is_nested(table.schema.field("id").type):
                ids = table.column("id")
                parts += ids.take(pa.array(rows)).cast(pa.string()).chunks
            else:
                parts.append(pa.nulls(len(rows), pa.string()))
        return pa.concat_arrays(parts)


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


def _repeated(values: tuple[str, ...], counts: list[int]) -> pa.Array:
    """Each value as often as its count says."""
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.repeat(np.array([known[value] for value in values], np.int32), counts)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(known), pa.string()))


def _source(task: Task[object]) -> str:
    files = task._metadata.get("source_files") or ()
    return ", ".join(map(str, files))
