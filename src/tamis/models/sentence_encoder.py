"""Turns rows of tokens into vectors with a transformer of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tamis.errors import ModelError
from tamis.models.encoder import Encoder, load_torch
from tamis.models.lengths import model_config
from tamis.models.model import Model
from tamis.models.sentence_layout import SentenceLayout, Step
from tamis.models.token_batches import TokenBatch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SentenceEncoder"]

_ENCODERS: Final = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Kinds of models of which only the first half is wanted, and the classes of ``transformers`` that load it."""


class SentenceEncoder:
    """Turns rows of tokens into vectors.

    Args:
        model: Where the model is.
        layout: What its folder says.
        device: ``"cpu"`` or ``"cuda"``.
        dtype: The transformer's numbers, as for :class:`~tamis.models.encoder.Encoder`. What follows has 32 bits.
        compile: Whether ``torch.compile`` makes the transformer faster.
    """

    def __init__(
        self,
        model: Model,
        layout: SentenceLayout,
        device: str = "",
        dtype: str = "auto",
        *,
        compile: bool = False,  # noqa: A002 - the name that PyTorch gives it
    ) -> None:
        torch = load_torch(f"the model {model.name}")
        kind = _ENCODERS.get(str(model_config(layout.transformer).get("model_type")), "AutoModel")
        self.encoder = Encoder(model, device, dtype, kind, compile=compile, folder=layout.transformer)
        self._pooling = layout.pooling
        self._steps = [_step(torch, model, step, self.encoder.device) for step in layout.steps]

    def __call__(self, tokens: TokenBatch) -> Tensor:
        """One vector per row, of 32-bit numbers."""
        torch = load_torch("a model")
        hidden = self.encoder(tokens)
        with torch.inference_mode():
            vectors: Any = torch.cat([tokens.pooled(hidden, kind) for kind in self._pooling], dim=1)
            for step in self._steps:
                vectors = step(vectors)
        found: Tensor = vectors
        return found


def _step(torch: Any, model: Model, step: Step, device: str) -> Callable[[Any], Any]:
    """What a step does to vectors, as a function."""
    functional = torch.nn.functional
    held = {name: torch.from_numpy(value.copy()).to(device) for name, value in step.weights.items()}
    if step.kind == "normalize":
        return lambda vectors: functional.normalize(vectors, dim=1)
    if step.kind == "norm":
        weight, bias = held["norm.weight"], held["norm.bias"]
        return lambda vectors: functional.layer_norm(vectors, weight.shape, weight, bias, step.epsilon)
    activation_class = getattr(torch.nn, step.activation, None)
    if activation_class is None:
        raise ModelError(f"the model {model.name} has a dense layer with {step.activation!r}, which PyTorch has not")
    activation = activation_class()

    def dense(vectors: Any) -> Any:
        made = activation(functional.linear(vectors, held["linear.weight"], held.get("linear.bias")))
        if not step.has_residual:
            return made
        across = held.get("residual.weight")
        return made + (vectors if across is None else functional.linear(vectors, across))

    return dense
