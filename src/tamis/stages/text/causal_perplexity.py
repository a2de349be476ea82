"""A stage for the perplexity of texts under a causal language model."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import PlanError
from tamis.models.encoder import load_torch
from tamis.models.model import Model
from tamis.stages.text.models.model import ModelStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import torch

    from tamis.models.token_batches import TokenBatch

__all__ = ["CausalPerplexity"]

_LOSS: Final = "_loss"
_TOKENS: Final = "_predicted"
_LOGIT_BYTES: Final = {"cpu": 1 << 28, "cuda": 1 << 32}
"""How much memory the outputs of a batch may take, a number for each token and each word of the vocabulary."""

_LARGEST_LOSS: Final = 700.0
_NO_TOKENS: Final = "too short for a perplexity"

_LOADED: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_LOADING: Final = threading.Lock()


@dataclass(repr=False)
class CausalPerplexity(ModelStage):
    """Add the perplexity of each document under a causal language model; keep those within bounds, if there are any.

    The perplexity is the exponential of the mean loss of all tokens but the first, as ``transformers`` computes it for
    the document alone. Documents are put into batches of a number of tokens. A document with fewer than two tokens has
    no perplexity; if there are bounds, it is dropped.

    Args:
        model: The model: a name on the Hugging Face hub, a folder, or a :class:`~tamis.models.model.Model` with more
            settings.
        text_field, max_chars, max_seq_length, batch_tokens, dtype, compile: As for
            :class:`~tamis.stages.text.models.model.ModelStage`. Of a longer document the beginning is scored.
        keep_tokens, use_existing_tokens, resources: As for that stage.
        perplexity_field: The column for the perplexity.
        loss_field: A column for the mean loss of a token; none when not given.
        max_perplexity: The highest perplexity that is kept; no limit when not given.
        min_perplexity: The lowest one; no limit when not given.

    >>> CausalPerplexity("organisation/name", loss_field="loss").outputs()[1]
    ['perplexity', 'loss']
    """

    perplexity_field: str = "perplexity"
    loss_field: str | None = None
    max_perplexity: float | None = None
    min_perplexity: float | None = None

    def __post_init__(self) -> None:
        low, high = self.min_perplexity, self.max_perplexity
        if low is not None and high is not None and low > high:
            raise PlanError(f"CausalPerplexity: no perplexity is at least {low} and at most {high}")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.perplexity_field, *([] if self.loss_field is None else [self.loss_field])]

    def adds_columns(self) -> list[str]:
        return self.outputs()[1]

    def load(self, device: str) -> None:
        torch = load_torch("CausalPerplexity")
        wanted = self.dtype if self.dtype != "auto" else "float32" if device == "cpu" else "bfloat16"
        numbers = getattr(torch, wanted, None)
        if not isinstance(numbers, torch.dtype) or not numbers.is_floating_point:
            raise PlanError(f"CausalPerplexity(dtype={self.dtype!r}): give 'auto', 'float32', 'bfloat16' or 'float16'")
        self._network = _network(self.source, device, numbers)
        self._run = torch.compile(self._network) if self.compile else self._network
        if self.batch_tokens is None:
            width = self._network.get_output_embeddings().weight.shape[0] * self._network.dtype.itemsize
            self.batch_tokens = max(256, _LOGIT_BYTES["cpu" if device == "cpu" else "cuda"] // width)

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        import torch
        from torch.nn.functional import cross_entropy

        ids, mask = tokens.padded()
        with torch.inference_mode():
            logits = self._run(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
            lengths = mask.sum(dim=1).tolist()
            losses: list[torch.Tensor] = []
            for row, length in enumerate(lengths):  # row by row, so that no second copy of all outputs is made
                found = cross_entropy(logits[row, : length - 1].float(), ids[row, 1:length], reduction="sum")
                losses.append(found.double())
        return {_LOSS: torch.stack(losses), _TOKENS: tokens.offsets.diff() - 1}

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        counts = _numbers(columns[_TOKENS])
        missing = counts < 1
        loss = _numbers(columns[_LOSS]) / np.maximum(counts, 1)
        perplexity = np.exp(np.minimum(loss, _LARGEST_LOSS))
        found = {self.perplexity_field: arrow_array(perplexity, missing=missing)}
        if self.loss_field is not None:
            found[self.loss_field] = arrow_array(loss, missing=missing)
        made = batch.with_columns(found)
        low, high = self.min_perplexity, self.max_perplexity
        if low is None and high is None:
            return made
        if missing.any():
            made, perplexity = made.keep(~missing, _NO_TOKENS), perplexity[~missing]
        if high is not None:
            kept = perplexity <= high
            made, perplexity = made.keep(kept, f"{self.perplexity_field} > {high:g}", perplexity), perplexity[kept]
        if low is not None:
            made = made.keep(perplexity >= low, f"{self.perplexity_field} < {low:g}", perplexity)
        return made


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """A column as numbers; 0 for a null."""
    import pyarrow.compute as pc

    return np.asarray(numpy_array(pc.fill_null(column.cast(pa.float64()), 0.0)), np.float64)


def _network(model: Model, device: str, dtype: torch.dtype) -> Any:
    """The model. The threads of a process share one on the CPU: it is only read."""
    if device != "cpu":
        return model.load("AutoModelForCausalLM", dtype=dtype).to(device)
    with _LOADING:
        key = (model, model.folder(), dtype)
        found = _LOADED.get(key)
        if found is None:
            found = _LOADED[key] = model.load("AutoModelForCausalLM", dtype=dtype)
        return found
