"""Tokens that a batch brings with it, as models are given them: without padding, and not too many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.models.token_batches import TokenRows
from tamis.stages.base import ProcessingStage
from tamis.stages.column_values import read_column
from tamis.tasks import DocumentBatch

__all__ = ["ExistingTokens"]


@dataclass(repr=False)
class ExistingTokens(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Add a column with the tokens of another one that are not padding.

    Args:
        ids_field: The column with the tokens.
        mask_field: The column that says which of them count: 1, or 0 for padding.
        mask_is_optional: Whether the tokens all count where there is no such column.
        max_seq_length: The most tokens of a row; others are cut.
        ends_with_token: Whether the last token of a row stays when it is cut.
        tokens_field: The column that gets the tokens.

    >>> ids, mask = [[2, 7, 8, 3], [2, 3, 0, 0]], [[1, 1, 1, 1], [1, 1, 0, 0]]
    >>> batch = DocumentBatch({"input_ids": ids, "attention_mask": mask})
    >>> ExistingTokens(max_seq_length=3).process(batch)["tokens"].to_pylist()
    [[2, 7, 3], [2, 3]]
    """

    ids_field: str = "input_ids"
    mask_field: str = "attention_mask"
    mask_is_optional: bool = True
    max_seq_length: int | None = None
    ends_with_token: bool = True
    tokens_field: str = "tokens"

    releases_gil: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.ids_field, *([] if self.mask_is_optional else [self.mask_field])]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def adds_columns(self) -> list[str]:
        return [self.tokens_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        rows = TokenRows.of(read_column(task.data, self.ids_field, self.name))
        if not self.mask_is_optional or self.mask_field in task.get_columns():
            mask = TokenRows.of(read_column(task.data, self.mask_field, self.name))
            if not np.array_equal(mask.offsets, rows.offsets):
                raise ValueError(
                    f"{self.name}: the lists in the columns {self.ids_field!r} and {self.mask_field!r} differ in length"
                )
            rows = _only(rows, mask.ids != 0)
        limit = self.max_seq_length
        if limit is not None and (rows.lengths > limit).any():
            place = np.arange(len(rows.ids)) - np.repeat(rows.offsets[:-1], rows.lengths)
            lengths = np.repeat(rows.lengths, rows.lengths)
            inside = place < (np.where(lengths > limit, limit - 1, limit) if self.ends_with_token else limit)
            rows = _only(rows, inside | (place == lengths - 1) if self.ends_with_token else inside)
        column = pa.LargeListArray.from_arrays(arrow_array(rows.offsets), arrow_array(rows.ids))
        return task.with_column(self.tokens_field, column)


def _only(rows: TokenRows, kept: np.ndarray) -> TokenRows:
    """Some tokens of each row."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    return TokenRows(rows.ids[kept], before[rows.offsets])
