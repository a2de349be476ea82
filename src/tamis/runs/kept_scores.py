"""The scores of all rows of a run, kept and dropped, if it was asked to keep them: a Parquet file for each batch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, text_array
from tamis.tasks import RowNames, TableTask
from tamis.tasks.scored import Scored

__all__ = ["ScoreLog", "kept_scores"]

SCHEMA = pa.schema(
    {
        "stage": pa.dictionary(pa.int32(), pa.string()),
        "criterion": pa.dictionary(pa.int32(), pa.string()),  # the name of the filter
        "score": pa.float64(),
        "kept": pa.bool_(),  # by this criterion
        "source": pa.dictionary(pa.int32(), pa.string()),  # the name of the row, as in the drop ledger
        "position": pa.int64(),
        "part": pa.string(),
    }
)


class ScoreLog:
    """Collects the scores that one worker computes while it works on one task."""

    def __init__(self) -> None:
        self._noted: list[tuple[str, Scored, RowNames]] = []

    def __bool__(self) -> bool:
        return bool(self._noted)

    def add(self, stage: str, scored: Scored, batch: TableTask) -> None:
        """Note the scores of rows of a batch, where it is known which rows they are."""
        names = batch.names
        if names is not None and scored.rows is not None:
            self._noted.append((stage, scored, names.take(scored.rows)))

    def write(self, sink: pa.NativeFile | str) -> None:
        """Write what was noted."""
        import pyarrow.parquet as pq

        tables = [_table(stage, scored, names) for stage, scored, names in self._noted]
        table = pa.concat_tables(tables).unify_dictionaries()
        few_values = [column.name for column in SCHEMA if pa.types.is_dictionary(column.type)]
        pq.write_table(table, sink, compression="zstd", use_dictionary=few_values, write_statistics=False)


def _table(stage: str, scored: Scored, names: RowNames) -> pa.Table:
    count = len(names)
    columns: list[Any] = [
        pa.DictionaryArray.from_arrays(arrow_array(np.zeros(count, np.int32)), text_array([stage])),
        pa.DictionaryArray.from_arrays(arrow_array(np.zeros(count, np.int32)), text_array([scored.name])),
        arrow_array(scored.scores),
        pa.array(np.ones(count, np.bool_) if scored.kept is None else scored.kept),
        names.source_column(),
        arrow_array(np.ascontiguousarray(names.positions)),
        pa.nulls(count, pa.string()) if names.parts is None else names.parts,
    ]
    return pa.table(columns, schema=SCHEMA)


def kept_scores(
    path: str, stage: str, criterion: str
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]] | None:
    """The scores of the rows that a criterion kept, in their order, with the positions and the sources of the rows.

    Args:
        path: A file of scores.
        stage: The stage, as in the plan.
        criterion: The name of the filter.

    Returns:
        ``None`` if the file is not there or has no scores of this criterion.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not os.path.exists(path):
        return None
    table = pq.read_table(path, columns=["stage", "criterion", "score", "kept", "source", "position"])
    texts = {name: table[name].cast(pa.string()) for name in ("stage", "criterion", "source")}
    is_its = pc.and_(pc.equal(texts["stage"], stage), pc.equal(texts["criterion"], criterion))
    if not pc.any(is_its).as_py():
        return None
    mask = pc.and_(is_its, table["kept"])
    chosen = table.filter(mask)
    return (
        numpy_array(chosen["score"].combine_chunks()),
        numpy_array(chosen["position"].combine_chunks()),
        texts["source"].filter(mask).to_pylist(),
    )
