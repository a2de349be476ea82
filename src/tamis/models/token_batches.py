"""Texts as tokens, in batches of a number of tokens: what a model is given at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import numpy_array, one_array
from tamis.models.row_kernels import row_kernels

if TYPE_CHECKING:
    import torch

__all__ = ["TokenBatch", "TokenRows", "token_batches"]


def token_batches(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Put rows into batches of at most so many tokens, the shortest first, so that rows of a batch are alike.

    A row that is longer than a batch is a batch of its own.

    Args:
        lengths: How many tokens each row has.
        batch_tokens: The most tokens of a batch, if each of its rows were as long as its longest.

    >>> [rows.tolist() for rows in token_batches(np.array([3, 1, 9, 2]), 6)]
    [[1, 3], [0], [2]]
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    start = 0
    while start < len(order):
        stop = start + 1
        # The rows are sorted, so the last of a batch is its longest: the most that fit is found by bisection.
        low, high = stop, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            if ordered[middle - 1] * (middle - start) <= batch_tokens:
                low = middle
            else:
                high = middle - 1
        yield order[start:low]
        start = low


@dataclass(frozen=True)
class TokenRows:
    """The tokens of all rows of a task.

    Args:
        ids: The tokens of all rows, one after the other.
        offsets: Where each row begins, and where the last one ends.

    >>> rows = TokenRows.of(pa.array([[1, 2], [], [3]]))
    >>> rows.lengths.tolist(), rows.take(np.array([2, 0])).ids.tolist()
    ([2, 0, 1], [3, 1, 2])
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> TokenRows:
        """The tokens of a column of lists. A null has none."""
        array = one_array(column).cast(pa.large_list(pa.int32()))
        lengths = numpy_array(pc.fill_null(pc.list_value_length(array), 0))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(numpy_array(pc.list_flatten(array)), offsets)  # without what is hidden behind nulls

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each row has."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> TokenRows:
        """The tokens of some rows, in the order given."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return TokenRows(self.ids[places], offsets)

    def sample(self) -> TokenRows:
        """A row of one token."""
        return TokenRows(np.zeros(1, np.int32), np.array([0, 1]))

    def too_large(self, memory: str) -> str:
        """What to say when the longest row does not fit into the memory of a device."""
        return (
            f"a row of {int(self.lengths.max()):,} tokens does not fit into the memory of the {memory}: give a smaller "
            "max_seq_length, or the worker more memory"
        )


@dataclass(frozen=True)
class TokenBatch:
    """Rows of tokens on a device, one after the other without padding.

    Args:
        ids: The tokens.
        offsets: Where each row begins, and where the last one ends (32-bit numbers, as attention kernels want them).
        positions: The place of each token in its row.
        longest: How many tokens the longest row has.
    """

    ids: torch.Tensor
    offsets: torch.Tensor
    positions: torch.Tensor
    longest: int

    @classmethod
    def of(cls, rows: TokenRows, device: str) -> TokenBatch:
        """Bring rows to a device."""
        import torch

        lengths = rows.lengths
        ids = torch.from_numpy(np.ascontiguousarray(rows.ids))
        offsets = torch.from_numpy(rows.offsets.astype(np.int32))
        if device != "cpu":
            ids, offsets = (each.pin_memory().to(device, non_blocking=True) for each in (ids, offsets))
        counts = offsets.diff()
        starts = torch.repeat_interleave(offsets[:-1], counts, output_size=len(rows.ids))
        positions = torch.arange(len(rows.ids), device=device) - starts
        return cls(ids.long(), offsets, positions, int(lengths.max(initial=0)))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.offsets) - 1

    @property
    def row_of(self) -> torch.Tensor:
        """The number of the row of each token."""
        import torch

        numbers = torch.arange(self.rows, device=self.ids.device)
        return torch.repeat_interleave(numbers, self.offsets.diff(), output_size=len(self.ids))

    def positions_from(self, padding: int | None) -> torch.Tensor:
        """The place of each token in its row, as RoBERTa and its kin count: those of the padding token do not count.

        Args:
            padding: The padding token, which is also the place before the first; ``None`` to count as other models do.
        """
        import torch

        if padding is None:
            return self.positions
        counts = self.ids != padding
        total = counts.cumsum(0)
        starts = self.offsets[:-1].long()
        before = torch.repeat_interleave(
            total[starts] - counts[starts].long(), self.offsets.diff(), output_size=len(total)
        )
        return (total - before) * counts + padding

    def runs(self) -> Iterator[TokenBatch]:
        """The rows again, in order, in batches of neighbours of one length."""
        start, lengths = 0, self.offsets.diff().tolist()
        for length, run in itertools.groupby(lengths):
            stop = start + length * sum(1 for _ in run)
            ids, positions = self.ids[start:stop], self.positions[start:stop]
            offsets = self.offsets.new_tensor(range(0, stop - start + 1, length))
            yield TokenBatch(ids, offsets, positions, length)
            start = stop

    def padded(self, pad: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows as a matrix filled up with a token, and which of its places hold tokens of rows."""
        import torch

        mask = torch.arange(self.longest, device=self.ids.device) < self.offsets.diff()[:, None]
        matrix = torch.full(mask.shape, pad, dtype=torch.long, device=self.ids.device)
        matrix[mask] = self.ids
        return matrix, mask

    def mean(self, hidden: torch.Tensor) -> torch.Tensor:
        """The mean over the tokens of each row."""
        import torch

        kernels = row_kernels() if hidden.is_cuda and hidden.is_contiguous() else None
        if kernels is not None:
            means: torch.Tensor = kernels.row_means(hidden, self.offsets)
            return means
        sums = torch.zeros(self.rows, hidden.shape[1], device=hidden.device, dtype=torch.float32)
        sums.index_add_(0, self.row_of, hidden.float())
        return sums / self.offsets.diff().clamp(min=1)[:, None]

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        """What belongs to the first token of each row."""
        return hidden[self.offsets[:-1].long()].float()

    def last(self, hidden: torch.Tensor) -> torch.Tensor:
        """What belongs to the last token of each row."""
        return hidden[self.offsets[1:].long() - 1].float()

    def pooled(self, hidden: torch.Tensor, pooling: str) -> torch.Tensor:
        """One vector per row, none of which may be empty.

        Args:
            hidden: The states of the tokens.
            pooling: ``"mean"``, ``"cls"`` (or ``"first"``), ``"lasttoken"`` (or ``"last"``), ``"max"``,
                ``"weightedmean"`` (later tokens count more) or ``"mean_sqrt_len_tokens"`` (the sum over the root of
                the length).
        """
        import torch

        if pooling in ("cls", "first"):
            return self.first(hidden)
        if pooling in ("lasttoken", "last"):
            return self.last(hidden)
        if pooling == "mean":
            return self.mean(hidden)
        lengths = self.offsets.diff()[:, None]
        if pooling == "max":
            return torch.segment_reduce(hidden.float(), "max", offsets=self.offsets.long())
        if pooling == "mean_sqrt_len_tokens":
            return self.mean(hidden) * lengths.sqrt()
        if pooling == "weightedmean":
            weights = (self.positions + 1)[:, None]
            return self.mean(hidden.float() * weights) / self.mean(weights)
        raise ValueError(f"there is no pooling {pooling!r}")
