"""The bases of filters of images: what they are given, and how several share one decoded picture."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MediumError
from tamis.stages.image.filters.measures import MEASURED_SIDE, ImageMeasures
from tamis.stages.text.filters.batch_filter import BatchCriterion, BatchFilter, BatchScores
from tamis.tasks import ImageBatch, TableTask
from tamis.tasks.image_decoding import MAX_PIXELS, check_size, open_image, reasons

__all__ = ["DecodedImage", "ImageFile", "ImageFileFilter", "ImageFilter", "MeasuredImageFilter"]


class DecodedImage:
    """A picture, decoded, with its measures, which are computed once for all filters that ask for them.

    Args:
        pixels: Height, width and three channels (RGB) of uint8.
    """

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.pixels = pixels

    @functools.cached_property
    def measures(self) -> ImageMeasures:
        """What is measured in the pixels."""
        return ImageMeasures.of(self.pixels)


class ImageFile:
    """An encoded image, of which only the head is read unless more is asked for.

    Args:
        file: The file.
        name: What messages call it.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name

    @property
    def nbytes(self) -> int:
        """The size of the file, in bytes."""
        self._file.seek(0, 2)
        return self._file.tell()

    @functools.cached_property
    def head(self) -> Any:
        """The image as Pillow opens it: width, height, format and tables, without pixels."""
        self._file.seek(0)
        try:
            return open_image(self._file)
        except reasons() as e:
            raise MediumError(f"the image {self._name} cannot be read: {e}") from e

    @property
    def width(self) -> int:
        """Its width, in pixels, as stored: before any rotation that its metadata ask for."""
        return int(self.head.width)

    @property
    def height(self) -> int:
        """Its height, in pixels, as stored."""
        return int(self.head.height)

    @functools.cached_property
    def frames(self) -> int:
        """How many pictures are in it: frames of an animation, or pages."""
        return int(self._decoded(lambda: getattr(self.head, "n_frames", 1)))

    @functools.cached_property
    def transparent_share(self) -> float:
        """1 less the mean of its alpha channel, 0 to 1. Images that have one or a transparent colour are decoded."""
        if self.head.mode not in ("RGBA", "LA", "PA", "RGBa", "La") and "transparency" not in self.head.info:
            return 0.0
        return 1 - float(self._decoded(self._alpha).mean()) / 255

    def _alpha(self) -> NDArray[np.uint8]:
        check_size(self.width, self.height, MAX_PIXELS)
        return np.asarray(self.head.convert("RGBA").getchannel("A"))

    def _decoded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except reasons() as e:
            raise MediumError(f"the image {self._name} cannot be decoded: {e}") from e


class ImageFilter(BatchFilter):
    """A filter of images. One of your own has :meth:`score_image` and bounds: ``min_...`` and ``max_...``.

    Give it to ``ScoreFilter``, ``Score`` or ``Filter``, as you do with filters of text. Neighbouring filters that look
    at pictures of the same size share them: each picture is decoded once.

    Attributes:
        decoded_side: Pictures whose longer side has more pixels are made smaller before they are scored; ``None`` for
            no limit.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Reddish(ImageFilter):
    ...     min_red: float = 100
    ...     name = "red"
    ...     def score_image(self, pixels):
    ...         return pixels[..., 0].mean()
    >>> Reddish().score_image(np.full((2, 2, 3), 7, np.uint8)), Reddish().reason()
    (np.float64(7.0), 'red < 100')
    """

    decoded_side: int | None = MEASURED_SIDE

    def score_image(self, pixels: NDArray[np.uint8]) -> float:
        """The score of a picture: height, width and three channels (RGB) of uint8."""
        raise NotImplementedError(f"{type(self).__name__} has no score_image()")

    def score_view(self, image: Any) -> tuple[float, Mapping[str, Any]]:
        """The score of a :class:`DecodedImage`, and the values of further columns."""
        return self.score_image(image.pixels), {}

    @property
    def view(self) -> object:
        """What the filter is given: filters with the same view share it."""
        return "pixels", self.decoded_side

    def views(self, images: ImageBatch) -> Iterator[Any]:
        """What the filter is given of each image, one at a time."""
        return map(DecodedImage, images.pixels(max_side=self.decoded_side))

    def is_scored_with(self, other: BatchFilter) -> bool:
        return isinstance(other, ImageFilter) and other.view == self.view

    def score_batch(self, batch: TableTask, criteria: Sequence[BatchCriterion]) -> list[BatchScores]:
        filters = [criterion.filter for criterion in criteria]
        scores: list[list[Any]] = [[None] * batch.num_items for _ in filters]
        more = [{name: [None] * batch.num_items for name in each.more_columns()} for each in filters]
        for row, image in enumerate(self.views(ImageBatch.of(batch))):
            for number, criterion in enumerate(criteria):
                assert isinstance(criterion.filter, ImageFilter)
                score, values = criterion.filter.score_view(image)
                scores[number][row] = score
                for name, value in values.items():
                    more[number][name][row] = value
                if criterion.drops(score):
                    break
        types = [each.more_columns() for each in filters]
        return [
            BatchScores(
                pa.array(scores[number], each.score_type),
                {name: pa.array(values, types[number][name]) for name, values in more[number].items()},
            )
            for number, each in enumerate(filters)
        ]


class MeasuredImageFilter(ImageFilter):
    """A filter by one of the :class:`~tamis.stages.image.filters.measures.ImageMeasures`.

    Attributes:
        measure: The name of the measure.
    """

    measure: ClassVar[str]
    releases_gil = True

    def score_image(self, pixels: NDArray[np.uint8]) -> float:
        return self.score_view(DecodedImage(pixels))[0]

    def score_view(self, image: DecodedImage) -> tuple[float, Mapping[str, Any]]:
        return getattr(image.measures, self.measure), {}


class ImageFileFilter(ImageFilter):
    """A filter by what the head of an image file says: nothing is decoded."""

    releases_gil = True

    @property
    def view(self) -> object:
        return "file"

    def views(self, images: ImageBatch) -> Iterator[ImageFile]:
        return (ImageFile(file, images.row_name(row)) for row, file in enumerate(images.files()))

    def score_file(self, file: ImageFile) -> float:
        """The score of an encoded image."""
        raise NotImplementedError(f"{type(self).__name__} has no score_file()")

    def score_image(self, pixels: NDArray[np.uint8]) -> float:
        raise TypeError(f"{type(self).__name__} scores files, not pixels: use score_file()")

    def score_view(self, image: ImageFile) -> tuple[float, Mapping[str, Any]]:
        return self.score_file(image), {}
