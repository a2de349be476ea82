"""The layers of encoders like BERT, in fewer and larger steps than ``transformers`` takes them.

One product makes queries, keys and values; the activation is part of the product before it; a residual is added within
the norm. A layer moves a third of the memory then, which on a GPU is what keeps the matrix units waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tamis.models.row_kernels import row_kernels
from tamis.models.rows_attention import attend
from tamis.models.token_batches import TokenBatch

if TYPE_CHECKING:
    import torch

__all__ = ["FusedLayers"]

_GELU: Final = "gelu"
"""The activation that is part of a product on a GPU. The formula there differs from the exact one by less than 16 bits
can show."""


@dataclass(frozen=True)
class _Layer:
    """The weights of a layer, those of queries, keys and values in one matrix."""

    inward: tuple[Any, Any]
    across: tuple[Any, Any]
    widen: tuple[Any, Any]
    narrow: tuple[Any, Any]
    first_norm: Any
    second_norm: Any


class FusedLayers:
    """Runs an encoder that is built like BERT over rows without padding.

    Args:
        network: The network of ``transformers``. Its weights are shared where they need not be put together.
        position_padding: The padding token, for models whose positions begin after the one of that token.

    Raises:
        AttributeError: The network is built in another way. Networks that look alike but compute something else are not
            told apart: compare the results.
    """

    def __init__(self, network: Any, position_padding: int | None = None) -> None:
        self._embeddings, self._position_padding = network.embeddings, position_padding
        attention = network.encoder.layer[0].attention.self
        self._heads, self._head_size = int(attention.num_attention_heads), int(attention.attention_head_size)
        self._activation = network.encoder.layer[0].intermediate.intermediate_act_fn
        self._is_gelu = getattr(network.config, "hidden_act", None) == _GELU
        self._layers = [_layer(layer) for layer in network.encoder.layer]

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        """The state of each token after the last layer."""
        import torch

        positions = tokens.positions_from(self._position_padding)[None]
        states: torch.Tensor = self._embeddings(input_ids=tokens.ids[None], position_ids=positions)[0]
        for layer in self._layers:
            inward = torch.nn.functional.linear(states, *layer.inward).view(-1, 3, self._heads, self._head_size)
            query, key, value = inward.unbind(1)
            seen = attend(query, key, value, tokens.offsets, tokens.longest).reshape(states.shape)
            states = _normed(torch.nn.functional.linear(seen, *layer.across), states, layer.first_norm)
            made = torch.nn.functional.linear(self._widened(states, layer.widen), *layer.narrow)
            states = _normed(made, states, layer.second_norm)
        return states

    def _widened(self, states: torch.Tensor, layer: tuple[Any, Any]) -> torch.Tensor:
        import torch

        weight, bias = layer
        if self._is_gelu and states.is_cuda:
            found: torch.Tensor = torch._addmm_activation(bias, states, weight.t(), use_gelu=True)
            return found
        activated: torch.Tensor = self._activation(torch.nn.functional.linear(states, weight, bias))
        return activated


def _layer(layer: Any) -> _Layer:
    import torch

    attention, inward = layer.attention, [getattr(layer.attention.self, name) for name in ("query", "key", "value")]
    joined = torch.cat([each.weight for each in inward]), torch.cat([each.bias for each in inward])
    return _Layer(
        joined,
        _weights(attention.output.dense),
        _weights(layer.intermediate.dense),
        _weights(layer.output.dense),
        attention.output.LayerNorm,
        layer.output.LayerNorm,
    )


def _weights(linear: Any) -> tuple[Any, Any]:
    return linear.weight, linear.bias


def _normed(made: torch.Tensor, residual: torch.Tensor, norm: Any) -> torch.Tensor:
    kernels = row_kernels() if made.is_cuda else None
    if kernels is not None:
        found: torch.Tensor = kernels.add_norm(made, residual, norm.weight, norm.bias, norm.eps)
        return found
    plain: torch.Tensor = norm(made + residual)
    return plain
