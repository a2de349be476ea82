"""``nemo_curator.tasks.ImageBatch`` for scripts: a batch whose ``data`` is a list of ``ImageObject``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.compat.batch import asked_by_tamis
from tamis.tasks import ImageBatch as TamisBatch
from tamis.tasks import ImageObject, RowNames
from tamis.tasks.media import array_columns

__all__ = ["ImageBatch", "ImageObject"]

_SHOWN = "_shown"
_NOT_METADATA = ("image_bytes", "byte_offset", "byte_size")
_SCALARS = ("image_path", "image_id", "aesthetic_score", "nsfw_score")


class _RowObject(ImageObject):
    """An image of a batch, whose pixels are decoded when the script asks for them."""

    _decode: Callable[[], NDArray[np.uint8]] | None = None
    _pixels: NDArray[np.uint8] | None = None
    _is_set: bool = False

    @property  # type: ignore[override]  # a property in place of a field
    def image_data(self) -> NDArray[np.uint8] | None:
        """The pixels: height, width and channels (RGB) of uint8. To change them, set others: these are read-only."""
        if self._pixels is None and self._decode is not None:
            self._pixels = self._decode()
            self._pixels.flags.writeable = False
        return self._pixels

    @image_data.setter
    def image_data(self, pixels: NDArray[np.uint8] | None) -> None:
        self._pixels, self._decode, self._is_set = pixels, None, pixels is not None


class _Shown:
    """The objects that a script was given, and what was in them.

    Args:
        objects: The objects, which the script may change, take out and add to.
    """

    def __init__(self, objects: list[Any]) -> None:
        self.objects = objects
        self._rows = {id(each): row for row, each in enumerate(objects)}
        self._given = list(objects)  # so that no other object gets the same id
        self._before = [_facts(each) for each in objects]

    def rows(self) -> list[int]:
        """For each object that is there now, the row it came from; -1 if it is new."""
        return [self._rows.get(id(each), -1) for each in self.objects]

    def is_whole(self) -> bool:
        """Whether all objects are there, in their order."""
        return self.rows() == list(range(len(self._given)))

    def changed(self) -> list[str]:
        """The columns in which an object is not what it was."""
        found: dict[str, None] = {}
        for each, row in zip(self.objects, self.rows(), strict=True):
            now, before = _facts(each), self._before[row]
            found |= dict.fromkeys(name for name in (now | before) if not _is_same(now.get(name), before.get(name)))
        return list(found)


class ImageBatch(TamisBatch):
    """A batch of images that scripts see as a list of :class:`~tamis.tasks.ImageObject`.

    In the script, ``data`` is a list: objects can be changed, taken out and replaced. In tamis it is the Arrow table
    that every batch has; what the script changed is applied when tamis next reads the batch. Images are decoded when a
    script asks for ``image_data``.

    >>> batch = ImageBatch(data=[ImageObject("a.jpg", "a"), ImageObject("b.jpg", "b")], dataset_name="d")
    >>> objects = batch.shown()  # what `batch.data` is in a script
    >>> objects[0].aesthetic_score = 0.25
    >>> del objects[1]
    >>> batch.to_pyarrow().to_pydict()
    {'image_path': ['a.jpg'], 'image_id': ['a'], 'aesthetic_score': [0.25]}
    """

    @property  # type: ignore[misc]  # a property in place of a field
    def data(self) -> Any:
        """The images: a list of objects for the script, an Arrow table for tamis's own code."""
        if asked_by_tamis(self):
            return TamisBatch.data.fget(self)  # type: ignore[attr-defined]  # a property
        return self.shown()

    @data.setter
    def data(self, data: Any) -> None:
        TamisBatch.data.fset(self, data)  # type: ignore[attr-defined]  # a property
        if isinstance(data, list) and not asked_by_tamis(self):
            self.__dict__[_SHOWN] = _Shown(data)  # which the script may change later

    def shown(self) -> list[Any]:
        """The images as objects: changes to them, and to the list, are changes to the batch."""
        if _SHOWN not in self.__dict__:
            self.__dict__[_SHOWN] = _Shown(self._objects())
        objects: list[Any] = self.__dict__[_SHOWN].objects
        return objects

    def _objects(self) -> list[_RowObject]:
        plain = TamisBatch.of(self)
        kept = [name for name in plain.get_columns() if name not in _NOT_METADATA]
        has_images = bool({plain.bytes_column, plain.path_column} & {*plain.get_columns()})
        made = []
        for row, known in enumerate(TamisBatch(plain.columns(kept)).objects()):
            each = _RowObject(**{name: getattr(known, name) for name in (*_SCALARS, "metadata", "embedding")})
            if known.image_data is not None:
                each._pixels = known.image_data
            elif has_images:
                each._decode = _decoder(plain.select([row]))
            made.append(each)
        return made

    @property
    def _table(self) -> pa.Table:  # type: ignore[override]  # a property in place of a field
        self._apply_changes()
        return self.__dict__["_table"]

    @_table.setter
    def _table(self, table: pa.Table) -> None:
        self.__dict__["_table"] = table

    @property
    def _names(self) -> RowNames | None:  # type: ignore[override]  # a property in place of a field
        self._apply_changes()
        return self.__dict__.get("_names")

    @_names.setter
    def _names(self, names: RowNames | None) -> None:
        self.__dict__["_names"] = names

    def __copy__(self) -> Self:
        self._apply_changes()
        made = super().__copy__()
        made.__dict__.pop(_SHOWN, None)
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop(_SHOWN, None)
        return state

    def _set_table(self, table: pa.Table, names: RowNames | None) -> None:
        self.__dict__.pop(_SHOWN, None)
        super()._set_table(table, names)

    def _apply_changes(self) -> None:
        """Apply the script's changes to the objects to the table."""
        shown = self.__dict__.pop(_SHOWN, None)
        if shown is None:
            return
        rows = shown.rows()
        is_new = min(rows, default=0) < 0
        changed = [] if is_new else shown.changed()
        if not is_new and not changed and shown.is_whole():
            self.__dict__[_SHOWN] = shown
            return
        before = TamisBatch.of(self)
        if is_new:
            self._set_table(TamisBatch(shown.objects).data, None)
            self._origin = before
        else:
            names = None if before.names is None else before.names.take(np.array(rows, np.int64))
            left = TamisBatch(before.data.take(pa.array(rows, pa.int64())))
            self._set_table(left.with_columns(_columns(shown.objects, changed)).data, names)
        self.__dict__[_SHOWN] = _Shown(shown.objects)


def _columns(objects: list[Any], names: list[str]) -> dict[str, Any]:
    """The columns of these names, made of the objects."""
    facts = [_facts(each) for each in objects]
    made: dict[str, Any] = {}
    for name in names:
        values = [each.get(name) for each in facts]
        if name == "image_data":
            made |= array_columns(name, values)
        elif name == "image_embedding":
            vectors = [None if value is None else np.asarray(value, np.float32) for value in values]
            made[name] = pa.array(vectors, pa.list_(pa.float32()))
        else:
            made[name] = pa.array(values)
    return made


def _facts(each: ImageObject) -> dict[str, Any]:
    """What is in an object, by column; pixels only if the script has set them."""
    is_set = each._is_set if isinstance(each, _RowObject) else True
    return {
        **each.metadata,
        **{name: getattr(each, name) for name in _SCALARS},
        "image_embedding": each.embedding,
        "image_data": each.image_data if is_set else None,
    }


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other)


def _decoder(one: TamisBatch) -> Callable[[], NDArray[np.uint8]]:
    return lambda: next(one.pixels())
