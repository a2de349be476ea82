"""Attention for rows of different lengths that follow each other without padding.

``transformers`` looks its attention up in a table of functions. :func:`register` adds one that lets each token see the
tokens of its own row only: with PyTorch's attention for rows of different lengths on a GPU, and with one call for each
run of equally long rows on a CPU (rows are sorted by length, so there are few runs).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

__all__ = ["ROWS_ATTENTION", "attend", "register"]

ROWS_ATTENTION: Final = "tamis_rows"
"""The name of the function in the table of ``transformers``."""

_NOT_HERE: Final = ("softcap", "position_bias", "s_aux", "head_mask")
"""What some models ask of their attention, and what it does not do: they get padded rows."""


def register() -> None:
    """Add the function to the table. It stays there; models that do not name it are not affected."""
    from transformers import AttentionInterface

    AttentionInterface.register(ROWS_ATTENTION, _rows_attention)


def _rows_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention over all rows: ``(1, heads, tokens, size)`` in, ``(1, tokens, heads, size)`` out."""
    asked = [name for name in _NOT_HERE if others.get(name) is not None]
    if asked:
        raise NotImplementedError(f"attention without padding has no {asked[0]}")
    is_causal = bool(others.get("is_causal") or getattr(module, "is_causal", False))
    window: int | None = others.get("sliding_window")
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    made = attend(
        *(query, key, value, others["cu_seq_lens_q"], others["max_length_q"]),
        scaling=scaling,
        window=window,
        is_causal=is_causal,
    )
    return made[None], None


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    offsets: torch.Tensor,
    longest: int,
    *,
    scaling: float | None = None,
    window: int | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """Attention of rows that follow each other: ``(tokens, heads, size)`` in and out.

    Args:
        query, key, value: Those of all tokens.
        offsets: Where each row begins, and where the last one ends.
        longest: How many tokens the longest row has.
        scaling: The factor of products; one over the root of the size when not given.
        window: How many tokens, itself included, a token sees to each side; all when not given.
        is_causal: Whether a token sees earlier ones only.
    """
    if query.device.type == "cpu":
        return _on_cpu(query, key, value, offsets.tolist(), scaling, window, is_causal=is_causal)
    from torch.nn.attention.varlen import varlen_attn

    # What is as the function has it anyway is not said: its arguments differ between releases of PyTorch.
    asked: dict[str, Any] = {}
    if scaling is not None and not math.isclose(scaling, query.shape[2] ** -0.5):
        asked["scale"] = scaling
    if window is not None or is_causal:
        before = -1 if window is None else window - 1
        asked["window_size"] = (before, 0 if is_causal else before)
    if query.shape[1] != key.shape[1]:
        if "enable_gqa" in _parameters(varlen_attn):
            asked["enable_gqa"] = True
        else:  # before PyTorch 2.12
            key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
    made: Any = varlen_attn(query, key, value, offsets, offsets, longest, longest, **asked)
    found: torch.Tensor = made
    return found


@functools.cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _on_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    offsets: list[int],
    scaling: float | None,
    window: int | None,
    *,
    is_causal: bool,
) -> torch.Tensor:
    import torch

    made = torch.empty(query.shape[0], query.shape[1], value.shape[2], dtype=value.dtype)
    start = 0
    for length, run in itertools.groupby(stop - start for start, stop in itertools.pairwise(offsets)):
        count = sum(1 for _ in run)
        rows = slice(start, start + count * length)
        start = rows.stop
        if not length:
            continue
        one, two, three = (
            each[rows].view(count, length, *each.shape[1:]).transpose(1, 2) for each in (query, key, value)
        )
        mask = _band(length, window, is_causal=is_causal) if window is not None and length >= window else None
        found = torch.nn.functional.scaled_dot_product_attention(
            *(one, two, three),
            attn_mask=mask,
            is_causal=is_causal and mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        made[rows] = found.transpose(1, 2).reshape(count * length, *made.shape[1:])
    return made


def _band(length: int, window: int, *, is_causal: bool) -> torch.Tensor:
    """Which tokens of a row see which: those less than a window away, and only earlier ones if it is causal."""
    import torch

    places = torch.arange(length)
    distance = places[:, None] - places
    return (distance < window) & (distance >= (0 if is_causal else 1 - window))
