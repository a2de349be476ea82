"""Removal of images whose ids are listed in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.removal import RemoveByIds
from tamis.tasks import TableTask

__all__ = ["ImageDuplicatesRemovalStage"]


@dataclass
class ImageDuplicatesRemovalStage(CompositeStage[TableTask, TableTask]):
    """Drop the images whose ``image_id`` is listed in Parquet files, as deduplication workflows write them.

    The ids are sorted into a file on each machine first, within the memory budget, and looked up there: any number of
    them can be removed. An image without an id (null) stays.

    Args:
        removal_parquets_dir: A folder of Parquet files, one file, or any fsspec address. An empty folder removes
            nothing.
        duplicate_id_field: The column of the files that has the ids.
        verbose: For NeMo Curator's scripts; the report shows how many images were removed.
        memory_budget: How much memory of a machine sorting the ids may take, as a number of bytes or as ``"8GB"``.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> from tamis.testing import run_stage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"id": ["b"]}), f"{folder}/ids.parquet")
    ...     run_stage(ImageDuplicatesRemovalStage(folder), [{"image_id": "a"}, {"image_id": "b"}])
    [{'image_id': 'a'}]
    """

    removal_parquets_dir: str
    duplicate_id_field: str = "id"
    verbose: bool = False
    name: str = "image_dedup_filter"
    memory_budget: int | str = "2GiB"

    def __post_init__(self) -> None:
        self._removing()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["image_id"]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [self._removing()]

    def _removing(self) -> RemoveByIds:
        return RemoveByIds(
            self.removal_parquets_dir,
            "image_id",
            self.duplicate_id_field,
            memory_budget=self.memory_budget,
            name=self.name,
        )
