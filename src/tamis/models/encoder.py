"""Runs a transformer over rows of tokens without padding, where the model and the device allow it.

Most models of ``transformers`` take their attention from a table of functions. There a function is registered that lets
each token see the tokens of its own row only, with PyTorch's attention for rows of different lengths. So rows need no
padding, and a batch takes as long as its tokens, not as its longest row. A model that does not use the table, or that
gives other results that way (which is tried when it is loaded), gets padded rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tamis.errors import MissingExtraError
from tamis.models.model import Model
from tamis.models.token_batches import TokenBatch, TokenRows

if TYPE_CHECKING:
    import torch

__all__ = ["Encoder", "best_device", "load_torch"]

_ATTENTION: Final = "tamis_rows"
_AGREES: Final = 0.999
"""The least cosine of hidden states with and without padding for padding to be left out."""


def load_torch(what: str) -> Any:
    """PyTorch, or an error that says what to install."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(what, package="torch", extra="models") from error
    return torch


def best_device(gpu_ids: tuple[int, ...] = ()) -> str:
    """The device for a model: a GPU of this worker where there is one, else the CPU.

    >>> best_device() in ("cpu", "cuda:0", "cuda")
    True
    """
    torch = load_torch("a model")
    if not torch.cuda.is_available():
        return "cpu"
    return "cuda"  # a worker sees its own cards only


class Encoder:
    """A transformer that turns rows of tokens into hidden states.

    Args:
        model: Where it is.
        device: ``"cpu"`` or ``"cuda"``.
        dtype: Its numbers: ``"auto"`` for 16 bits on a GPU and 32 on a CPU, or a type of PyTorch by name.
        kind: The class of ``transformers`` that loads it.
        network: The transformer itself, where it was loaded already.
        settings: More arguments for the class that loads it.
    """

    def __init__(
        self,
        model: Model,
        device: str = "",
        dtype: str = "auto",
        kind: str = "AutoModel",
        network: Any = None,
        **settings: Any,
    ) -> None:
        torch = load_torch(f"the model {model.name}")
        self.device = device or best_device()
        numbers = getattr(torch, ("bfloat16" if self.device != "cpu" else "float32") if dtype == "auto" else dtype)
        loaded = model.load(kind, dtype=numbers, **settings) if network is None else network
        self.network = loaded.to(self.device, numbers)
        self.config = self.network.config
        self.pad = int(self.config.pad_token_id or 0)
        self.is_padded = self.device == "cpu" or not self._works_without_padding()

    @property
    def most_tokens(self) -> int:
        """The most tokens of a row that the model has positions for."""
        places = getattr(self.config, "max_position_embeddings", None) or 2**20
        return int(places) - self._first_position()

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        """The hidden state of each token after the last layer, rows one after the other."""
        torch = load_torch("a model")
        with torch.inference_mode():
            return self._padded(tokens) if self.is_padded else self._unpadded(tokens)

    def _padded(self, tokens: TokenBatch) -> torch.Tensor:
        ids, mask = tokens.padded(self.pad)
        hidden: torch.Tensor = self.network(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        return hidden[mask]

    def _unpadded(self, tokens: TokenBatch) -> torch.Tensor:
        positions = tokens.positions[None] + self._first_position()
        with _attention_within(self.network):
            hidden: torch.Tensor = self.network(
                input_ids=tokens.ids[None],
                position_ids=positions,
                cu_seq_lens_q=tokens.offsets,
                cu_seq_lens_k=tokens.offsets,
                max_length_q=tokens.longest,
                max_length_k=tokens.longest,
            ).last_hidden_state
        return hidden[0]

    def _first_position(self) -> int:
        """The number of the first position: RoBERTa and its kin begin after the one of the padding token."""
        embeddings = getattr(self.network, "embeddings", None)
        has_padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None) is not None
        return self.pad + 1 if has_padding else 0

    def _works_without_padding(self) -> bool:
        """Try rows of different lengths both ways."""
        torch = load_torch("a model")
        rng = np.random.default_rng(0)
        lengths = np.array([3, 17, 9])
        ids = rng.integers(0, int(self.config.vocab_size), int(lengths.sum())).astype(np.int32)
        ids[ids == self.pad] = (self.pad + 1) % int(self.config.vocab_size)
        tokens = TokenBatch.of(TokenRows(ids, np.concatenate([[0], np.cumsum(lengths)])), self.device)
        try:
            _register(torch)
            with torch.inference_mode():
                one, other = self._padded(tokens).float(), self._unpadded(tokens).float()
        except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError):
            return False
        return bool(torch.nn.functional.cosine_similarity(one, other).min() >= _AGREES)


@contextlib.contextmanager
def _attention_within(network: Any) -> Iterator[None]:
    """Let the attention of a network see the tokens of a row only."""
    before = network.config._attn_implementation
    network.config._attn_implementation = _ATTENTION
    try:
        yield
    finally:
        network.config._attn_implementation = before


def _register(torch: Any) -> None:
    from torch.nn.attention.varlen import varlen_attn
    from transformers import AttentionInterface

    def rows_attention(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        scaling: float | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        offsets, longest = others["cu_seq_lens_q"], others["max_length_q"]
        query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
        size = (-1, 0) if getattr(module, "is_causal", False) else (-1, -1)
        made: Any = varlen_attn(
            *(query, key, value, offsets, offsets, longest, longest),
            scale=scaling,
            window_size=size,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return made[None], None

    AttentionInterface.register(_ATTENTION, rows_attention)
