"""A batch of images."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, MissingExtraError
from tamis.tasks.media import MediaBatch, array_columns, shaped_arrays

__all__ = ["ImageBatch", "ImageObject"]


@dataclass
class ImageObject:
    """One image with what is known of it.

    Args:
        image_path: Where its file is.
        image_id: Its id.
        metadata: Anything else; each entry is a column of its own in an :class:`ImageBatch`.
        image_data: Its pixels: height, width and channels (RGB) of uint8.
        embedding: A vector that stands for it.
        aesthetic_score, nsfw_score: Scores of models.
    """

    image_path: str = ""
    image_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    image_data: NDArray[np.uint8] | None = None
    embedding: NDArray[np.floating[Any]] | None = None
    aesthetic_score: float | None = None
    nsfw_score: float | None = None


_KNOWN = ("image_path", "image_id", "aesthetic_score", "nsfw_score")
_ARRAYS = ("image_data", "image_data_shape", "embedding")


@dataclass
class ImageBatch(MediaBatch):
    """A batch of images: one row each, encoded (JPEG, PNG, ...) in ``image_bytes`` or in the file ``image_path``.

    ``data`` may be anything that a table can be made of, or a list of :class:`ImageObject`. Pixels that these have go
    into the column ``image_data`` with their shape beside them.

    >>> batch = ImageBatch([ImageObject("a.jpg", "a", {"caption": "a cat"}), ImageObject("b.jpg", "b")])
    >>> batch.get_columns()
    ['image_path', 'image_id', 'caption']
    >>> batch.objects()[0].metadata
    {'caption': 'a cat'}
    """

    bytes_column: ClassVar[str] = "image_bytes"
    path_column: ClassVar[str] = "image_path"

    @classmethod
    def _rows_of(cls, data: Any) -> Any:
        if not isinstance(data, list) or not data or not all(isinstance(item, ImageObject) for item in data):
            return data if not isinstance(data, list) or data else pa.table({"image_path": pa.array([], pa.string())})
        columns: dict[str, Any] = {
            "image_path": pa.array([item.image_path for item in data], pa.string()),
            "image_id": pa.array([item.image_id for item in data], pa.string()),
        }
        for name in ("aesthetic_score", "nsfw_score"):
            scores = [getattr(item, name) for item in data]
            if any(score is not None for score in scores):
                columns[name] = pa.array(scores, pa.float64())
        if any(item.image_data is not None for item in data):
            columns |= array_columns("image_data", [item.image_data for item in data])
        if any(item.embedding is not None for item in data):
            vectors = [None if item.embedding is None else np.asarray(item.embedding, np.float32) for item in data]
            columns["embedding"] = pa.array(vectors, pa.list_(pa.float32()))
        for name in dict.fromkeys(name for item in data for name in item.metadata):
            if name in (*_KNOWN, *_ARRAYS):
                raise ValueError(f"metadata has {name!r}, which is a field of ImageObject: set the field instead")
            columns[name] = [item.metadata.get(name) for item in data]
        return columns

    def objects(self) -> list[ImageObject]:
        """The rows as objects. Further columns are their metadata; nulls are left out. Pixels are not copied."""
        names = self.get_columns()
        others = [name for name in names if name not in _ARRAYS]
        vectors = self["embedding"] if "embedding" in names else None
        made = []
        for row, (values, pixels) in enumerate(
            zip(self.columns(others).to_pylist(), shaped_arrays(self, "image_data"), strict=True)
        ):
            known = {name: values.pop(name) for name in _KNOWN if values.get(name) is not None}
            metadata = {name: value for name, value in values.items() if value is not None}
            embedding = None
            if vectors is not None and vectors[row].is_valid:
                embedding = vectors[row].values.to_numpy(zero_copy_only=False)
            made.append(ImageObject(**known, metadata=metadata, image_data=pixels, embedding=embedding))
        return made

    def pixels(self, max_side: int | None = None) -> Iterator[NDArray[np.uint8]]:
        """The pixels of each image, one image at a time: height, width and three channels (RGB) of uint8.

        Args:
            max_side: Images whose longer side has more pixels are made smaller, while they are decoded where the
                format allows it.
        """
        ready = list(shaped_arrays(self, "image_data"))
        has_all = all(pixels is not None for pixels in ready)
        files: Iterator[BinaryIO | None] = itertools.repeat(None, len(ready)) if has_all else self.files()
        for row, (known, file) in enumerate(zip(ready, files, strict=True)):
            if known is not None and (max_side is None or max(known.shape[:2]) <= max_side):
                yield known
                continue
            image = _pillow().fromarray(known) if known is not None else self._opened(file, row)
            try:
                if max_side is not None and max(image.size) > max_side:
                    image.draft("RGB", (max_side, max_side))
                    image.thumbnail((max_side, max_side))
                yield np.asarray(image.convert("RGB"))
            except (OSError, SyntaxError, ValueError) as e:
                raise DataError(f"the image {self.row_name(row)} cannot be decoded: {e}") from e

    def with_metadata(self) -> Self:
        """The batch with ``width``, ``height`` (pixels) and ``image_format``, read from the heads of the images."""
        types = {"width": pa.int32(), "height": pa.int32(), "image_format": pa.string()}
        return self._with_heads(types, lambda file, row: _head(self._opened(file, row)))

    def _opened(self, file: BinaryIO | None, row: int) -> Any:
        pillow = _pillow()
        try:
            return pillow.open(file)
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as e:
            raise DataError(f"the image {self.row_name(row)} cannot be read: {e}") from e


def _head(image: Any) -> tuple[int, int, str]:
    return image.width, image.height, image.format


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as e:
        raise MissingExtraError("decoding images", package="pillow", extra="image") from e
    return Image
