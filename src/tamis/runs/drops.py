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

from tamis.arrays import arrow_array, numpy_array, text_array
from tamis.stages.emit import Drop
from tamis.tasks import RowNames
from tamis.tasks.storage import temporary_beside

SCHEMA = pa.schema(
    {
        "stage": pa.dictionary(pa.int32(), pa.string()),
        "reason": pa.dictionary(pa.int32(), pa.string()),
        "score": pa.float64(),  # where it is a number
        "score_text": pa.string(),  # where it is not; of a duplicate, the row that is kept in its place
        "source": pa.dictionary(pa.int32(), pa.string()),  # the name of the row: where it comes from,
        "position": pa.int64(),  # the byte or row number there,
        "part": pa.string(),  # and the piece of that row, if it was split or joined
    }
)


@dataclass(frozen=True)
class _Noted:
    """Rows that were dropped by one stage for one reason. Only their names are kept, not their data."""

    stage: str
    reason: str
    names: RowNames
    scores: pa.Array | None
    originals: pa.Array | None


class DropLog:
    """Collects what one worker drops while it works on one task."""

    def __init__(self) -> None:
        self._noted: list[_Noted] = []

    def add(self, stage: str, drop: Drop) -> None:
        """Note some rows."""
        names = drop.batch.names
        assert names is not None, "the runner gives every row a name before a stage sees it"
        self._noted.append(_Noted(stage, drop.reason, names.take(drop.rows), drop.scores, drop.originals))

    def write(self, path: str | pa.NativeFile) -> None:
        """Write what was noted as Parquet, to a path or to a file that is open."""
        write_drops(self.table(), path)

    def table(self) -> pa.Table:
        """What was noted."""
        noted, counts = self._noted, [len(some.names) for some in self._noted]
        names = RowNames.concat([some.names for some in noted])
        columns = [
            _repeated([some.stage for some in noted], counts),
            _repeated([some.reason for some in noted], counts),
            *_scores(noted, counts),
            names.source_column(),
            arrow_array(names.positions),
            pa.nulls(len(names), pa.string()) if names.parts is None else names.parts,
        ]
        return pa.table(columns, schema=SCHEMA)

    def __bool__(self) -> bool:
        return bool(self._noted)


BATCH = "batch"
"""The column of a drop ledger of several tasks that says which of them a row belongs to, by the key of the ledger."""


def joined_drops(drops: list[tuple[str, pa.Table]]) -> pa.Table:
    """The drop ledgers of several tasks in one table, each with the key of its tasks."""
    keys = _repeated([key for key, _ in drops], [table.num_rows for _, table in drops])
    table = pa.concat_tables([table for _, table in drops], promote_options="permissive").unify_dictionaries()
    return table.append_column(BATCH, keys)


def keep_drops(path: str, keys: set[str]) -> bool:
    """Leave in a drop ledger of several tasks only the rows of some of them; whether that changed it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    if BATCH not in table.column_names:
        return False
    kept = table.filter(pc.is_in(table[BATCH].cast(pa.string()), value_set=pa.array(sorted(keys), pa.string())))
    if kept.num_rows == table.num_rows:
        return False
    with temporary_beside(path) as temporary:
        write_drops(kept, temporary)
        os.replace(temporary, path)
    return True


def write_drops(table: pa.Table, path: str | pa.NativeFile) -> None:
    """Write drop ledgers as Parquet."""
    import pyarrow.parquet as pq

    # Values that rarely repeat need no dictionary, and scores and rows are not searched by range.
    few_values = [column.name for column in table.schema if pa.types.is_dictionary(column.type)]
    pq.write_table(table, path, compression="zstd", use_dictionary=few_values, write_statistics=False)


def read_drops(folder: str) -> pa.Table:
    """Everything that a run noted, sorted by the names of the rows: for runs that are not too large."""
    import pyarrow.compute as pc

    table = pa.concat_tables([SCHEMA.empty_table(), *_tables(folder)], promote_options="permissive")
    keys = ["source", "position", "part", "stage", "reason"]
    plain = [table[k].cast(pa.string()) if pa.types.is_dictionary(table[k].type) else table[k] for k in keys]
    return table.take(pc.sort_indices(pa.table(plain, keys), sort_keys=[(k, "ascending") for k in keys]))


def _tables(folder: str) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if not name.startswith("."):
            yield pq.read_table(os.path.join(folder, name), columns=SCHEMA.names).cast(SCHEMA)


def _scores(noted: list[_Noted], counts: list[int]) -> tuple[pa.Array, pa.Array]:
    """Scores of rows that were dropped together: those that are numbers, and as text those that are not."""
    scores = [some.scores for some in noted]
    if all(some is not None and _is_number(some.type) and not some.null_count for some in scores):
        # Of a number of 64 bits the first 53 will do.
        whole = np.concatenate([numpy_array(some) for some in scores], dtype=np.float64, casting="unsafe")
        if all(some.originals is None for some in noted):
            return arrow_array(whole), pa.nulls(len(whole), pa.string())
    pairs = [_numbers_and_texts(some, count) for some, count in zip(noted, counts, strict=True)]
    return pa.concat_arrays([numbers for numbers, _ in pairs]), pa.concat_arrays([texts for _, texts in pairs])


def _numbers_and_texts(noted: _Noted, count: int) -> tuple[pa.Array, pa.Array]:
    scores, numbers, texts = noted.scores, pa.nulls(count, pa.float64()), pa.nulls(count, pa.string())
    if scores is not None and _is_number(scores.type):
        numbers = scores.cast(pa.float64(), safe=False)
    elif scores is not None and not pa.types.is_null(scores.type):
        texts = _as_text(scores)
    return numbers, texts if noted.originals is None else noted.originals


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


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
    return pa.DictionaryArray.from_arrays(arrow_array(codes), text_array(list(known)))
