"""Tokens that a batch brings with it, as models are given them: without padding, and not too many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.models.token_batches import TokenRows
from tamis.stages.column_values import read_column
from tamis.tasks import DocumentBatch

__all__ = ["unpadded_tokens"]


def unpadded_tokens(
    batch: DocumentBatch,
    ids_field: str = "input_ids",
    mask_field: str | None = None,
    *,
    max_seq_length: int | None = None,
    ends_with_token: bool = True,
    name: str = "",
) -> pa.ChunkedArray:
    """The tokens of each row that are not padding.

    Args:
        batch: The rows.
        ids_field: The column with the tokens.
        mask_field: The column that says which of them count: 1, or 0 for padding. All do when not given.
        max_seq_length: The most tokens of a row; others are cut.
        ends_with_token: Whether the last token of a row stays when it is cut.
        name: The stage, for messages.

    >>> ids, mask = [[2, 7, 8, 3], [2, 3, 0, 0]], [[1, 1, 1, 1], [1, 1, 0, 0]]
    >>> batch = DocumentBatch({"input_ids": ids, "attention_mask": mask})
    >>> unpadded_tokens(batch, mask_field="attention_mask", max_seq_length=3).to_pylist()
    [[2, 7, 3], [2, 3]]
    """
    rows = TokenRows.of(read_column(batch.data, ids_field, name))
    if mask_field is not None:
        mask = TokenRows.of(read_column(batch.data, mask_field, name))
        if not np.array_equal(mask.offsets, rows.offsets):
            raise ValueError(f"{name}: the lists in the columns {ids_field!r} and {mask_field!r} differ in length")
        rows = _only(rows, mask.ids != 0)
    if max_seq_length is not None and (rows.lengths > max_seq_length).any():
        place = np.arange(len(rows.ids)) - np.repeat(rows.offsets[:-1], rows.lengths)
        lengths = np.repeat(rows.lengths, rows.lengths)
        last = max_seq_length - 1 if ends_with_token else max_seq_length
        inside = place < np.where(lengths > max_seq_length, last, max_seq_length)
        rows = _only(rows, inside | (place == lengths - 1) if ends_with_token else inside)
    return pa.chunked_array([pa.LargeListArray.from_arrays(arrow_array(rows.offsets), arrow_array(rows.ids))])


def _only(rows: TokenRows, kept: np.ndarray) -> TokenRows:
    """Some tokens of each row."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    return TokenRows(rows.ids[kept], before[rows.offsets])
