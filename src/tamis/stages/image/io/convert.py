"""Columns of images as documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from tamis.arrays import one_array
from tamis.errors import ColumnError, did_you_mean
from tamis.stages.base import ProcessingStage
from tamis.stages.io.arguments import check_names
from tamis.tasks import DocumentBatch, ImageBatch
from tamis.tasks.views import view_of

__all__ = ["ConvertImageBatchToDocumentBatchStage"]

_ATTRIBUTES = {"embedding": "image_embedding"}
_OBJECT = (
    "image_path",
    "image_id",
    "image_data",
    "image_data_shape",
    "image_embedding",
    "aesthetic_score",
    "nsfw_score",
)
_ENCODED = ("image_bytes", "byte_offset", "byte_size")


@dataclass
class ConvertImageBatchToDocumentBatchStage(ProcessingStage[ImageBatch, DocumentBatch]):
    """Make documents of some attributes of images: their ids, embeddings, scores.

    Any stage can work on the columns of images without this. It chooses and renames columns as NeMo Curator does.

    Args:
        fields: Attributes of :class:`~tamis.tasks.ImageObject`, or columns; ``["image_id"]`` when empty.
            ``"embedding"`` is the column ``image_embedding``; ``"metadata"`` is a struct of all further columns.

    >>> images = ImageBatch({"image_id": ["a"], "image_embedding": [[0.5, 1.0]], "caption": ["a cat"]})
    >>> ConvertImageBatchToDocumentBatchStage(["image_id", "embedding"]).process(images).data.to_pylist()
    [{'image_id': 'a', 'embedding': [0.5, 1.0]}]
    """

    fields: list[str] = field(default_factory=list)
    name: str = "convert_image_batch_to_document_batch"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_names(type(self).__name__, "fields", self.fields or None)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [_ATTRIBUTES.get(name, name) for name in self._names() if name != "metadata"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self._names()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(self._names())

    def process(self, task: ImageBatch) -> DocumentBatch:
        there = task.get_columns()
        columns = {}
        for name in self._names():
            column = _ATTRIBUTES.get(name, name)
            if column in there:
                columns[name] = task[column]
            elif name == "metadata":
                others = [other for other in there if other not in (*_OBJECT, *_ENCODED)]
                parts = [one_array(task[other]) for other in others]
                columns[name] = pa.StructArray.from_arrays(parts, others) if others else pa.nulls(task.num_items)
            else:
                raise ColumnError(
                    f"{self.name}: the images have no {column!r}, only {', '.join(there)}.{did_you_mean(column, there)}"
                )
        return view_of(task.with_same_rows(pa.table(columns)), DocumentBatch)

    def _names(self) -> list[str]:
        return self.fields or ["image_id"]
