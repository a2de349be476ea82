"""Runs a transformer over rows of tokens without padding, where the model allows it.

Rows need no padding where each token can be made to see the tokens of its own row only (``rows_attention.py``). Then a
batch takes as long as its tokens, not as its longest row. Each model is tried that way when it is loaded; one that
gives other results than for each row by itself gets padded rows, and one that padding changes as well (a convolution
over tokens, a Fourier transform) gets rows of one length at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tamis.errors import MissingExtraError, ModelError
from tamis.models.fused_layers import FusedLayers
from tamis.models.model import Model
from tamis.models.packed_linear import pack_linears
from tamis.models.rows_attention import ROWS_ATTENTION, register
from tamis.models.token_batches import TokenBatch, TokenRows

if TYPE_CHECKING:
    import torch

__all__ = ["Encoder", "best_device", "load_torch", "number_type", "sample_rows", "shared_network", "torch_threads"]

_AGREES: Final = {2: 0.999, 4: 0.99999}
"""The least cosine of hidden states with and without padding for padding to be left out, by bytes of a number."""

_LOADED: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
"""Networks on the CPU, which the threads of a process share: they are only read."""

_LOADING: Final = threading.Lock()

_CHANGED_BY_PADDING: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Networks that compute something else for a row that is padded."""


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


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let PyTorch compute with so many threads meanwhile; ``None`` leaves the number, which is that of the calling
    thread.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch = importlib.import_module("torch")  # another thread may be importing it: this waits for the end
    before = None if torch is None or count is None else torch.get_num_threads()
    if torch is None or before in (None, count):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def shared_network(place: str, settings: tuple[Any, ...], load: Callable[[], Any]) -> Any:
    """A network on the CPU that is loaded once for all threads of the process.

    Args:
        place: The folder with its files: when they change, it is loaded again.
        settings: What else it depends on.
        load: Loads it.
    """
    key = (place, _changed_ns(place), *settings)
    with _LOADING:
        network = _LOADED.get(key)
        if network is None:
            network = _LOADED[key] = load()
        return network


class Encoder:
    """A transformer that turns rows of tokens into hidden states.

    Args:
        model: Where it is.
        device: ``"cpu"`` or ``"cuda"``.
        dtype: Its numbers: ``"auto"`` for 16 bits on a GPU and 32 on a CPU, or a type of PyTorch by name. On a CPU
            ``"bfloat16"`` is used for the linear layers only: twice as fast on processors that multiply such numbers.
        kind: The class of ``transformers`` that loads it.
        compile: Whether ``torch.compile`` makes it faster.
        folder: The folder with the transformer, where it is not the model's own.
        network: The transformer itself, where it was loaded already. It is changed.
        settings: More arguments for the class that loads it.

    Attributes:
        network: The network of ``transformers``.
        is_padded: Whether rows are padded, or of one length at a time.
        has_equal_lengths: Whether rows are of one length at a time.
        is_fused: Whether its layers are those of :class:`~tamis.models.fused_layers.FusedLayers`.
    """

    def __init__(
        self,
        model: Model,
        device: str = "",
        dtype: str = "auto",
        kind: str = "AutoModel",
        *,
        compile: bool = False,  # noqa: A002 - the name that PyTorch gives it
        folder: str | None = None,
        network: Any = None,
        **settings: Any,
    ) -> None:
        torch = load_torch(f"the model {model.name}")
        self.device, self._name = device or best_device(), model.name
        numbers = number_type(torch, dtype, self.device)
        place = folder or model.folder()
        key = (place, _changed_ns(place), str(numbers), kind, repr(sorted(settings.items())))
        with _LOADING:
            self.network = _LOADED.get(key) if self.device == "cpu" and network is None else None
            if network is not None:
                self.network = _prepared(model, network, self.device, numbers)
            elif self.network is None:
                self.network = _load(model, self.device, numbers, kind, folder, settings)
                _LOADED[key] = self.network
        self.config = self.network.config
        self.pad = _pad(self.config)
        self.is_padded = self.config._attn_implementation != ROWS_ATTENTION
        self.has_equal_lengths = self.network in _CHANGED_BY_PADDING
        self._most_tokens = self.most_tokens
        self._call: Callable[..., Any] = torch.compile(self.network, dynamic=True) if compile else self.network
        self._fused = None if compile or self.is_padded else _fused(self.network, self.device, numbers)

    @property
    def is_fused(self) -> bool:
        return self._fused is not None

    @property
    def most_tokens(self) -> int | None:
        """The most tokens of a row that the model has positions for; ``None`` if any number."""
        places = _position_table(self.network)
        return None if places is None else int(places.num_embeddings) - _first_position(self.network)

    def __call__(self, tokens: TokenBatch) -> torch.Tensor:
        """The hidden state of each token after the last layer, rows one after the other."""
        torch = load_torch("a model")
        if self._most_tokens is not None and tokens.longest > self._most_tokens:
            raise ModelError(
                f"a row has {tokens.longest:,} tokens, and the model {self._name} has positions for "
                f"{self._most_tokens:,}: give max_seq_length={self._most_tokens}, or less"
            )
        with torch.inference_mode():
            if self._fused is not None:
                return self._fused(tokens)
            if not self.is_padded:
                return _unpadded(self._call, tokens, self.network)
            return _by_length(self._call, tokens) if self.has_equal_lengths else _padded(self._call, tokens, self.pad)


def _changed_ns(folder: str) -> int:
    """When the files of a folder were last changed."""
    return max((entry.stat().st_mtime_ns for entry in os.scandir(folder)), default=0)


def number_type(torch: Any, dtype: str, device: str) -> Any:
    """The type of PyTorch that a name stands for; ``"auto"`` is 16 bits on a GPU and 32 on a CPU."""
    name = ("bfloat16" if device != "cpu" else "float32") if dtype == "auto" else dtype
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(f"dtype={dtype!r}: give 'auto', 'float32', 'bfloat16' or 'float16'")
    return found


def _load(model: Model, device: str, numbers: Any, kind: str, folder: str | None, settings: dict[str, Any]) -> Any:
    torch = load_torch(f"the model {model.name}")
    own = _own_numbers(torch, device, numbers)
    return _prepared(model, model.load(kind, folder=folder, dtype=own, **settings), device, numbers)


def _own_numbers(torch: Any, device: str, numbers: Any) -> Any:
    """The numbers of all that is not a linear layer."""
    return torch.float32 if device == "cpu" and numbers == torch.bfloat16 else numbers


def _prepared(model: Model, network: Any, device: str, numbers: Any) -> Any:
    """A network on its device, without padding if that gives the same results."""
    torch = load_torch(f"the model {model.name}")
    own = _own_numbers(torch, device, numbers)
    network = network.to(device, own)
    network.requires_grad_(requires_grad=False)
    if getattr(network.config, "use_cache", False):
        network.config.use_cache = False
    tokens = sample_rows(network, device)
    with torch.inference_mode():
        expected, least = _by_length(network, tokens).float(), _AGREES[own.itemsize]
        register()
        before = network.config._attn_implementation
        network.config._attn_implementation = ROWS_ATTENTION
        if not _agrees(torch, expected, lambda: _unpadded(network, tokens, network), least):
            network.config._attn_implementation = before
            if not _agrees(torch, expected, lambda: _padded(network, tokens, _pad(network.config)), least):
                _CHANGED_BY_PADDING.add(network)
        return _packed(torch, model, network, numbers, tokens, expected) if device == "cpu" else network


def _fused(network: Any, device: str, numbers: Any) -> FusedLayers | None:
    """The layers of a network in fewer steps, on a GPU with numbers of 16 bits, if they compute the same."""
    if device == "cpu" or numbers.itemsize != 2:
        return None
    torch = load_torch("a model")
    tokens = sample_rows(network, device)
    with torch.inference_mode():
        try:
            fused = FusedLayers(network, _position_padding(network))
        except (AttributeError, IndexError, TypeError):  # it is not built like BERT
            return None
        expected = _unpadded(network, tokens, network).float()
        return fused if _agrees(torch, expected, lambda: fused(tokens), _AGREES[2]) else None


def _packed(torch: Any, model: Model, network: Any, numbers: Any, tokens: TokenBatch, expected: Any) -> Any:
    """The network with packed linear layers, if it computes the same with them."""
    is_whole = network.config._attn_implementation != ROWS_ATTENTION
    children = [(module, name, child) for module in network.modules() for name, child in module.named_children()]
    pack_linears(network, numbers)

    def compute() -> Any:
        return _by_length(network, tokens) if is_whole else _unpadded(network, tokens, network)

    if not _agrees(torch, expected, compute, _AGREES[numbers.itemsize]):
        for module, name, child in children:
            setattr(module, name, child)
        if numbers != torch.float32:
            raise ModelError(
                f"the model {model.name} gives other results with dtype={str(numbers).removeprefix('torch.')!r} on "
                "this processor: use 'float32'"
            )
    return network


def _agrees(torch: Any, expected: Any, compute: Callable[[], Any], least: float) -> bool:
    """Whether another way to compute hidden states works, and gives the same ones."""
    try:
        found = compute().float()
    except (
        AttributeError,
        ImportError,
        IndexError,
        KeyError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ):
        return False
    return bool(torch.nn.functional.cosine_similarity(expected, found).min() >= least)


def sample_rows(network: Any, device: str) -> TokenBatch:
    """Rows to try a network with: of different lengths, one of them longer than the window of its attention."""
    config = network.config
    words, pad = int(config.vocab_size), _pad(config)
    windows = [getattr(config, name, None) for name in ("sliding_window", "local_attention")]
    longest = 2 * max([8, *(window for window in windows if isinstance(window, int))]) + 1
    places = _position_table(network)
    if places is not None:
        longest = min(longest, int(places.num_embeddings) - _first_position(network))
    lengths = np.array([max(1, longest // 5), longest, max(1, longest // 2)])
    ids = np.random.default_rng(0).integers(0, words, int(lengths.sum())).astype(np.int32)
    ids[ids == pad] = (pad + 1) % words
    return TokenBatch.of(TokenRows(ids, np.concatenate([[0], np.cumsum(lengths)])), device)


def _padded(network: Callable[..., Any], tokens: TokenBatch, pad: int) -> torch.Tensor:
    ids, mask = tokens.padded(pad)
    hidden: torch.Tensor = network(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    return hidden[mask]


def _by_length(network: Callable[..., Any], tokens: TokenBatch) -> torch.Tensor:
    """The states of rows that are computed with others of their length only."""
    made: list[Any] = []
    for rows in tokens.runs():
        ids = rows.ids.view(rows.rows, rows.longest)
        made.append(network(input_ids=ids, attention_mask=ids.new_ones(ids.shape)).last_hidden_state.flatten(0, 1))
    import torch

    return torch.cat(made)


def _unpadded(call: Callable[..., Any], tokens: TokenBatch, network: Any) -> torch.Tensor:
    hidden: torch.Tensor = call(
        input_ids=tokens.ids[None],
        position_ids=tokens.positions_from(_position_padding(network))[None],
        cu_seq_lens_q=tokens.offsets,
        cu_seq_lens_k=tokens.offsets,
        max_length_q=tokens.longest,
        max_length_k=tokens.longest,
    ).last_hidden_state
    return hidden[0]


def _position_table(network: Any) -> Any:
    """The embeddings of positions, for models that have them."""
    return getattr(getattr(network, "embeddings", None), "position_embeddings", None)


def _position_padding(network: Any) -> int | None:
    """The padding token, for models whose positions begin after the one of that token: RoBERTa and its kin."""
    padding = getattr(_position_table(network), "padding_idx", None)
    return None if padding is None else int(padding)


def _first_position(network: Any) -> int:
    """The number of the first position."""
    padding = _position_padding(network)
    return 0 if padding is None else padding + 1


def _pad(config: Any) -> int:
    return int(getattr(config, "pad_token_id", None) or 0)
