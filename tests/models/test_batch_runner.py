"""Batches of many rows: their sizes, the order of their results, memory that runs out, and numbers that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.models.batch_runner import BatchRunner, is_out_of_memory
from tamis.models.token_batches import TokenRows

LENGTHS = [3, 0, 9, 1, 4, 4, 2, 30, 5, 0]
ROWS = TokenRows.of(pa.array([[number] * length for number, length in enumerate(LENGTHS)], pa.list_(pa.int32())))


def summed(rows: TokenRows) -> dict[str, Any]:
    starts = rows.offsets[:-1]
    vectors = np.stack([np.add.reduceat(rows.ids, starts), rows.lengths], axis=1).astype(np.float32)
    return {"vector": vectors, "name": [f"row {number}" for number in rows.ids[starts]]}


def runner(infer: Callable[[Any], Any], **settings: Any) -> BatchRunner:
    return BatchRunner(infer, "cpu", wants_tensors=False, **settings)


@pytest.mark.parametrize("batch_tokens", [1, 7, 20, 1000])
def test_results_are_in_the_order_of_the_rows(batch_tokens: int) -> None:
    found = runner(summed, batch_tokens=batch_tokens)(ROWS)
    wanted = [None if not length else [number * length, length] for number, length in enumerate(LENGTHS)]
    assert found["vector"].to_pylist() == wanted
    assert found["vector"].type == pa.list_(pa.float32(), 2)
    assert found["name"].to_pylist() == [f"row {n}" if length else None for n, length in enumerate(LENGTHS)]


def test_batches_hold_a_number_of_tokens_of_rows_that_are_alike() -> None:
    seen: list[list[int]] = []

    def infer(rows: TokenRows) -> dict[str, Any]:
        seen.append(rows.lengths.tolist())
        return summed(rows)

    runner(infer, batch_tokens=10)(ROWS)
    assert seen == [[30], [9], [5], [4, 4], [1, 2, 3]]
    seen.clear()
    runner(infer, batch_tokens=10, batch_texts=1)(ROWS)
    assert sorted(len(batch) for batch in seen) == [1] * 8


class SmallDevice:
    """A device whose memory holds so many tokens."""

    def __init__(self, tokens: int, error: Exception) -> None:
        self.tokens, self.error, self.tried = tokens, error, 0

    def __call__(self, rows: TokenRows) -> dict[str, Any]:
        self.tried += 1
        if len(rows.ids) > self.tokens:
            raise self.error
        return summed(rows)


def test_a_batch_that_does_not_fit_is_halved_and_the_size_remembered() -> None:
    torch = pytest.importorskip("torch")
    device = SmallDevice(30, torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB"))
    small = runner(device, batch_tokens=1000)
    assert small(ROWS)["vector"].to_pylist() == runner(summed)(ROWS)["vector"].to_pylist()
    assert small.halvings > 0
    size, halvings, device.tried = small.batch_tokens, small.halvings, 0
    small(ROWS)
    assert (small.batch_tokens, small.halvings) == (size, halvings)


def test_a_row_that_does_not_fit_by_itself_is_an_error_that_says_so() -> None:
    device = SmallDevice(29, RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory"))
    with pytest.raises(RuntimeError, match=r"a row of 30 tokens does not fit into the memory of the machine"):
        runner(device)(ROWS)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    device = SmallDevice(0, RuntimeError("expected scalar type Half"))
    with pytest.raises(RuntimeError, match="expected scalar type Half"):
        runner(device)(ROWS)
    assert device.tried == 1
    assert not is_out_of_memory(ValueError("out of memory"))


def test_numbers_that_are_not_finite_are_an_error_that_names_the_row() -> None:
    def infer(rows: TokenRows) -> dict[str, Any]:
        made = summed(rows)
        made["vector"][made["vector"][:, 1] == 4] = np.inf
        return made

    with pytest.raises(FloatingPointError, match=r"'vector' that are not numbers, for 2 of 8 rows; the first is row 4"):
        runner(infer)(ROWS)


def test_a_wrong_number_of_results_is_refused() -> None:
    with pytest.raises(ValueError, match=r"returned 1 values of 'x' for \d rows"):
        runner(lambda rows: {"x": [1]}, batch_tokens=1000)(ROWS)


def test_rows_without_tokens_have_columns_of_the_same_types() -> None:
    empty = runner(summed)(TokenRows.of(pa.array([None, []], pa.list_(pa.int32()))))
    assert {name: values.type for name, values in empty.items()} == {
        name: values.type for name, values in runner(summed)(ROWS).items()
    }
    assert [values.null_count for values in empty.values()] == [2, 2]


def test_tensors_of_16_bits_become_numbers_of_32() -> None:
    torch = pytest.importorskip("torch")
    found = BatchRunner(lambda t: {"x": t.offsets.diff().to(torch.bfloat16), "n": t.offsets.diff()}, "cpu")(ROWS)
    assert (found["x"].type, found["n"].type) == (pa.float32(), pa.int32())
    assert found["x"].to_pylist() == [length or None for length in LENGTHS]
