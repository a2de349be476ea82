"""Samples of a WebDataset as rows: the images with a key, and what is said about them in files beside them."""

from __future__ import annotations

import codecs
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import DataError
from tamis.stages.io.json_lines import parse_json_lines
from tamis.tasks import RowNames

__all__ = ["IMAGE_ENDINGS", "ImageRow", "RowTable", "is_image"]

IMAGE_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".avif", ".heic", ".heif", ".jp2", ".ppm", ".pgm", ".tga", ".ico"),
)
"""Names that end like this, in upper or lower case, are images."""

_OWN = ("image_bytes", "image_path", "byte_offset", "byte_size", "image_id", "caption", "cls")


def is_image(name: str) -> bool:
    """Whether a name is that of an image."""
    return name.lower().endswith(IMAGE_ENDINGS)


@dataclass
class ImageRow:
    """An image and its companions.

    Args:
        source: The file it is in.
        position: Where it is in it.
        image_id: Its id.
        nbytes: The memory that it takes.
        path, offset, size: Where its bytes are, if they can be read again.
        data: Its bytes, if they are wanted.
        caption: Of its text companion.
        label: Of its ``.cls`` companion.
        fields: Its JSON companion, as one line.
    """

    source: str
    position: int
    image_id: str
    nbytes: int
    path: str | None = None
    offset: int | None = None
    size: int | None = None
    data: bytes | None = None
    caption: str | None = None
    label: int | None = None
    fields: bytes | None = None


def json_line(data: bytes) -> bytes:
    """A JSON object on one line; ``ValueError`` if it is not one."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {type(value).__name__}, not an object")
    stripped = data.removeprefix(codecs.BOM_UTF8).strip()
    return stripped if b"\n" not in stripped and b"\r" not in stripped else json.dumps(value).encode()


@dataclass
class RowTable:
    """Rows as a table.

    Args:
        fields: The columns to keep; all of them when not given.
        types: Arrow types of columns that come from JSON; those of others are inferred batch by batch.
        takes_ids: Whether ``"image_id"`` in JSON takes the place of the id that the name of a file gives.
    """

    fields: list[str] | None = None
    types: dict[str, pa.DataType] = field(default_factory=dict)
    takes_ids: bool = True

    def of(self, rows: list[ImageRow]) -> tuple[pa.Table, RowNames]:
        """The table and the names of its rows."""
        columns: dict[str, Any] = {
            "image_id": pa.array([row.image_id for row in rows], pa.string()),
            "image_bytes": pa.array([row.data for row in rows], pa.large_binary()),
            "image_path": pa.array([row.path for row in rows], pa.string()),
            "byte_offset": pa.array([row.offset for row in rows], pa.int64()),
            "byte_size": pa.array([row.size for row in rows], pa.int64()),
            "caption": pa.array([row.caption for row in rows], pa.string()),
        }
        if any(row.label is not None for row in rows):
            columns["cls"] = pa.array([row.label for row in rows], pa.int64())
        self._add_json(columns, rows)
        if self.fields is not None:
            columns = {name: columns.get(name, pa.nulls(len(rows))) for name in self.fields}
        codes: dict[str, int] = {}
        numbers = np.array([codes.setdefault(row.source, len(codes)) for row in rows], np.int32)
        positions = np.array([row.position for row in rows], np.int64)
        return pa.table(columns), RowNames(tuple(codes), positions, numbers if len(codes) > 1 else None)

    def _add_json(self, columns: dict[str, Any], rows: list[ImageRow]) -> None:
        """The fields of the JSON companions; one with the name of a column of ours gets ``json_`` before it."""
        import pyarrow.compute as pc

        if any(row.fields is not None for row in rows):
            table, starts, broken = parse_json_lines(b"\n".join(row.fields or b'{"": null}' for row in rows))
            if broken or len(starts) != len(rows):  # each was an object before
                raise DataError(f"the JSON beside an image cannot be read: {broken[0].reason if broken else ''}")
            for name in table.column_names:
                column = table.column(name)
                if name == "caption":
                    column = self._merged_caption(columns, column)
                if name == "image_id" and self.takes_ids and _is_text(column.type):
                    columns["image_id"] = pc.coalesce(column.cast(pa.string()), columns["image_id"])
                    continue
                if name == "" or column is None:
                    continue
                columns[f"json_{name}" if name in _OWN else name] = column
        for name, kind in self.types.items():
            try:
                columns[name] = columns[name].cast(kind) if name in columns else pa.nulls(len(rows), kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
                raise DataError(f"the values of {name!r} are not all {kind}: {e}", path=rows[0].source) from e

    def _merged_caption(self, columns: dict[str, Any], found: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Captions from JSON where there is no text companion; what is left of them where the two differ."""
        import pyarrow.compute as pc

        if not _is_text(found.type):
            return None if pa.types.is_null(found.type) else found
        found = found.cast(pa.string())
        texts = columns["caption"]
        columns["caption"] = pc.coalesce(texts, found)
        differs = pc.fill_null(pc.not_equal(texts, found), False)
        return pc.if_else(differs, found, pa.scalar(None, pa.string())) if pc.any(differs).as_py() else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def distinct_ids(names: list[str], key: str) -> list[str]:
    """The ids of the images of one sample: its key, or, if there are several, their names without the ending."""
    if len(names) == 1:
        return [key]
    bare = [name.rpartition(".")[0] for name in names]
    often = Counter(bare)
    return [name if often[short] > 1 else short for name, short in zip(names, bare, strict=True)]
