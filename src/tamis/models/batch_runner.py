"""Runs a function of batches over many rows: sorted by length, in batches that fit, results in row order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.models.token_batches import TokenBatch, TokenRows, token_batches

__all__ = ["BatchRunner", "Infer", "Rows", "check_finite", "is_out_of_memory"]

Infer = Callable[[Any], Mapping[str, Any]]
"""From a batch of rows to columns: a tensor or an array with an entry per row, for each name."""

GPU_TOKENS: Final = 131_072
CPU_TOKENS: Final = 2_048
"""Tokens of a batch where the user gives no number. A CPU needs few to be busy, and then they fit into its caches."""


class Rows(Protocol):
    """What a :class:`BatchRunner` takes: rows of a size each, such as the tokens of texts, or images."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How large each row is, in the unit of a batch (tokens, images); 0 for a row without anything."""

    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Some of the rows, in the order given."""

    def sample(self) -> Self:
        """A row that is made up, from which the columns are told where there is no row."""

    def too_large(self, memory: str) -> str:
        """What to say when the only row does not fit into the memory of a device."""


class BatchRunner:
    """Runs a function of token batches over many rows.

    The longest rows come first, so that a batch that does not fit into memory shows itself early. Then the batch is
    halved, and batches stay that small from then on.

    Args:
        infer: The function.
        device: Where it wants its batches: ``"cpu"`` or ``"cuda"``.
        batch_tokens: The most tokens of a batch; ``None`` for a number that suits the device.
        batch_texts: The most rows of a batch; ``None`` if only tokens limit it.
        wants_tensors: Whether the function is given tensors, or else the rows as they are.

    >>> def lengths(tokens): return {"tokens": tokens.offsets.diff()}
    >>> BatchRunner(lengths, "cpu")(TokenRows.of(pa.array([[7, 8], [], [9]])))["tokens"].to_pylist()
    [2, None, 1]
    """

    def __init__(
        self,
        infer: Infer,
        device: str,
        batch_tokens: int | None = None,
        batch_texts: int | None = None,
        *,
        wants_tensors: bool = True,
    ) -> None:
        self.infer, self.device, self.batch_texts, self.wants_tensors = infer, device, batch_texts, wants_tensors
        self.batch_tokens = batch_tokens or (CPU_TOKENS if device == "cpu" else GPU_TOKENS)
        self.halvings = 0
        """How often a batch did not fit."""

    def __call__(self, rows: Rows) -> dict[str, pa.Array]:
        """The columns for all rows; null for rows without anything.

        Raises:
            RuntimeError: A single row does not fit into memory.
            FloatingPointError: The model computed something that is not a number.
        """
        present = np.flatnonzero(rows.lengths)
        if not len(present):  # the columns are told from a row that is made up
            made = _checked(self.infer(self._given(rows.sample())), 1)
            return _in_row_order([(np.zeros(1, np.int64), made)], len(rows), is_sample=True)
        done: list[tuple[NDArray[np.int64], Mapping[str, Any]]] = []
        waiting = self._batches(rows.lengths, present)
        while waiting:
            batch = waiting.popleft()
            try:
                done.append((batch, _checked(self.infer(self._given(rows.take(batch))), len(batch))))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                longest = int(rows.lengths[batch].max())
                if len(batch) == 1:
                    raise RuntimeError(rows.take(batch).too_large(_device_name(self.device))) from error
                self._halve(longest * len(batch))
                rest = np.concatenate([batch, *waiting])
                waiting = self._batches(rows.lengths, rest)
        return _in_row_order(done, len(rows))

    def _batches(self, lengths: NDArray[np.int64], rows: NDArray[np.int64]) -> deque[NDArray[np.int64]]:
        made = [rows[chosen] for chosen in token_batches(lengths[rows], self.batch_tokens)]
        most = self.batch_texts
        if most is not None:
            made = [batch[start : start + most] for batch in made for start in range(0, len(batch), most)]
        return deque(reversed(made))

    def _given(self, rows: Rows) -> Any:
        return TokenBatch.of(rows, self.device) if self.wants_tensors and isinstance(rows, TokenRows) else rows

    def _halve(self, tokens: int) -> None:
        """Let batches have at most half as many tokens as one that did not fit."""
        self.batch_tokens = max(1, min(self.batch_tokens, tokens) // 2)
        self.halvings += 1
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of PyTorch or ONNX Runtime says that a device has no memory left.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")), is_out_of_memory(KeyError("a"))
    (True, False)
    """
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(each in words for each in ("out of memory", "not enough memory", "failed to allocate memory"))
    )


def _device_name(device: str) -> str:
    return "machine" if device == "cpu" else "GPU"


def _checked(columns: Mapping[str, Any], rows: int) -> Mapping[str, Any]:
    for name, values in columns.items():
        if len(values) != rows:
            raise ValueError(f"infer() returned {len(values)} values of {name!r} for {rows} rows")
    return columns


def _in_row_order(
    done: list[tuple[NDArray[np.int64], Mapping[str, Any]]], row_count: int, *, is_sample: bool = False
) -> dict[str, pa.Array]:
    """The results of all batches as columns, in the order of the rows; all null if they are those of a sample."""
    rows = np.concatenate([batch for batch, _ in done])
    places = np.full(row_count, -1)
    if not is_sample:
        places[rows] = np.arange(len(rows))
    missing = places < 0
    columns = {}
    for name in done[0][1]:
        together = _together([columns[name] for _, columns in done])
        if isinstance(together, np.ndarray):
            if not is_sample:
                check_finite(name, together, rows)
            columns[name] = _array(together[np.where(missing, 0, places)], missing)
        else:
            columns[name] = together.take(pa.array(places, mask=missing))
    return columns


def _together(pieces: list[Any]) -> NDArray[Any] | pa.Array:
    """What all batches gave for one column: numbers as a NumPy array, anything else as an Arrow array."""
    first = pieces[0]
    if hasattr(first, "detach"):
        import torch

        joined = torch.cat([piece.detach() for piece in pieces])
        joined = joined.float() if joined.dtype in (torch.bfloat16, torch.float16) else joined
        numbers: NDArray[Any] = joined.cpu().numpy()
        return numbers
    if isinstance(first, np.ndarray):
        return np.concatenate(pieces)
    arrays = [piece if isinstance(piece, pa.Array) else pa.array(piece) for piece in pieces]
    return pa.concat_arrays(arrays)


def check_finite(name: str, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Raise ``FloatingPointError`` if a model computed something that is not a number.

    Args:
        name: What was computed.
        values: The numbers, an entry or a vector for each row.
        rows: The numbers of the rows in the batch.
    """
    if not len(values) or not np.issubdtype(values.dtype, np.floating):
        return
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if len(bad):
        raise FloatingPointError(
            f"the model computed values of {name!r} that are not numbers, for {len(bad)} of {len(rows)} rows; "
            f"the first is row {rows[bad].min()} of the batch. Its weights may be damaged, or its dtype too small"
        )


def _array(values: NDArray[Any], missing: NDArray[np.bool_]) -> pa.Array:
    """Numbers as an Arrow array; a matrix as one of lists of fixed size."""
    nulls = missing if missing.any() else None
    if values.ndim == 1:
        return arrow_array(values, nulls)
    flat = arrow_array(np.ascontiguousarray(values.reshape(-1)))
    kind = pa.list_(flat.type, values.shape[1])
    if nulls is None:
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=arrow_array(nulls))
