"""Small pictures of analyzed images, read from their files when a page asks for them."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from tamis.runs.image_rows import image_at_path
from tamis.runs.source_rows import ReadLimits, read_rows
from tamis.runs.thumbnails import MOST_BYTES, Thumbnail, image_bytes_of, thumbnail

__all__ = ["Pictures"]

_SIDE: Final = 112
_MOST: Final = 320
_LIMITS: Final = ReadLimits(media_bytes=MOST_BYTES)


class Pictures:
    """Small pictures of images, each made once.

    Args:
        table: The images: ``source``, ``position``, ``image_id``, ``caption``, sizes.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        self._table = table
        self._made: dict[int, Thumbnail] = {}

    def of(self, row: int) -> Thumbnail:
        """The picture of an image, by its number in the table."""
        if row not in self._made:
            if len(self._made) >= _MOST:
                return Thumbnail(problem="there are enough pictures on this page")
            self._made[row] = self._thumbnail(row)
        return self._made[row]

    def title(self, row: int) -> str:
        """What an image is called: its id, or the file it is from."""
        values = self._row(row)
        return str(values["image_id"] or f"{values['source']}:{values['position']}")

    def size(self, row: int) -> str:
        """The size and the format of an image."""
        values = self._row(row)
        return f"{values['width']} x {values['height']} {values['image_format'] or ''}"

    def _row(self, row: int) -> dict[str, Any]:
        return self._table.row(row, named=True)

    def _thumbnail(self, row: int) -> Thumbnail:
        values = self._row(row)
        (found,) = read_rows(values["source"], [values["position"]], limits=_LIMITS)
        if found.problem:
            return Thumbnail(problem=found.problem)
        _, data = image_bytes_of(found.values)
        path = found.values.get("image_path")
        if data is None and isinstance(path, str):
            data_or_problem = image_at_path(
                path, found.values.get("byte_offset"), found.values.get("byte_size"), most=MOST_BYTES
            )
            if isinstance(data_or_problem, str):
                return Thumbnail(problem=data_or_problem)
            data = data_or_problem
        return Thumbnail(problem="the row has no image") if data is None else thumbnail(data, _SIDE)
