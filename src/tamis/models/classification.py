"""Classifiers: transformers with a head on top, as they are published, that give numbers for each row of tokens."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tamis.errors import ModelError
from tamis.models.encoder import Encoder, best_device, load_torch, sample_rows
from tamis.models.model import Model
from tamis.models.published import build_backbone, fill, is_sequence_classifier, labels_of, load_tensors, read_config
from tamis.models.token_batches import TokenBatch

if TYPE_CHECKING:
    import torch

__all__ = ["RowScorer", "Scorer", "load_classifier", "load_heads", "load_sequence_classifier", "shared"]

_AGREES: Final = 1e-4

_SHARED: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_SHARING: Final = threading.Lock()


class Scorer(Protocol):
    """Gives the outputs for each row of tokens, as 32-bit numbers."""

    @property
    def vocab_size(self) -> int:
        """How many tokens it knows."""

    def __call__(self, tokens: TokenBatch) -> torch.Tensor: ...


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
    head: Callable[[torch.Tensor], torch.Tensor]

    @property
    def vocab_size(self) -> int:
        """How many tokens it knows."""
        return int(self.encoder.config.vocab_size)

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        """The outputs for each row: one row each."""
        torch = load_torch("a classifier")
        with torch.inference_mode():
            return self.head(tokens.pooled(self.encoder(tokens), self.pooling)).float()


def shared(load: Callable[[], Any], device: str, models: Sequence[Model], *key: Any) -> Any:
    """What ``load`` returns; on a CPU the threads of a process share it, because it is only read.

    Args:
        load: Loads it.
        device: ``"cpu"`` or ``"cuda"``.
        models: The models it is made of: if their files change, it is loaded again.
        key: What else it depends on.
    """
    if device != "cpu":
        return load()
    folders = [model.folder() for model in models]
    changed = [entry.stat().st_mtime_ns for folder in folders for entry in os.scandir(folder)]
    whole_key = (tuple(folders), max(changed, default=0), *key)
    with _SHARING:
        found = _SHARED.get(whole_key)
        if found is None:
            found = _SHARED[whole_key] = load()
    return found


def load_classifier(model: Model, device: str = "", dtype: str = "auto", *, compile: bool = False) -> Scorer:  # noqa: A002
    """A classifier with labels, as published: of the hub mixin's layout, or one that ``transformers`` loads.

    The layout has the backbone under ``model`` and a linear head ``fc`` for the first token.

    Args:
        model: Where it is.
        device: ``"cpu"`` or ``"cuda"``; by default the GPU where there is one.
        dtype: The numbers of the transformer, as for :class:`~tamis.models.encoder.Encoder`. Heads always have 32 bits.
        compile: Whether ``torch.compile`` makes the transformer faster.
    """
    device = device or best_device()
    config = read_config(model)
    labels = labels_of(config, model.name)
    if is_sequence_classifier(config):
        return load_sequence_classifier(model, device, dtype, outputs=len(labels), compile=compile)

    def load() -> RowScorer:
        torch = load_torch(f"the model {model.name}")
        backbone = build_backbone(config, model)
        head = torch.nn.Linear(backbone.config.hidden_size, len(labels))
        parts = fill(torch.nn.ModuleDict({"model": backbone, "fc": head}), load_tensors(model), model)
        encoder = Encoder(model, device, dtype, network=parts["model"], compile=compile)
        return RowScorer(encoder, "first", parts["fc"].to(device))

    scorer: Scorer = shared(load, device, [model], "labels", dtype, compile)
    return scorer


def load_heads(
    model: Model,
    sizes: Sequence[int],
    device: str = "",
    dtype: str = "auto",
    *,
    compile: bool = False,  # noqa: A002 - the name that PyTorch gives it
) -> Scorer:
    """A network with several linear heads on the mean of its hidden states, whose outputs stand side by side.

    The layout has the transformer under ``backbone`` and the heads under ``head_0.fc``, ``head_1.fc`` and so on.

    Args:
        model: Where it is.
        sizes: How many outputs each head has.
        device, dtype, compile: As for :func:`load_classifier`.
    """
    device = device or best_device()

    def load() -> RowScorer:
        torch = load_torch(f"the model {model.name}")
        backbone = build_backbone(read_config(model), model)
        width = backbone.config.hidden_size
        heads = {f"head_{k}": torch.nn.ModuleDict({"fc": torch.nn.Linear(width, n)}) for k, n in enumerate(sizes)}
        parts = fill(torch.nn.ModuleDict({"backbone": backbone, **heads}), load_tensors(model), model)
        encoder = Encoder(model, device, dtype, network=parts["backbone"], compile=compile)
        layers = [parts[name]["fc"].to(device) for name in heads]
        return RowScorer(encoder, "mean", lambda pooled: torch.cat([layer(pooled) for layer in layers], dim=1))

    scorer: Scorer = shared(load, device, [model], "heads", tuple(sizes), dtype, compile)
    return scorer


def load_sequence_classifier(
    model: Model,
    device: str = "",
    dtype: str = "auto",
    *,
    outputs: int | None = None,
    compile: bool = False,  # noqa: A002 - the name that PyTorch gives it
) -> Scorer:
    """A model that ``AutoModelForSequenceClassification`` loads.

    Args:
        model: Where it is.
        device, dtype, compile: As for :func:`load_classifier`.
        outputs: How many outputs it must have; ``None`` for as many as it has.
    """
    device = device or best_device()

    def load() -> Scorer:
        torch = load_torch(f"the model {model.name}")
        whole = model.load("AutoModelForSequenceClassification", whole=True, dtype=torch.float32)
        whole.requires_grad_(requires_grad=False)
        count = int(whole.config.num_labels)
        if outputs is not None and count != outputs:
            raise ModelError(f"the model {model.name} has {count} outputs, {outputs} are needed")
        head = _head_of(whole)
        if head is None:
            return _WholeScorer(whole, device, dtype)
        encoder = Encoder(model, device, dtype, network=whole.base_model, compile=compile)
        return RowScorer(encoder, "first", _Head([part.to(device, torch.float32) for part in head.parts]))

    scorer: Scorer = shared(load, device, [model], "sequence", outputs, dtype, compile)
    return scorer


class _Head:
    """Makes the outputs of a classifier of ``transformers`` of the hidden state of the first token.

    Args:
        parts: Modules that work one after the other.
    """

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __call__(self, first: torch.Tensor) -> torch.Tensor:
        states = first[:, None]
        for part in self.parts:
            states = part(states)
        return states.flatten(1)


def _head_of(whole: Any) -> _Head | None:
    """The head of a classifier that looks at the first token only: then its rows need no padding. Else ``None``."""
    torch = load_torch("a classifier")
    classifier = getattr(whole, "classifier", None)
    before = [[getattr(owner, "pooler", None)] for owner in (whole.base_model, whole)]
    before += [[getattr(whole, "pre_classifier", None), torch.nn.ReLU()], []]
    ids = torch.arange(12).reshape(2, 6) % int(whole.config.vocab_size)
    with torch.inference_mode():
        try:
            first = whole.base_model(input_ids=ids).last_hidden_state[:, 0]
            expected = torch.cat([whole(input_ids=row[None]).logits for row in ids])  # some take one row at a time
        except (IndexError, RuntimeError, ValueError):
            return None  # it wants more of its tokens, such as one that ends a text
        for parts in before:
            head = _Head([*parts, classifier])
            if all(part is not None for part in head.parts):
                try:
                    made = head(first)
                except (IndexError, RuntimeError, TypeError, ValueError):
                    continue  # it is put together in another way
                if made.shape == expected.shape and torch.allclose(made, expected, atol=_AGREES):
                    return head
    return None


class _WholeScorer:
    """A classifier of ``transformers`` that runs as a whole, over padded rows, or by itself for each row where padding
    changes what it says.

    Args:
        whole: The classifier, with 32-bit numbers.
        device: ``"cpu"`` or ``"cuda"``.
        dtype: The numbers of its transformer on a GPU.
    """

    def __init__(self, whole: Any, device: str, dtype: str) -> None:
        torch = load_torch("a classifier")
        self.whole, self.pad = whole.to(device), int(getattr(whole.config, "pad_token_id", None) or 0)
        self.vocab_size = int(whole.config.vocab_size)
        tokens = sample_rows(whole.base_model, device)
        with torch.inference_mode():
            try:
                together, alone = self._together(tokens), self._alone(tokens)
                self.pads = bool(torch.allclose(together, alone, rtol=_AGREES, atol=_AGREES))
            except (IndexError, RuntimeError, ValueError):  # it names no token to fill rows up with
                self.pads = False
        if device == "cpu":
            return
        for child in whole.children():
            if child is whole.base_model:
                child.to(getattr(torch, "bfloat16" if dtype == "auto" else dtype))
            else:  # scores of 16 bits would be too coarse for thresholds
                child.register_forward_pre_hook(lambda _, given: tuple(_widened(one) for one in given))

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        torch = load_torch("a classifier")
        with torch.inference_mode():
            return self._together(tokens) if self.pads else self._alone(tokens)

    def _together(self, tokens: TokenBatch) -> torch.Tensor:
        ids, mask = tokens.padded(self.pad)
        return self._outputs(ids, mask.long())

    def _alone(self, tokens: TokenBatch) -> torch.Tensor:
        library = load_torch("a classifier")
        rows = [row[None] for row in library.split(tokens.ids, tokens.offsets.diff().tolist())]
        found: torch.Tensor = library.cat([self._outputs(row, library.ones_like(row)) for row in rows])
        return found

    def _outputs(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.whole(input_ids=ids, attention_mask=mask).logits.float()
        return made


def _widened(value: Any) -> Any:
    torch = load_torch("a classifier")
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
