"""Guards: a language model with an adapter that answers prompts, or whose states a small network judges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import ModelError
from tamis.models.adapters import merge_adapter
from tamis.models.classification import RowScorer, Scorer, shared
from tamis.models.encoder import Encoder, best_device, load_torch
from tamis.models.model import Model
from tamis.models.published import fill, load_tensors
from tamis.models.token_batches import TokenBatch

if TYPE_CHECKING:
    import torch

__all__ = ["Answerer", "load_answerer", "load_state_judge", "shared_start"]

_LAYERS: Final = ("input_layer", "hidden_layer_0", "hidden_layer_1", "hidden_layer_2")


class Answerer:
    """A language model that answers prompts by its likeliest next tokens. Made by :func:`load_answerer`.

    What the prompts of a batch begin with in common is computed once for all of them.

    Args:
        network: The language model.
        tokenizer: The tokenizer of ``transformers`` that turns its tokens into text.
        device: Where the network is.
        max_new_tokens: The most tokens of an answer.
    """

    def __init__(self, network: Any, tokenizer: Any, device: str, max_new_tokens: int = 100) -> None:
        self.network, self.tokenizer = network, tokenizer
        self.device, self.max_new_tokens = device, max_new_tokens
        self._ends = _end_tokens(network, tokenizer)

    def __call__(self, tokens: TokenBatch) -> list[str]:
        """The answer to each prompt, as text."""
        torch = load_torch("a language model")
        ids, offsets = tokens.ids.cpu().numpy(), tokens.offsets.cpu().numpy()
        rows = [ids[start:stop] for start, stop in itertools.pairwise(offsets)]
        with torch.inference_mode():
            made = self._continue(rows)
        answers: list[str] = self.tokenizer.batch_decode(
            [row[: _end_of(row, self._ends)].tolist() for row in made], skip_special_tokens=True
        )
        return answers

    def _continue(self, rows: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """The likeliest next tokens of each row, until all rows have ended."""
        torch = load_torch("a language model")
        lengths = np.array([len(row) for row in rows])
        start = shared_start(rows)
        cache = None
        if start:
            prefix = torch.from_numpy(rows[0][:start].copy()).to(self.device)[None]
            cache = self.network(input_ids=prefix, use_cache=True, logits_to_keep=1).past_key_values
            cache.batch_repeat_interleave(len(rows))
        widest = int(lengths.max()) - start
        matrix = np.zeros((len(rows), widest), np.int64)
        seen = np.ones((len(rows), int(lengths.max())), np.int64)
        for number, row in enumerate(rows):  # the ends stand below each other: then all go on at the same place
            matrix[number, widest - (len(row) - start) :] = row[start:]
            seen[number, start : start + widest - (len(row) - start)] = 0
        mask = torch.from_numpy(seen).to(self.device)
        given = torch.from_numpy(matrix).to(self.device)
        places = (mask.cumsum(1) - 1)[:, start:].clamp(min=0)
        ends = torch.tensor(sorted(self._ends), device=self.device)
        has_ended = torch.zeros(len(rows), dtype=torch.bool, device=self.device)
        made = []
        for _ in range(self.max_new_tokens):
            result = self.network(
                input_ids=given,
                attention_mask=mask,
                position_ids=places,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = result.past_key_values
            given = result.logits[:, -1].argmax(dim=1, keepdim=True)
            made.append(given)
            has_ended |= torch.isin(given[:, 0], ends)
            if bool(has_ended.all()):
                break
            places = places[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(given)], dim=1)
        answers: NDArray[np.int64] = torch.cat(made, dim=1).cpu().numpy()
        return answers


def shared_start(rows: Sequence[NDArray[np.int64]]) -> int:
    """How many tokens all rows begin with in common, so that each has at least one more.

    >>> shared_start([np.array([1, 2, 3, 4]), np.array([1, 2, 5])]), shared_start([np.array([1, 2])])
    (2, 1)
    """
    shortest = min(len(row) for row in rows)
    heads = np.stack([row[:shortest] for row in rows])
    differ = np.flatnonzero((heads != heads[0]).any(axis=0))
    return min(int(differ[0]) if len(differ) else shortest, shortest - 1)


def load_answerer(base: Model, adapter: Model, device: str = "", dtype: str = "auto") -> Answerer:
    """A language model with an adapter, as :class:`Answerer`.

    Args:
        base: The language model.
        adapter: The adapter.
        device: ``"cpu"`` or ``"cuda"``; by default the GPU where there is one.
        dtype: Its numbers: ``"auto"`` for 16 bits on a GPU and 32 on a CPU, or a type of PyTorch by name.
    """
    device = device or best_device()

    def load() -> Answerer:
        network = _with_adapter(base, adapter, device, dtype)
        import transformers  # the network is of transformers, so it is there

        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(base.folder(), local_files_only=True)
        except (OSError, ValueError) as error:
            raise ModelError(f"the tokenizer of the model {base.name} cannot be loaded: {error}") from error
        return Answerer(network.to(device), tokenizer, device)

    answerer: Answerer = shared(load, device, [base, adapter], "answers", dtype)
    return answerer


def load_state_judge(base: Model, adapter: Model, judge: Model, device: str = "", dtype: str = "auto") -> Scorer:
    """A small network that judges the state of a language model after the last token of a text.

    The layout is that of ``nvidia/instruction-data-guard``: four linear layers, whose sizes are those of their tensors,
    after a normalisation of the state; the result is a number from 0 to 1.

    Args:
        base: The language model.
        adapter: Its adapter.
        judge: The small network.
        device, dtype: As for :func:`load_answerer`.
    """
    device = device or best_device()

    def load() -> RowScorer:
        layers, width = _judge_layers(judge)
        network = _with_adapter(base, adapter, device, dtype)
        if network.config.hidden_size != width:
            raise ModelError(
                f"the model {judge.name} judges states of {width} numbers, those of {base.name} have "
                f"{network.config.hidden_size}"
            )
        encoder = Encoder(base, device, dtype, network=network.base_model)
        return RowScorer(encoder, "last", lambda states: _judged(layers.to(device), states))

    scorer: Scorer = shared(load, device, [base, adapter, judge], "states", dtype)
    return scorer


def _judged(layers: Any, states: torch.Tensor) -> torch.Tensor:
    states = states / states.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    for layer in _LAYERS[:-1]:
        states = layers[layer](states).relu()
    made: torch.Tensor = layers[_LAYERS[-1]](states).sigmoid()
    return made


def _judge_layers(judge: Model) -> tuple[Any, int]:
    """The layers of a small network, and how many numbers a state has that it judges."""
    torch = load_torch(f"the model {judge.name}")
    tensors = load_tensors(judge)
    shapes = [tuple(tensors[f"{layer}.weight"].shape) for layer in _LAYERS if f"{layer}.weight" in tensors]
    if len(shapes) != len(_LAYERS):
        raise ModelError(f"the model {judge.name} does not have the layers {', '.join(_LAYERS)}")
    layers = {layer: torch.nn.Linear(shape[1], shape[0]) for layer, shape in zip(_LAYERS, shapes, strict=True)}
    return fill(torch.nn.ModuleDict(layers), tensors, judge), shapes[0][1]


def _with_adapter(base: Model, adapter: Model, device: str, dtype: str) -> Any:
    torch = load_torch(f"the model {base.name}")
    name = ("float32" if device == "cpu" else "bfloat16") if dtype == "auto" else dtype
    network = base.load("AutoModelForCausalLM", dtype=getattr(torch, name))
    merge_adapter(network, adapter)
    return network


def _end_tokens(network: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer."""
    named = getattr(network.generation_config, "eos_token_id", None)
    named = named if isinstance(named, list) else [named, tokenizer.eos_token_id]
    return frozenset(token for token in named if token is not None)


def _end_of(row: NDArray[np.int64], ends: frozenset[int]) -> int:
    found = np.flatnonzero(np.isin(row, list(ends)))
    return int(found[0]) if len(found) else len(row)
