"""Perceptual hashes of images as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import ColumnError, PlanError, did_you_mean
from tamis.kernels.image_hashes import KINDS, HashKind, image_hash
from tamis.stages.base import ProcessingStage
from tamis.tasks import ImageBatch, TableTask

__all__ = ["PerceptualHash", "check_kind", "hashes_in", "image_hashes"]

Hashes = NDArray[np.uint64]

_SMALL_SIDE: Final = 128
"""The shorter side, in pixels, of images that are not decoded whole: four times that of the largest thumbnail."""


@dataclass
class PerceptualHash(ProcessingStage[ImageBatch, ImageBatch]):
    """Add perceptual hashes: 64 bits that change little when an image is resized or compressed again.

    The columns have the names of the kinds and hold numbers (``uint64``). The bits are those of the package
    ``imagehash`` for the same pixels: ``int(str(imagehash.phash(image)), 16)`` is the same number.

    Args:
        kinds: ``"phash"`` (frequencies), ``"dhash"`` (differences of neighbours), ``"ahash"`` (differences from the
            mean), or several of them. An image is decoded once.
        exact: Whether the bits are those of the whole image. If not, a JPEG is decoded at a smaller scale, with a
            shorter side of 128 pixels, which is several times faster; a few images differ in a bit or two.

    >>> from tamis.tasks import ImageObject
    >>> images = ImageBatch([ImageObject(image_data=np.zeros((8, 8, 3), np.uint8))])
    >>> PerceptualHash(("phash", "dhash")).process(images).columns(["phash", "dhash"]).to_pylist()
    [{'phash': 0, 'dhash': 0}]
    """

    kinds: Sequence[str] = ("phash",)
    exact: bool = True
    name: str = "PerceptualHash"
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.kinds, str) or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise PlanError(f"kinds={self.kinds!r}: must be a list of different kinds of {', '.join(KINDS)}")
        for kind in self.kinds:
            check_kind("kinds", kind)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.kinds)

    def process(self, task: ImageBatch) -> ImageBatch:
        hashes = image_hashes(task, self.kinds, self.exact)
        return task.with_columns({kind: arrow_array(hashes[kind]) for kind in self.kinds})


def check_kind(parameter: str, kind: str) -> None:
    """Raise ``PlanError`` for a kind of hash that there is not."""
    if kind not in KINDS:
        raise PlanError(f"{parameter}={kind!r}: must be one of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}")


def image_hashes(images: ImageBatch, kinds: Sequence[str], exact: bool = True) -> dict[str, Hashes]:
    """The hashes of all images of a batch, by kind. Each image is decoded once, at a smaller scale if not exact."""
    found: dict[str, Hashes] = {kind: np.zeros(images.num_items, np.uint64) for kind in kinds}
    for row, pixels in enumerate(images.pixels(min_side=None if exact else _SMALL_SIDE)):
        for kind in kinds:
            found[kind][row] = image_hash(pixels, _known(kind))
    return found


def _known(kind: str) -> HashKind:
    check_kind("kind", kind)
    return kind  # type: ignore[return-value]  # checked


def hashes_in(task: TableTask, name: str) -> tuple[Hashes, NDArray[np.int64]]:
    """The hashes in a column, and the rows that have one.

    Args:
        task: The batch.
        name: The column: whole numbers of 64 bits, or strings of 8 bytes, the highest one first.

    >>> batch = TableTask({"phash": pa.array([None, b"\\0" * 7 + b"\\1"], pa.binary(8))})
    >>> [part.tolist() for part in hashes_in(batch, "phash")]
    [[1], [1]]
    """
    column = task[name]
    if pa.types.is_null(column.type):
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    rows = np.flatnonzero(numpy_array(column.is_valid()))
    column = column.drop_null()
    if column.type in (pa.uint64(), pa.int64()):
        return numpy_array(column).view(np.uint64), rows
    if column.type == pa.binary(8):
        content = b"".join(chunk.buffers()[1].slice(8 * chunk.offset, 8 * len(chunk)) for chunk in column.chunks)
        return np.frombuffer(content, ">u8").astype(np.uint64), rows
    raise ColumnError(
        f"the column {name!r} holds {column.type}; hashes are whole numbers of 64 bits or strings of 8 bytes "
        "(fixed_size_binary[8]), as PerceptualHash makes them"
    )
