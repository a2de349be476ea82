"""A batch of images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MediumError
from tamis.kernels.resize import RESAMPLINGS, resize
from tamis.tasks.image_decoding import MAX_PIXELS, Size, decode, in_order, open_image, reasons, upright_size
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
        embedding: A vector that stands for it: the column ``image_embedding`` of an :class:`ImageBatch`.
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
_ARRAYS = ("image_data", "image_data_shape", "image_embedding")


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
            columns["image_embedding"] = pa.array(vectors, pa.list_(pa.float32()))
        for name in dict.fromkeys(name for item in data for name in item.metadata):
            if name in (*_KNOWN, *_ARRAYS):
                raise ValueError(f"metadata has {name!r}, which is a field of ImageObject: set the field instead")
            columns[name] = [item.metadata.get(name) for item in data]
        return columns

    def objects(self) -> list[ImageObject]:
        """The rows as objects. Further columns are their metadata; nulls are left out. Pixels are not copied."""
        names = self.get_columns()
        others = [name for name in names if name not in _ARRAYS]
        vectors = self["image_embedding"] if "image_embedding" in names else None
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

    def pixels(
        self,
        max_side: int | None = None,
        min_side: int | None = None,
        *,
        max_pixels: int = MAX_PIXELS,
        threads: int = 1,
    ) -> Iterator[NDArray[np.uint8]]:
        """The pixels of each image, one image at a time: height, width and three channels (RGB) of uint8.

        They are upright: the orientation that EXIF gives is applied. See ``docs/image-reading.md`` for how other kinds
        of pixels become RGB.

        Args:
            max_side: Images whose longer side has more pixels are made smaller, while they are decoded where the
                format allows it.
            min_side: The same for their shorter side. Set only one of the two.
            max_pixels: Images with more pixels are an error, before anything of them is decoded.
            threads: How many images are decoded at a time, in advance. A stage gives the cores that it has.

        >>> white = np.full((60, 90, 3), 255, np.uint8)
        >>> [pixels.shape for pixels in ImageBatch([ImageObject(image_data=white)]).pixels(max_side=30)]
        [(20, 30, 3)]
        """
        if max_side is not None and min_side is not None:
            raise ValueError("pixels() has max_side and min_side: set only one of them")
        side = max_side if max_side is not None else min_side
        if side is None:
            return self._decoded(None, lambda pixels, size: pixels, max_pixels, threads)
        if side < 1:
            raise ValueError(f"the side of an image must be at least 1 pixel, not {side}")
        fitted = functools.partial(_fitted, side=side, longer=max_side is not None)

        def fit(pixels: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
            return resize(pixels, *fitted(size))

        return self._decoded(fitted, fit, max_pixels, threads)

    def squares(
        self,
        size: int = 224,
        resample: str = "bicubic",
        exact: bool = True,
        *,
        max_pixels: int = MAX_PIXELS,
        threads: int = 1,
    ) -> Iterator[NDArray[np.uint8]]:
        """A square from the middle of each image, one at a time: its shorter side has ``size`` pixels first.

        This is how images are prepared for CLIP and models like it.

        Args:
            size: The side of the squares, in pixels.
            resample: ``"bicubic"``, ``"bilinear"``, ``"lanczos"`` or ``"box"``.
            exact: Whether the bits are those of decoding and resizing with Pillow. If not, JPEG is decoded at a
                smaller scale first, which is several times faster; the pixels then differ a little.
            max_pixels: Images with more pixels are an error, before anything of them is decoded.
            threads: How many images are decoded at a time, in advance. A stage gives the cores that it has.

        >>> white = np.full((60, 90, 3), 255, np.uint8)
        >>> [square.shape for square in ImageBatch([ImageObject(image_data=white)]).squares(32)]
        [(32, 32, 3)]
        """
        if size < 1 or resample not in RESAMPLINGS:
            known = ", ".join(RESAMPLINGS)
            raise ValueError(f"squares() needs a size of at least 1 and resample in {known}, not {size}, {resample!r}")

        def shape(pixels: NDArray[np.uint8], whole: Size) -> NDArray[np.uint8]:
            width, height = _covering(whole, size)
            left, top = (width - size) // 2, (height - size) // 2
            return resize(pixels, width, height, resample, (left, top, left + size, top + size))

        needed = None if exact else functools.partial(_fitted, side=size, longer=False)
        return self._decoded(needed, shape, max_pixels, threads)

    def _decoded(
        self,
        needed: Callable[[Size], Size] | None,
        finish: Callable[[NDArray[np.uint8], Size], NDArray[np.uint8]],
        max_pixels: int,
        threads: int,
    ) -> Iterator[NDArray[np.uint8]]:
        """The pixels of each row, decoded at the size that is needed, and finished given the size of the image."""
        ready = list(shaped_arrays(self, "image_data"))
        opened = None if all(pixels is not None for pixels in ready) else self.opener()

        def one(row: int) -> NDArray[np.uint8]:
            known = ready[row]
            if known is not None:
                return finish(known, known.shape[1::-1])
            assert opened is not None
            with opened(row) as file:
                data = memoryview(file.read_buffer() if isinstance(file, pa.BufferReader) else file.read()).cast("B")
            try:
                return finish(*decode(data, needed, max_pixels))
            except reasons() as e:
                raise MediumError(f"the image {self.row_name(row)} cannot be decoded: {e}") from e

        return in_order(one, len(ready), threads)

    def with_metadata(self) -> Self:
        """The batch with ``width``, ``height`` (pixels, upright) and ``image_format``, from the heads of the images."""
        types = {"width": pa.int32(), "height": pa.int32(), "image_format": pa.string()}
        return self._with_heads(types, self._head)

    def _head(self, file: BinaryIO, row: int) -> tuple[int, int, str]:
        try:
            image = open_image(file)
            width, height = upright_size(image)
        except reasons() as e:
            raise MediumError(f"the image {self.row_name(row)} cannot be read: {e}") from e
        return width, height, image.format


def _fitted(size: Size, side: int, longer: bool) -> Size:
    """The size of a picture whose longer or shorter side must not be more than a number of pixels."""
    given = max(size) if longer else min(size)
    if given <= side:
        return size
    if not longer:
        return _covering(size, side)
    width, height = (max(1, round(length * side / given)) for length in size)
    return width, height


def _covering(size: Size, side: int) -> Size:
    """The size of a picture whose shorter side has a number of pixels; the other is rounded down, as for CLIP."""
    width, height = size
    return (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
