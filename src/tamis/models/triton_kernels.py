"""Kernels for NVIDIA GPUs, in Triton, for states of tokens that follow each other without padding.

Import this module through :func:`tamis.models.row_kernels.row_kernels`, which says whether it works here.
"""

from __future__ import annotations

from typing import Any

import torch

from tamis.errors import MissingExtraError

try:
    import triton
    import triton.language as tl
except ImportError as e:  # PyTorch for CPUs comes without it
    raise MissingExtraError("kernels for NVIDIA GPUs", package="triton") from e

__all__ = ["add_norm", "check", "row_means"]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton has no types
def _add_norm(left, right, weight, bias, made, size, epsilon, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803 - Triton's custom for constants
    row = tl.program_id(0).to(tl.int64) * size
    place = tl.arange(0, BLOCK)
    inside = place < size
    total = tl.load(left + row + place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(right + row + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / size
    centred = tl.where(inside, total - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / size + epsilon)
    factor = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(made + row + place, (centred * scale * factor + shift).to(made.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton has no types
def _row_means(states, offsets, made, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803 - as above
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    start = tl.load(offsets + row).to(tl.int64)
    stop = tl.load(offsets + row + 1).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for token in range(start, stop):
        total += tl.load(states + token * size + place, mask=inside, other=0.0).to(tl.float32)
    count = tl.maximum(stop - start, 1).to(tl.float32)
    tl.store(made + row * size + place, total / count, mask=inside)


def add_norm(
    left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """The layer norm of the sum of two matrices, in one pass.

    Args:
        left, right: The matrices, a state in each row.
        weight, bias: Those of the norm.
        epsilon: What is added to the variance.
    """
    made = torch.empty_like(left)
    rows, size = left.shape
    if rows:
        block = triton.next_power_of_2(size)
        _add_norm[(rows,)](left, right, weight, bias, made, size, epsilon, BLOCK=block, num_warps=max(1, block // 256))
    return made


def row_means(states: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The mean of the states of each row, in 32 bits; tokens are added in their order, so it is always the same.

    Args:
        states: A state in each row of the matrix, for each token.
        offsets: Where the tokens of each row begin, and where the last ones end.
    """
    count, size = len(offsets) - 1, states.shape[1]
    made = torch.empty(count, size, dtype=torch.float32, device=states.device)
    if count:
        block = min(256, triton.next_power_of_2(size))
        _row_means[(count, triton.cdiv(size, block))](states, offsets, made, size, BLOCK=block, num_warps=2)
    return made


def check(device: str = "cuda") -> None:
    """Run the kernels once; raise if they fail or give other results than PyTorch."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(5, 96, generator=generator).to(device, torch.bfloat16) for _ in range(2))
    weight, bias = (torch.randn(96, generator=generator).to(device, torch.bfloat16) for _ in range(2))
    wide = [each.float() for each in (left, right, weight, bias)]
    expected: Any = torch.nn.functional.layer_norm(wide[0] + wide[1], (96,), wide[2], wide[3], 1e-5)
    _close(add_norm(left, right, weight, bias, 1e-5).float(), expected)
    offsets = torch.tensor([0, 2, 5], dtype=torch.int32, device=device)
    _close(row_means(left, offsets), torch.stack([wide[0][:2].mean(0), wide[0][2:].mean(0)]))


def _close(found: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.allclose(found, expected, rtol=0.02, atol=0.02):
        raise ArithmeticError("a Triton kernel gives other results than PyTorch on this GPU")
