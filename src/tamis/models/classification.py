"""Classifiers: transformers with a head on top, as they are published, that give numbers for each row of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tamis.errors import ModelError
from tamis.models.encoder import Encoder, load_torch
from tamis.models.model import Model
from tamis.models.published import build_backbone, fill, labels_of, load_tensors, read_config
from tamis.models.token_batches import TokenBatch, TokenRows

if TYPE_CHECKING:
    import torch

__all__ = ["RowScorer", "load_classifier", "load_heads", "load_sequence_classifier"]

_AGREES: Final = 0.05
"""How far scores with and without padding may differ, in 16 bits, for padding to be left out."""

Head = Callable[["torch.Tensor"], "torch.Tensor"]


@dataclass
class RowScorer:
    """A transformer, the part of its hidden states that counts, and a head that makes numbers of it.

    Args:
        encoder: The transformer.
        pooling: What of a row's hidden states the head is given: ``"first"``, ``"mean"`` or ``"last"``.
        head: Makes the outputs of a row.
    """

    encoder: Encoder
    pooling: str
    head: Head

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        """The outputs for each row, as 32-bit numbers: one row each."""
        torch = load_torch("a classifier")
        with torch.inference_mode():
            made: torch.Tensor = self.head(tokens.pooled(self.encoder(tokens), self.pooling)).float()
        return made


def load_classifier(model: Model, device: str = "", dtype: str = "auto") -> RowScorer:
    """A classifier with labels, as published: of the hub mixin's layout, or one that ``transformers`` loads.

    The layout has the backbone under ``model`` and a linear head ``fc`` for the first token.

    Args:
        model: Where it is.
        device: ``"cpu"`` or ``"cuda"``; by default the GPU where there is one.
        dtype: The numbers of the transformer, as for :class:`~tamis.models.encoder.Encoder`. Heads always have 32 bits.
    """
    config = read_config(model)
    labels = labels_of(config, model.name)
    if any(str(kind).endswith("ForSequenceClassification") for kind in config.get("architectures") or ()):
        return load_sequence_classifier(model, device, dtype, outputs=len(labels))
    torch = load_torch(f"the model {model.name}")
    backbone = build_backbone(config, model)
    parts = torch.nn.ModuleDict({"model": backbone, "fc": torch.nn.Linear(backbone.config.hidden_size, len(labels))})
    fill(parts, load_tensors(model), model)
    encoder = Encoder(model, device, dtype, network=parts["model"])
    return RowScorer(encoder, "first", parts["fc"].to(encoder.device, torch.float32))


def load_heads(model: Model, sizes: Sequence[int], device: str = "", dtype: str = "auto") -> RowScorer:
    """A network with several linear heads on the mean of its hidden states, whose outputs stand side by side.

    The layout has the transformer under ``backbone`` and the heads under ``head_0.fc``, ``head_1.fc`` and so on.

    Args:
        model: Where it is.
        sizes: How many outputs each head has.
        device, dtype: As for :func:`load_classifier`.
    """
    torch = load_torch(f"the model {model.name}")
    backbone = build_backbone(read_config(model), model)
    width = backbone.config.hidden_size
    heads = {f"head_{k}": torch.nn.ModuleDict({"fc": torch.nn.Linear(width, n)}) for k, n in enumerate(sizes)}
    parts = torch.nn.ModuleDict({"backbone": backbone, **heads})
    fill(parts, load_tensors(model), model)
    encoder = Encoder(model, device, dtype, network=parts["backbone"])
    layers = [parts[name]["fc"].to(encoder.device, torch.float32) for name in heads]
    return RowScorer(encoder, "mean", lambda pooled: torch.cat([layer(pooled) for layer in layers], dim=1))


def load_sequence_classifier(
    model: Model, device: str = "", dtype: str = "auto", outputs: int | None = None
) -> RowScorer:
    """A model that ``AutoModelForSequenceClassification`` loads.

    Args:
        model: Where it is.
        device, dtype: As for :func:`load_classifier`.
        outputs: How many outputs it must have; ``None`` for as many as it has.
    """
    torch = load_torch(f"the model {model.name}")
    whole = model.load("AutoModelForSequenceClassification", dtype=torch.float32)
    count = int(whole.config.num_labels)
    if outputs is not None and count != outputs:
        raise ModelError(f"the model {model.name} has {count} outputs, {outputs} are needed")
    encoder = Encoder(model, device, dtype, network=whole.base_model)
    _let_heads_have_32_bits(whole)
    whole.to(encoder.device)
    return _SequenceScorer.of(whole, encoder)


@dataclass
class _SequenceScorer(RowScorer):
    """A classifier of ``transformers``. Where rows need padding, all of its own code runs."""

    whole: Any

    @classmethod
    def of(cls, whole: Any, encoder: Encoder) -> RowScorer:
        head = _head_of(whole)
        if head is None:
            encoder.is_padded = True
        scorer = cls(encoder, "first", head or _no_head, whole)
        if not encoder.is_padded:
            tokens = _some_tokens(encoder)
            with_padding, without = scorer._whole(tokens), RowScorer.__call__(scorer, tokens)
            spread = float(with_padding.abs().max().clamp(min=1.0))
            encoder.is_padded = not bool((with_padding - without).abs().max() <= _AGREES * spread)
        return scorer

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        return self._whole(tokens) if self.encoder.is_padded else super().__call__(tokens)

    def _whole(self, tokens: TokenBatch) -> torch.Tensor:
        torch = load_torch("a classifier")
        ids, mask = tokens.padded(self.encoder.pad)
        with torch.inference_mode():
            made: torch.Tensor = self.whole(input_ids=ids, attention_mask=mask.long()).logits.float()
        return made


def _head_of(whole: Any) -> Head | None:
    """What makes the outputs of the first token's hidden state, for the layouts of BERT and RoBERTa; else ``None``."""
    classifier = getattr(whole, "classifier", None)
    pooler = getattr(whole.base_model, "pooler", None)
    if classifier is None:
        return None

    def head(first: torch.Tensor) -> torch.Tensor:
        states = first[:, None]
        made: torch.Tensor = classifier(states if pooler is None else pooler(states))
        return made

    return head


def _let_heads_have_32_bits(whole: Any) -> None:
    """Compute what stands on the transformer with 32 bits: the scores would be too coarse for thresholds otherwise."""
    heads = [child for child in whole.children() if child is not whole.base_model]
    pooler = getattr(whole.base_model, "pooler", None)
    for head in [*heads, *([] if pooler is None else [pooler])]:
        head.float()
        head.register_forward_pre_hook(lambda _, given: tuple(_widened(one) for one in given))


def _widened(value: Any) -> Any:
    torch = load_torch("a classifier")
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _no_head(first: torch.Tensor) -> torch.Tensor:
    raise AssertionError("only a model that runs as a whole has no head")


def _some_tokens(encoder: Encoder) -> TokenBatch:
    """Rows of different lengths, to try a model with."""
    rng = np.random.default_rng(0)
    offsets = np.array([0, 3, 20, 29])
    size = int(encoder.config.vocab_size)
    ids = rng.integers(0, size, 29).astype(np.int32)
    ids[ids == encoder.pad] = (encoder.pad + 1) % size
    return TokenBatch.of(TokenRows(ids, offsets), encoder.device)
