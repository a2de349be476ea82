"""The nearest centre of each vector on an NVIDIA GPU, in Triton: products are looked at where they are made.

A matrix of all products takes longer to write and to read again than to compute.
"""

from __future__ import annotations

import functools
import logging

import torch
import triton  # PyTorch for CPUs comes without it
import triton.language as tl

__all__ = ["nearest_halves", "works"]

_ROWS, _CELLS, _PLACES = 128, 128, 64


@triton.jit(do_not_specialize=["count", "clusters"])  # type: ignore[untyped-decorator, unused-ignore]  # Triton has no types
def _nearest(  # type: ignore[no-untyped-def]
    rows,
    centres,
    less,
    homes,
    several,
    count,
    clusters,
    size,
    error,
    ROWS: tl.constexpr,  # noqa: N803 - Triton's custom for constants
    CELLS: tl.constexpr,  # noqa: N803 - as above
    PLACES: tl.constexpr,  # noqa: N803 - as above
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    from_row = rows + row.to(tl.int64)[:, None] * size
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    second = tl.full((ROWS,), float("-inf"), tl.float32)
    home = tl.zeros((ROWS,), tl.int32)
    for first in range(0, clusters, CELLS):
        cell = first + tl.arange(0, CELLS)
        scores = tl.zeros((ROWS, CELLS), tl.float32)
        for start in range(0, size, PLACES):
            place = start + tl.arange(0, PLACES)
            inside = place < size
            left = tl.load(from_row + place[None, :], mask=(row < count)[:, None] & inside[None, :], other=0.0)
            from_cell = centres + cell[None, :] * size + place[:, None]
            right = tl.load(from_cell, mask=(cell < clusters)[None, :] & inside[:, None], other=0.0)
            scores = tl.dot(left, right, scores)
        scores -= tl.load(less + cell, mask=cell < clusters, other=float("inf"))[None, :]
        top = tl.max(scores, axis=1)
        number = tl.argmax(scores, axis=1)
        others = tl.where(tl.arange(0, CELLS)[None, :] == number[:, None], float("-inf"), scores)
        second = tl.maximum(tl.minimum(best, top), tl.maximum(second, tl.max(others, axis=1)))
        home = tl.where(top > best, first + number.to(tl.int32), home)
        best = tl.maximum(best, top)
    tl.store(homes + row, home.to(tl.int64), mask=row < count)
    tl.store(several + row, second >= best - error, mask=row < count)


def nearest_halves(
    rows: torch.Tensor, centres: torch.Tensor, less: torch.Tensor, error: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The centre with the largest product with each row less a number, and whether others come near to it.

    Args:
        rows, centres: Matrices of 16-bit numbers.
        less: A 32-bit number for each centre.
        error: Centres whose score is smaller by no more than this count as near.
    """
    homes = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    several = torch.empty(len(rows), dtype=torch.bool, device=rows.device)
    if len(rows):
        _nearest[(triton.cdiv(len(rows), _ROWS),)](
            rows, centres, less, homes, several, len(rows), len(centres), rows.shape[1], error,
            ROWS=_ROWS, CELLS=_CELLS, PLACES=_PLACES, num_warps=8, num_stages=3,
        )  # fmt: skip
    return homes, several


@functools.cache
def works(device: str = "cuda") -> bool:
    """Whether the kernel can be compiled here and says what PyTorch says; if not, PyTorch does the work."""
    try:
        _check(device)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it: PyTorch does the same, more slowly
        logging.getLogger("tamis").info("nearest centres are found without Triton's kernel: %s", error)
        return False
    return True


def _check(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, centres = (torch.randn(n, 80, generator=generator).half() for n in (300, 201))
    less, error = centres.float().square().sum(dim=1) / 2, 1.0
    scores = rows.double() @ centres.double().T - less
    top = scores.topk(2, dim=1)
    gap = top.values[:, 0] - top.values[:, 1]
    made = nearest_halves(rows.to(device), centres.to(device), less.to(device), error)
    homes, several = (found.cpu() for found in made)
    if not torch.equal(homes[gap > 0.01], top.indices[:, 0][gap > 0.01]):
        raise ArithmeticError("it finds other centres")
    if not (several[gap < error - 0.01].all() and not several[gap > error + 0.01].any()):
        raise ArithmeticError("it takes other centres for near")
