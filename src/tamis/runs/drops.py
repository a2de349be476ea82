"""The drop ledger: which rows were left out, by which stage, why, and with which score."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.stages.emit import Drop
from tamis.tasks import DocumentBatch

__all__ = ["SCHEMA", "DropLog", "read_drops"]

SCHEMA = pa.schema(
    {
        "stage": pa.dictionary(pa.int32(), pa.string()),
        "reason": pa.dictionary(pa.int32(), pa.string()),
        "score": pa.float64(),  # where it is a number
        "score_text": pa.string(),  # where it is not
        "source": pa.dictionary(pa.int32(), pa.string()),
        "row": pa.int64(),  # its number in the batch that the stage was given
        "id": pa.string(),  # what the column "id" says, if there is one
    }
)


@dataclass(frozen=True)
class _Noted:
    """Rows that were dropped for one reason, without the batch they were in: its texts are not kept for this."""

    stage: str
    reason: str
    source: str
    rows: NDArray[np.int64]
    numbers: pa.Array
    texts: pa.Array
    ids: pa.Array


class DropLog:
    """Collects what one worker drops while it works on one task."""

    def __init__(self) -> None:
        self._noted: list[_Noted] = []

    def add(self, stage: str, drop: Drop) -> None:
        """Note some rows."""
        rows = np.asarray(drop.rows, np.int64)
        numbers, texts = _scores(drop.scores, len(rows))
        ids = _ids(drop.batch, rows)
        self._noted.append(_Noted(stage, drop.reason, _source(drop.batch), rows, numbers, texts, ids))

    def write(self, path: str) -> None:
        """Write what was noted as Parquet."""
        import pyarrow.parquet as pq

        pq.write_table(self.table(), path, compression="zstd")

    def table(self) -> pa.Table:
        """What was noted."""
        noted, counts = self._noted, [len(some.rows) for some in self._noted]
        columns = [
            _repeated([some.stage for some in noted], counts),
            _repeated([some.reason for some in noted], counts),
            pa.concat_arrays([some.numbers for some in noted]),
            pa.concat_arrays([some.texts for some in noted]),
            _repeated([some.source for some in noted], counts),
            pa.array(np.concatenate([some.rows for some in noted])),
            pa.concat_arrays([some.ids for some in noted]),
        ]
        return pa.table(columns, schema=SCHEMA)

    def __bool__(self) -> bool:
        return bool(self._noted)


def read_drops(folder: str) -> pa.Table:
    """Everything that a run noted: for runs that are not too large."""
    return pa.concat_tables([SCHEMA.empty_table(), *_tables(folder)], promote_options="permissive")


def _tables(folder: str) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.startswith("."):
            yield pq.read_table(os.path.join(folder, name)).cast(SCHEMA)


def _ids(batch: DocumentBatch, rows: NDArray[np.int64]) -> pa.Array:
    """What the column "id" says of the rows, if there is one."""
    table, selection = batch.selection
    if "id" not in table.column_names:
        return pa.nulls(len(rows), pa.string())
    return _as_text(table.column("id").take(pa.array(selection[rows])).combine_chunks())


def _scores(scores: pa.Array | None, count: int) -> tuple[pa.Array, pa.Array]:
    """Scores that are numbers, and as text those that are not."""
    none = pa.nulls(count, pa.float64()), pa.nulls(count, pa.string())
    if scores is None or pa.types.is_null(scores.type):
        return none
    if pa.types.is_floating(scores.type) or pa.types.is_integer(scores.type) or pa.types.is_boolean(scores.type):
        return scores.cast(pa.float64(), safe=False), none[1]  # of a number of 64 bits the first 53 will do
    return none[0], _as_text(scores)


def _as_text(values: pa.Array) -> pa.Array:
    """Values of any type as text: bytes in hexadecimal digits, lists and the like as JSON."""
    are_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    if not any(are(values.type) for are in are_bytes):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return values.cast(pa.string())
    return pa.array([None if value is None else _text_of(value) for value in values.to_pylist()], pa.string())


def _text_of(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=_text_of)
    return str(value)


def _repeated(values: list[str], counts: list[int]) -> pa.Array:
    """Each value as often as its count says."""
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.repeat(np.array([known[value] for value in values], np.int32), counts)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(known), pa.string()))


def _source(batch: DocumentBatch) -> str:
    files = batch._metadata.get("source_files") or ()
    return ", ".join(map(str, files))
