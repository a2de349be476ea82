"""The input of an analysis of images: the reader that fits the files, and about how many images there are."""

from __future__ import annotations

import itertools
from typing import Any, Final, Literal

import pyarrow.parquet as pq

from tamis.errors import DataError, PlanError, did_you_mean
from tamis.runs.image_rows import tar_images
from tamis.stages.image.io.image_files import ImageFolderReader, ImageFolderReaderStage
from tamis.stages.image.io.image_reader import ImageReader
from tamis.stages.image.io.samples import IMAGE_ENDINGS
from tamis.stages.image.io.struct_column import UnpackImages
from tamis.stages.image.io.web_dataset import TAR_ENDINGS, WebDatasetReader
from tamis.stages.io import FilePartitioningStage, ParquetReader
from tamis.stages.io.listing import Listing
from tamis.stages.io.paths import absolute, base_name, open_read, with_compressions
from tamis.tasks import FileSlice

__all__ = ["IMAGE_FORMATS", "ImageFormat", "count_images", "image_reader", "is_for_images"]

ImageFormat = Literal["tar", "folder", "parquet"]
IMAGE_FORMATS: Final = ("tar", "folder", "parquet")

_LOOKED_AT: Final = 2_000
_LOOKED_AT_TARS: Final = 4
_ENDINGS: Final = (*with_compressions(TAR_ENDINGS), *IMAGE_ENDINGS)
_BESIDE: Final = (".txt", ".json", ".md")
"""Files beside images: captions and metadata."""


def is_for_images(paths: list[str]) -> bool:
    """Whether at least half of the first files that are found are images, or tars, apart from captions.

    >>> from tamis.quickstart import sample_files, sample_images
    >>> is_for_images(sample_images()), is_for_images(sample_files())
    (True, False)
    """
    try:
        found = itertools.islice(Listing(tuple(absolute(path) for path in paths), ()).files(), _LOOKED_AT)
        names = [base_name(file.path).lower() for file in found]
    except DataError:
        return False
    images = sum(name.endswith(_ENDINGS) for name in names)
    others = sum(not name.endswith((*_ENDINGS, *_BESIDE)) for name in names)
    return images > 0 and images >= others


def image_reader(paths: list[str], format_name: str | None) -> Any:
    """The reader for some images: what cannot be read is set aside, and the rest goes on.

    Args:
        paths: Files, folders and patterns.
        format_name: One of :data:`IMAGE_FORMATS`; that of the first file when not given.
    """
    if format_name is not None and format_name not in IMAGE_FORMATS:
        near = did_you_mean(format_name, IMAGE_FORMATS)
        raise PlanError(f"format {format_name!r}: it must be one of {', '.join(IMAGE_FORMATS)}.{near}")
    reader: Any
    if format_name == "tar":
        reader = WebDatasetReader(paths, on_error="quarantine")
    elif format_name == "parquet":
        reader = ImageReader(paths, on_error="quarantine", file_extensions=[".parquet"])
    else:
        reader = ImageReader(paths, on_error="quarantine")
        if format_name == "folder" or isinstance(reader.decompose()[-1], ImageFolderReaderStage):
            reader = ImageFolderReader(paths, on_error="quarantine", caption_extension=".txt")
    return reader


def count_images(reader: Any) -> int | None:
    """About how many images a reader will read; ``None`` if that cannot be told without reading them."""
    listing, *_, last = reader.decompose()
    assert isinstance(listing, FilePartitioningStage)
    files = {part.path: part for split in listing.splits("") for part in split.slices}
    if isinstance(last, ImageFolderReaderStage):
        return len(files)
    if isinstance(last, UnpackImages | type(ParquetReader("a").decompose()[-1])):
        return sum(_parquet_rows(path, listing.storage_options) for path in files)
    return _images_in_tars(list(files.values()), listing.storage_options)


def _parquet_rows(path: str, storage_options: dict[str, Any]) -> int:
    with open_read(path, storage_options) as handle:
        return int(pq.read_metadata(handle).num_rows)


def _images_in_tars(files: list[FileSlice], storage_options: dict[str, Any]) -> int | None:
    """By the bytes that an image takes in the first tars."""
    nbytes = images = 0
    for file in files[:_LOOKED_AT_TARS]:
        if not file.path.lower().endswith(".tar") or file.size < 0:
            return None
        with open_read(file.path, storage_options) as handle:
            starts = [at for at, _ in tar_images(handle, _LOOKED_AT)]
        # From the first image to the last one: of a large tar only the beginning was looked at.
        images += len(starts) - 1 if len(starts) > 1 else len(starts)
        nbytes += starts[-1] - starts[0] if len(starts) > 1 else file.size
    return round(images * sum(file.size for file in files) / nbytes) if nbytes else None
