"""Exact deduplication of images: by their files, or by their pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tamis.errors import PlanError, did_you_mean
from tamis.kernels.hashing import hash_text_128
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.exact.stage import ExactDeduplication, HashRows
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.memory import DEFAULT_MEMORY
from tamis.tasks import ImageBatch, TableTask

__all__ = ["ImageExactDeduplication"]

_CONTENT = "content of the image"
"""The column with what is compared; it is in no file."""


@dataclass
class ImageExactDeduplication(CompositeStage[TableTask, TableTask]):
    """Keep one of each set of equal images, by default the first by name (path, then position).

    Encoded images are read where they are: in the column ``image_bytes`` or in the files that the rows name. Only their
    128-bit hashes are kept, so references stay references. The drop ledger says of each duplicate which row it is a
    duplicate of (``score_text``).

    Args:
        by: ``"bytes"``: the encoded images are equal; or ``"pixels"``: the decoded ones, whatever the format, the
            metadata and the compression, if it loses nothing.
        keep: Which image of a set stays: ``"first"``, ``"highest:COLUMN"`` or ``"lowest:COLUMN"``.
        partitions: How many parts the hashes are sorted in; as many can be worked on at the same time.
        memory_budget: How much memory of a machine the hashes may take, as a number of bytes or as ``"8GB"``. What does
            not fit is worked on in parts.

    >>> from tamis.testing import run_stage
    >>> rows = ImageBatch({"image_bytes": [b"one", b"two", b"one"]})
    >>> run = run_stage(ImageExactDeduplication(), rows)
    >>> [row["image_bytes"] for row in run], run.dropped[0].reason
    ([b'one', b'two'], 'exact duplicate')
    """

    by: Literal["bytes", "pixels"] = "bytes"
    keep: str = "first"
    partitions: int = 16
    memory_budget: int | str = DEFAULT_MEMORY
    name: str = "ImageExactDeduplication"

    def __post_init__(self) -> None:
        if self.by not in ("bytes", "pixels"):
            guess = did_you_mean(self.by, ("bytes", "pixels"))
            raise PlanError(f"by={self.by!r}: must be 'bytes' or 'pixels'.{guess}")
        keep = Keep.parse(self.keep)
        if keep.rule == "longest":
            raise PlanError(f"keep={self.keep!r} is for texts: say highest:COLUMN, as in keep='highest:width'")
        self.keep = str(keep)
        self._of_rows()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], Keep.parse(self.keep).columns

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        first, *others = self._of_rows().decompose()
        assert isinstance(first, HashRows)
        hashing = HashContents(first.folder, first.partitions, _CONTENT, False, first.keep, self.by)
        return [hashing.with_(name=first.name), *others]

    def _of_rows(self) -> ExactDeduplication:
        return ExactDeduplication(_CONTENT, False, self.partitions, self.keep, self.memory_budget, self.name)


@dataclass
class HashContents(HashRows):
    """As for texts, with what is compared of images."""

    by: Literal["bytes", "pixels"] = "bytes"

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.keep.columns

    def compared(self, task: TableTask) -> TableTask:
        images = ImageBatch.of(task)
        digests = _byte_digests(images) if self.by == "bytes" else _pixel_digests(images)
        return task.with_column(self.text_field, pa.array(digests, pa.binary(), size=task.num_items))


def _byte_digests(images: ImageBatch) -> Iterator[bytes]:
    for payload in images.payloads():
        yield _digest(pa.py_buffer(payload))


def _pixel_digests(images: ImageBatch) -> Iterator[bytes]:
    for pixels in images.pixels():
        shape = np.array(pixels.shape, np.int64).tobytes()
        yield _digest(pa.py_buffer(np.ascontiguousarray(pixels).reshape(-1))) + shape


def _digest(content: pa.Buffer) -> bytes:
    """The hash of one payload, which is not copied."""
    offsets = pa.py_buffer(np.array([0, content.size], np.int64))
    text = pa.LargeStringArray.from_buffers(1, offsets, content)
    return hash_text_128(pa.chunked_array([text])).tobytes()
