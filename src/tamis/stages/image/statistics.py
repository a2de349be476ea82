"""A stage that measures images: one row of figures for each, which is what an analysis is made of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import xxhash

from tamis.errors import DataError
from tamis.kernels.image_hashes import image_hash
from tamis.stages.base import ProcessingStage
from tamis.stages.image.filters.file_filters import (
    AnimationFilter,
    AspectRatioFilter,
    ImageFileSizeFilter,
    ImageSizeFilter,
    JpegQualityFilter,
    PixelCountFilter,
    TransparencyFilter,
)
from tamis.stages.image.filters.image_filter import DecodedImage, ImageFilter
from tamis.stages.image.filters.measures import MEASURED_SIDE
from tamis.stages.image.filters.pixel_filters import (
    BorderFilter,
    BrightnessFilter,
    ColorfulnessFilter,
    ContrastFilter,
    EntropyFilter,
    FlatGraphicsFilter,
    GrayscaleFilter,
    NoiseFilter,
    SharpnessFilter,
)
from tamis.stages.mixing.row_keys import as_shares, name_keys, scrambled
from tamis.tasks import DocumentBatch, ImageBatch, RowNames
from tamis.tasks.storage import format_order

__all__ = ["CAPTION_CHARACTERS", "ImageStatistics", "default_image_filters"]

CAPTION_CHARACTERS: Final = 200
"""How much of a caption is kept, in characters."""

_CAPTIONS: Final = ("caption", "text")
_FACTS: Final[dict[str, pa.DataType]] = {
    "source": pa.string(),
    "position": pa.int64(),
    "part": pa.string(),
    "image_id": pa.string(),
    "caption": pa.string(),
    "caption_characters": pa.int64(),
    "problem": pa.string(),
    "nbytes": pa.int64(),
    "width": pa.int32(),
    "height": pa.int32(),
    "image_format": pa.string(),
    "bytes_hash": pa.uint64(),
    "pixels_hash": pa.uint64(),
    "phash": pa.uint64(),
}


def default_image_filters() -> list[ImageFilter]:
    """The filters whose scores are found when none are named: all that need nothing but Pillow.

    >>> [one.name for one in default_image_filters()][:3]
    ['shorter_side', 'pixels', 'aspect_ratio']
    """
    return [
        ImageSizeFilter(),
        PixelCountFilter(),
        AspectRatioFilter(),
        ImageFileSizeFilter(),
        JpegQualityFilter(),
        AnimationFilter(),
        TransparencyFilter(),
        SharpnessFilter(),
        BrightnessFilter(),
        ContrastFilter(),
        EntropyFilter(),
        ColorfulnessFilter(),
        GrayscaleFilter(),
        BorderFilter(),
        FlatGraphicsFilter(),
        NoiseFilter(),
    ]


@dataclass(repr=False)
class ImageStatistics(ProcessingStage[ImageBatch, DocumentBatch]):
    """Measure images: sizes, formats, the scores of filters, hashes of bytes and pixels, a perceptual hash, captions.

    Each batch becomes a table with a row for each image. An image that cannot be decoded has no figures but a
    ``problem`` that says why.

    Args:
        filters: The filters whose scores are found; :func:`default_image_filters` when not given.
        fraction: The share of the images that is measured, chosen by the names of the rows; the others are left out,
            and nothing of them is decoded.

    >>> stage = ImageStatistics(filters=[])
    >>> stage.process(ImageBatch({"image_bytes": [b"no image"]}))["problem"][0].as_py()[:14]
    'cannot be read'
    """

    filters: Sequence[ImageFilter] | None = None
    fraction: float = 1.0
    name: str = "image_statistics"

    releases_gil: ClassVar[bool] = True
    makes_rows = "new"

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"ImageStatistics(fraction={self.fraction}): must be above 0, and 1 at most")
        names = [one.name for one in self.chosen_filters]
        if len(set(names)) < len(names):
            raise ValueError(f"ImageStatistics(filters=...): two filters have the same name: {', '.join(names)}")

    @property
    def chosen_filters(self) -> list[ImageFilter]:
        """The filters whose scores are found."""
        return default_image_filters() if self.filters is None else list(self.filters)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [*_FACTS, *(one.name for one in self.chosen_filters)]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(self.outputs()[1])

    def process(self, task: ImageBatch) -> DocumentBatch:
        images = ImageBatch.of(task)
        names = images.names or RowNames.numbered(format_order(task.order), images.num_items)
        chosen = np.arange(images.num_items)
        if self.fraction < 1:
            chosen = np.flatnonzero(as_shares(scrambled(name_keys(names, "ImageStatistics", 0))) < self.fraction)
        rows = [self._measured(images.select(np.array([row])), names, int(row)) for row in chosen]
        types = {**_FACTS, **{one.name: pa.float64() for one in self.chosen_filters}}
        columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()}
        table = DocumentBatch(pa.table(columns))
        return table.named(RowNames.numbered(f"{self.name} {format_order(task.order)}", len(rows)))

    def _measured(self, one: ImageBatch, names: RowNames, row: int) -> dict[str, Any]:
        """The figures of one image."""
        found = _place(names, row) | _words(one)
        try:
            one = one.with_payloads()
            data = next(one.payloads())
            found |= {"nbytes": len(data), "bytes_hash": xxhash.xxh3_64_intdigest(data)}
            found |= one.with_metadata().columns(["width", "height", "image_format"]).to_pylist()[0]
            image = DecodedImage(next(one.pixels(max_side=MEASURED_SIDE)))
            shape = np.array(image.pixels.shape).tobytes()
            found["pixels_hash"] = xxhash.xxh3_64_intdigest(shape + np.ascontiguousarray(image.pixels).tobytes())
            found["phash"] = image_hash(image.pixels)
            for view, filters in itertools.groupby(self._by_view(), key=lambda each: each.view):
                some = list(filters)
                views = iter([image]) if view == ("pixels", MEASURED_SIDE) else some[0].views(one)
                for seen in views:  # the file of a view is open until the next one is asked for
                    found |= {each.name: float(each.score_view(seen)[0]) for each in some}
        except DataError as error:
            found["problem"] = error.problem.removeprefix(f"the image {one.row_name(0)} ")
        return found

    def _by_view(self) -> list[ImageFilter]:
        """The filters, those side by side that are given the same."""
        return sorted(self.chosen_filters, key=lambda each: repr(each.view))


def _place(names: RowNames, row: int) -> dict[str, Any]:
    source = names.sources[0 if names.codes is None else int(names.codes[row])]
    part = None if names.parts is None else names.parts[row].as_py()
    return {"source": source, "position": int(names.positions[row]), "part": part}


def _words(one: ImageBatch) -> dict[str, Any]:
    """The id and the beginning of the caption."""
    columns = one.get_columns()
    found: dict[str, Any] = {}
    if "image_id" in columns:
        value = one["image_id"][0].as_py()
        found["image_id"] = None if value is None else str(value)
    for name in _CAPTIONS:
        if name in columns and isinstance(caption := one[name][0].as_py(), str):
            found |= {"caption": caption[:CAPTION_CHARACTERS], "caption_characters": len(caption)}
            break
    return found
