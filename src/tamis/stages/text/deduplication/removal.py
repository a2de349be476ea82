"""The stage that removes documents by their ids, with the parameters of NeMo Curator's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.removal import RemoveByIds
from tamis.tasks import TableTask

__all__ = ["TextDuplicatesRemovalStage"]


@dataclass
class TextDuplicatesRemovalStage(CompositeStage[TableTask, TableTask]):
    """Drop the rows whose ids are listed in Parquet files: :class:`~tamis.stages.deduplication.removal.RemoveByIds`.

    Args:
        ids_to_remove_path: The files.
        id_field: The column of the rows that holds their ids.
        duplicate_id_field: The column of the files. If they have no ``"id"``, it is ``id_field`` or the only column.
        read_kwargs: ``storage_options`` for the files; nothing else in it is used.
        drop_id_field: Whether the rows that stay lose the column ``id_field``.

    >>> TextDuplicatesRemovalStage("ids", drop_id_field=True).id_field
    '_curator_dedup_id'
    """

    ids_to_remove_path: str
    id_field: str = CURATOR_DEDUP_ID_STR
    duplicate_id_field: str = "id"
    read_kwargs: dict[str, Any] | None = None
    drop_id_field: bool = False
    name: str = "TextDuplicatesRemovalStage"

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            RemoveByIds(
                self.ids_to_remove_path,
                self.id_field,
                None if self.duplicate_id_field == "id" else self.duplicate_id_field,
                self.drop_id_field,
                storage_options=(self.read_kwargs or {}).get("storage_options") or {},
                name=self.name,
            )
        ]
