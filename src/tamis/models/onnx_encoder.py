"""Turns rows of tokens into vectors with ONNX Runtime, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, ModelError
from tamis.models.model import Model
from tamis.models.sentence_layout import SentenceLayout, Step
from tamis.models.token_batches import TokenRows

__all__ = ["OnnxEncoder", "onnx_file"]

_FILES: Final = ("onnx/model.onnx", "model.onnx")
_TOKENS: Final = ("last_hidden_state", "token_embeddings")
_TYPES: Final = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}

_ACTIVATIONS: Final[dict[str, Any]] = {
    "Identity": lambda x: x,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}


def onnx_file(folder: str) -> Path | None:
    """The model of a folder in the format of ONNX, where there is one: ``model.onnx`` or ``onnx/model.onnx``."""
    return next((path for name in _FILES if (path := Path(folder) / name).is_file()), None)


class OnnxEncoder:
    """Turns rows of tokens into vectors.

    Args:
        model: Where the model is.
        layout: What its folder says.
        device: ``"cpu"`` or ``"cuda"``.
        threads: How many threads a worker has; ``None`` for all cores.
    """

    def __init__(self, model: Model, layout: SentenceLayout, device: str = "cpu", threads: int | None = None) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError(f"the model {model.name}", package="onnxruntime", extra="onnx") from error
        path = onnx_file(layout.transformer) or onnx_file(model.folder())
        if path is None:
            raise ModelError(f"the model {model.name} has no {' or '.join(_FILES)}: use backend='torch'")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 3
        wanted = ["CUDAExecutionProvider"] if device != "cpu" else []
        providers = [each for each in wanted if each in onnxruntime.get_available_providers()]
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, [*providers, "CPUExecutionProvider"])
        except Exception as error:  # it raises classes of its own for whatever is wrong with a file
            raise ModelError(f"{path} cannot be loaded: {error}") from error
        self._inputs = {each.name: _TYPES.get(each.type, np.int64) for each in self._session.get_inputs()}
        self._output = _output([each.name for each in self._session.get_outputs()], path)
        unknown = set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
        if "input_ids" not in self._inputs or unknown:
            raise ModelError(f"{path} takes {', '.join(self._inputs)}, which is not what a text encoder takes")
        bad = next((step.activation for step in layout.steps if step.activation not in _ACTIVATIONS), None)
        if bad is not None:
            raise ModelError(f"the model {model.name} has a dense layer with {bad!r}: use backend='torch'")
        self._layout, self._pad = layout, _pad(layout.transformer)

    def __call__(self, rows: TokenRows) -> NDArray[np.float32]:
        """One vector per row; no row may be empty."""
        ids, mask = _padded(rows, self._pad)
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
        }
        feed = {name: np.ascontiguousarray(given[name], kind) for name, kind in self._inputs.items()}
        found: NDArray[np.float32] = np.asarray(self._session.run([self._output], feed)[0], np.float32)
        if found.ndim == 2:
            return found  # the file has the pooling inside, and what follows
        hidden = found[mask.astype(np.bool_)]
        vectors = np.concatenate([_pooled(rows, hidden, kind) for kind in self._layout.pooling], axis=1)
        for step in self._layout.steps:
            vectors = _apply(step, vectors)
        return vectors


def _output(names: list[str], path: Path) -> str:
    """The output to use: vectors where the file has them, else the states of the tokens."""
    for name in ("sentence_embedding", *_TOKENS):
        if name in names:
            return name
    raise ModelError(f"{path} gives {', '.join(names)}: one of sentence_embedding, {', '.join(_TOKENS)} is needed")


def _pad(folder: str) -> int:
    path = Path(folder) / "config.json"
    return int(json.loads(path.read_text(encoding="utf-8")).get("pad_token_id") or 0) if path.is_file() else 0


def _padded(rows: TokenRows, pad: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = rows.lengths
    mask = np.arange(int(lengths.max(initial=0))) < lengths[:, None]
    ids = np.full(mask.shape, pad, np.int64)
    ids[mask] = rows.ids
    return ids, mask.astype(np.int64)


def _pooled(rows: TokenRows, hidden: NDArray[np.float32], pooling: str) -> NDArray[np.float32]:
    starts, lengths = rows.offsets[:-1], rows.lengths[:, None].astype(np.float32)
    if pooling == "cls":
        return hidden[starts]
    if pooling == "lasttoken":
        return hidden[rows.offsets[1:] - 1]
    if pooling == "max":
        return np.asarray(np.maximum.reduceat(hidden, starts, axis=0))
    weights = np.ones((len(hidden), 1), np.float32)
    if pooling == "weightedmean":
        weights = (np.arange(len(hidden)) - np.repeat(starts, rows.lengths) + 1).astype(np.float32)[:, None]
    sums = np.add.reduceat(hidden * weights, starts, axis=0)
    total = np.sqrt(lengths) if pooling == "mean_sqrt_len_tokens" else np.add.reduceat(weights, starts, axis=0)
    return np.asarray(sums / total, np.float32)


def _apply(step: Step, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    held = step.weights
    if step.kind == "normalize":
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))
    if step.kind == "norm":
        centred = vectors - vectors.mean(axis=1, keepdims=True)
        scale = np.sqrt(vectors.var(axis=1, keepdims=True) + step.epsilon)
        return np.asarray(centred / scale * held["norm.weight"] + held["norm.bias"])
    made: NDArray[np.float32] = _ACTIVATIONS[step.activation](
        vectors @ held["linear.weight"].T + held.get("linear.bias", np.float32(0))
    )
    if step.has_residual:
        across = held.get("residual.weight")
        made = made + (vectors if across is None else vectors @ across.T)
    return made
