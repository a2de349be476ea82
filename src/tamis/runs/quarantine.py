"""Rows that a stage failed on, in the run's quarantine: Parquet files with the rows and, for each, what went wrong.

Beside the columns of the rows there are ``stage``, ``source``, ``position`` and ``part`` (the name of the row),
``error`` (the type of the exception), ``message`` and ``traceback``. If the rows have a column of such a name
themselves, the one of the quarantine begins with ``tamis_``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.tasks import DocumentBatch, RowNames, TableTask
from tamis.tasks.row_names import NAME_COLUMNS

__all__ = ["FailedRows", "quarantined_rows"]

OWN = ("stage", "source", "position", "part", "error", "message", "traceback")
_COLUMNS = b"tamis.quarantine"


@dataclass(frozen=True)
class FailedRows:
    """Rows of one batch that one stage failed on.

    Args:
        stage: The stage.
        rows: The rows, with their names.
        errors: For each row, the type of the exception; ``"WorkerDied"`` where the worker died or was killed.
        messages: What the exception said, or how the worker died.
        tracebacks: The user's own frames.
        place: The place of the batch in the order of the input.
    """

    stage: str
    rows: TableTask
    errors: Sequence[str]
    messages: Sequence[str]
    tracebacks: Sequence[str]
    place: str = ""

    def write(self, sink: pa.NativeFile | str) -> None:
        """Write the rows as Parquet."""
        import pyarrow.parquet as pq

        table, names = self.rows.data, self.rows.names
        assert names is not None, "the runner gives every row a name before a stage sees it"
        count = table.num_rows
        own: dict[str, Any] = {
            "stage": pa.repeat(pa.scalar(self.stage), count),
            "source": names.source_column().cast(pa.string()),
            "position": arrow_array(names.positions),
            "part": pa.nulls(count, pa.string()) if names.parts is None else names.parts,
            "error": pa.array(self.errors, pa.string()),
            "message": pa.array(self.messages, pa.string()),
            "traceback": pa.array(self.tracebacks, pa.string()),
        }
        called = {name: name if name not in table.column_names else f"tamis_{name}" for name in OWN}
        for name in OWN:
            table = table.append_column(called[name], own[name])
        kind = type(self.rows)
        about = {
            "columns": called,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "dataset": self.rows.dataset_name,
            "place": self.place,
        }
        metadata = {**(table.schema.metadata or {}), _COLUMNS: json.dumps(about).encode()}
        pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd")

    @classmethod
    def read(cls, path: str) -> FailedRows:
        """The rows of a file."""
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        metadata = dict(table.schema.metadata or {})
        about = json.loads(metadata.pop(_COLUMNS))
        own = {name: table[column].combine_chunks() for name, column in about["columns"].items()}
        rows = table.drop_columns(list(about["columns"].values())).replace_schema_metadata(metadata or None)
        named = pa.table(dict(zip(NAME_COLUMNS, (own[n] for n in ("source", "position", "part")), strict=True)))
        _, names = RowNames.taken_from(named)
        assert names is not None
        batch = _class(about["class"])(rows, about["dataset"]).named(names)
        errors, messages, tracebacks = (own[name].to_pylist() for name in ("error", "message", "traceback"))
        stage = own["stage"][0].as_py() if table.num_rows else ""
        return cls(stage, batch, errors, messages, tracebacks, about["place"])

    def entries(self) -> Iterator[dict[str, Any]]:
        """Each row as the report shows it."""
        names = self.rows.names
        assert names is not None
        for number, name in enumerate(names.to_texts()):
            source, _, position = name.rpartition(":")
            yield {
                "stage": self.stage,
                "source": source,
                "position": int(position) if position.isdecimal() else position,
                "problem": f"{self.errors[number]}: {self.messages[number]}",
                "raw": json.dumps(self.rows.data.slice(number, 1).to_pylist()[0], default=str)[:1000],
            }


def quarantined_rows(directory: str) -> Iterator[FailedRows]:
    """The rows of a quarantine, file by file."""
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        if name.endswith(".parquet") and not name.startswith("."):
            yield FailedRows.read(os.path.join(directory, name))


def _class(name: str) -> type[TableTask]:
    """The class of a task; that of documents if it cannot be found."""
    module, _, qualname = name.partition(":")
    if module.partition(".")[0] != "tamis":
        return DocumentBatch
    import importlib

    found = getattr(importlib.import_module(module), qualname, DocumentBatch)
    return found if isinstance(found, type) and issubclass(found, TableTask) else DocumentBatch
