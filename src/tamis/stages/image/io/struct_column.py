"""Images in a column of structs, as data sets of Hugging Face keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tamis.errors import ColumnError, DataError, did_you_mean
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch, ImageBatch

__all__ = ["UnpackImages"]


@dataclass
class UnpackImages(ProcessingStage[DocumentBatch, ImageBatch]):
    """Make rows with a column of images into a batch of images, with ``image_bytes``, ``image_path`` and ``image_id``.

    The column holds structs of ``bytes`` and ``path``, as data sets of Hugging Face have them, or bytes alone, or
    paths. Rows that have ``image_bytes`` or ``image_path`` already stay as they are. Where there is no column
    ``image_id``, an id is the name of the row.

    Args:
        column: The column of images.
        fields: Columns to keep; all of them when not given.

    >>> rows = DocumentBatch([{"image": {"bytes": b"...", "path": "a.jpg"}, "label": 3}]).named("a.parquet")
    >>> UnpackImages().process(rows).data.to_pylist()
    [{'label': 3, 'image_bytes': b'...', 'image_path': 'a.jpg', 'image_id': 'a.parquet:0'}]
    """

    column: str = "image"
    fields: list[str] | None = None

    releases_gil: ClassVar[bool] = True

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        if self.fields is not None:
            return frozenset(self.fields)
        if available is None:
            return None
        return (available - {self.column}) | {"image_bytes", "image_path", "image_id"}

    def process(self, task: DocumentBatch) -> ImageBatch:
        table = task.data
        if self.column in table.column_names:
            made = self._unpacked(table.column(self.column))
            table = table.drop_columns([self.column])
            for name, values in made.items():
                if name in table.column_names:
                    raise ColumnError(f"{self.name}: there is already a column {name!r}: drop or rename it first")
                table = table.append_column(name, values)
        elif not {"image_bytes", "image_path"} & {*table.column_names}:
            raise ColumnError(
                f"{self.name}: there is no column {self.column!r}, only {', '.join(table.column_names)}."
                f"{did_you_mean(self.column, table.column_names)}"
            )
        if "image_id" not in table.column_names and task.names is not None:
            table = table.append_column("image_id", pa.array(task.names.to_texts(), pa.string()))
        if self.fields is not None:
            table = table.select(self.fields)
        return ImageBatch.of(task.with_same_rows(table))

    def _unpacked(self, column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
        import pyarrow.compute as pc

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = column.type
        if pa.types.is_struct(kind):
            names = {kind.field(i).name for i in range(kind.num_fields)}
            if names & {"bytes", "path"}:
                parts = {name: pc.struct_field(column, name) for name in ("bytes", "path") if name in names}
                kinds = {"bytes": pa.large_binary(), "path": pa.string()}
                return {f"image_{name}": part.cast(kinds[name]) for name, part in parts.items()}
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return {"image_bytes": column.cast(pa.large_binary())}
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return {"image_path": column.cast(pa.string())}
        raise DataError(
            f"{self.name}: the column {self.column!r} must hold structs of bytes and path, bytes or paths, not {kind}"
        )
