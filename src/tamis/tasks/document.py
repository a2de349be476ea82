"""A batch of documents."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.tasks.table import TableTask, as_table

__all__ = ["DocumentBatch", "as_table"]


@dataclass
class DocumentBatch(TableTask):
    """A batch of documents: one row each, in an Arrow table.

    >>> batch = DocumentBatch([{"text": "a b"}, {"text": "c"}])
    >>> batch.num_items, batch.get_columns()
    (2, ['text'])
    """
