"""Small networks on top of embeddings of images: how pleasing an image is, and whether it is safe for work.

Both are a few matrices; a core computes them for tens of thousands of embeddings per second, so they need no GPU and no
PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, ModelError

__all__ = ["AESTHETIC_WIDTHS", "NSFW_WIDTHS", "EmbeddingHead", "load_aesthetic_head", "load_nsfw_head", "read_weights"]

AESTHETIC_WIDTHS: Final = (1024, 128, 64, 16, 1)
"""The layers of the aesthetic predictor (sac+logos+ava1-l14-linearMSE), linear throughout: dropout is for training."""

NSFW_WIDTHS: Final = (64, 512, 256, 1)
"""The layers of the detector (clip_autokeras_binary_nsfw), after a layer that normalises."""

_ROWS_AT_ONCE: Final = 4096
_EPSILON: Final = 1e-7
"""The least standard deviation that the layer that normalises divides by, as in Keras."""

_PICKLED: Final = (".pth", ".pt", ".bin", ".ckpt")


@dataclass(frozen=True, eq=False)
class EmbeddingHead:
    """A network of layers that are applied one after the other.

    Args:
        weights: For each layer a matrix with a row for each output.
        biases: For each layer a number for each output.
        activation: ``"linear"``, or ``"relu"`` between layers and a sigmoid after the last.
        mean, deviation: What each number of an embedding is reduced by and divided by first.

    >>> head = EmbeddingHead((np.ones((1, 2), np.float32),), (np.zeros(1, np.float32),))
    >>> head.scores(np.array([[1, 2]], np.float32)).tolist()
    [3.0]
    """

    weights: tuple[NDArray[np.float32], ...]
    biases: tuple[NDArray[np.float32], ...]
    activation: str = "linear"
    mean: NDArray[np.float32] | None = None
    deviation: NDArray[np.float32] | None = None

    @property
    def dim(self) -> int:
        """The length of the embeddings that it takes."""
        return int(self.weights[0].shape[1])

    def scores(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The score of each vector."""
        parts = [np.zeros(0, np.float32)]
        for start in range(0, len(vectors), _ROWS_AT_ONCE):
            values = vectors[start : start + _ROWS_AT_ONCE]
            if self.mean is not None and self.deviation is not None:
                values = (values - self.mean) / self.deviation
            for number, (matrix, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                if number and self.activation == "relu":
                    values = np.maximum(values, 0)
                values = values @ matrix.T + bias
            parts.append(_sigmoid(values[:, 0]) if self.activation == "relu" else values[:, 0])
        return np.concatenate(parts)


def load_aesthetic_head(path: str | Path, *, allow_pickle: bool = False) -> EmbeddingHead:
    """The aesthetic predictor of a file.

    The file has the tensors ``layers.0``, ``layers.2``, ``layers.4``, ``layers.6`` and ``layers.7``, each with
    ``.weight`` and ``.bias`` (the numbers in between are dropout), perhaps after a prefix such as ``mlp.``. Any widths
    are taken as long as each layer fits the one before, and the last has one output.

    Args:
        path: The file.
        allow_pickle: As for :func:`read_weights`.
    """
    tensors = _without_prefix(read_weights(path, allow_pickle=allow_pickle), "layers.")
    numbers = sorted({int(found[1]) for name in tensors if (found := re.fullmatch(r"layers\.(\d+)\.weight", name))})
    return EmbeddingHead(*_layers(path, tensors, [f"layers.{number}" for number in numbers]))


def load_nsfw_head(path: str | Path, *, allow_pickle: bool = False) -> EmbeddingHead:
    """The detector of a file.

    The file has one of these layouts, with matrices of four layers and their biases:

    - that of PyTorch: ``norm.mean``, ``norm.variance``, and ``linear_1`` to ``linear_4``, each with ``.weight`` (a row
      for each output) and ``.bias``;
    - that of Keras: ``normalization/mean``, ``normalization/variance``, and ``dense`` to ``dense_3``, each with
      ``/kernel`` (a column for each output) and ``/bias``. Names may have further parts before these, and end in
      ``:0``; ``.`` may stand for ``/``. The numbers after ``dense`` may begin anywhere.

    Args:
        path: The file.
        allow_pickle: As for :func:`read_weights`.
    """
    tensors = read_weights(path, allow_pickle=allow_pickle)
    if not any(name.endswith("linear_1.weight") for name in tensors):
        tensors = _from_keras(path, tensors)
    tensors = _without_prefix(tensors, "linear_", "norm.")
    weights, biases = _layers(path, tensors, [f"linear_{number}" for number in range(1, 5)])
    mean, variance = (_tensor(path, tensors, f"norm.{name}").reshape(-1) for name in ("mean", "variance"))
    if len(mean) != weights[0].shape[1] or len(variance) != len(mean):
        raise ModelError(f"{path}: norm.mean has {len(mean)} numbers, and the first layer takes {weights[0].shape[1]}")
    deviation = np.maximum(np.sqrt(variance), np.float32(_EPSILON))
    return EmbeddingHead(weights, biases, "relu", mean, deviation)


def read_weights(path: str | Path, *, allow_pickle: bool = False) -> dict[str, NDArray[np.float32]]:
    """The tensors of a file as 32-bit numbers.

    Args:
        path: A ``.safetensors`` file, or, if allowed, one that PyTorch saved (``.pth``, ``.pt``).
        allow_pickle: Whether pickled files may be read. Of those, nothing but tensors is loaded.
    """
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"there is no file of weights {file}")
    if file.suffix in _PICKLED:
        if not allow_pickle:
            raise ModelError(
                f"{file} is a pickled file, which could run any code. Convert it to safetensors: "
                "safetensors.torch.save_file(torch.load(file, weights_only=True), 'head.safetensors'), or give "
                "allow_pickle=True"
            )
        return _unpickled(file)
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise MissingExtraError(f"the weights {file.name}", package="safetensors", extra="models") from error
    try:
        with safe_open(file, "np") as weights:
            names = list(weights.keys())
            return {name: np.ascontiguousarray(weights.get_tensor(name), np.float32) for name in names}
    except Exception as error:  # safetensors raises a class of its own for whatever is wrong with a file
        raise ModelError(f"{file} cannot be read: {error}") from error


def _unpickled(file: Path) -> dict[str, NDArray[np.float32]]:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(f"the weights {file.name}", package="torch", extra="models") from error
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
        found = found.get("state_dict", found)
        return {str(name): tensor.float().numpy() for name, tensor in found.items()}
    except Exception as error:  # whatever is wrong with it
        raise ModelError(f"{file} cannot be read: {error}") from error


def _from_keras(path: str | Path, tensors: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Tensors of Keras under the names of PyTorch."""
    made: dict[str, NDArray[np.float32]] = {}
    dense: dict[int, dict[str, NDArray[np.float32]]] = {}
    for name, tensor in tensors.items():
        parts = re.split(r"[/.]", name.removesuffix(":0"))
        layer, part = (parts[-2] if len(parts) > 1 else ""), parts[-1]
        number = re.fullmatch(r"dense(?:_(\d+))?", layer)
        if layer.startswith("normalization") and part in ("mean", "variance"):
            made[f"norm.{part}"] = tensor
        elif number and part in ("kernel", "bias"):
            dense.setdefault(int(number[1] or 0), {})[part] = tensor
    if not dense:
        raise ModelError(
            f"{path} holds no weights of the detector: neither linear_1.weight (PyTorch) nor dense/kernel (Keras), but "
            f"{', '.join(sorted(tensors)[:5]) or 'nothing'}"
        )
    for place, number_of_layer in enumerate(sorted(dense), 1):
        for part, own in (("kernel", "weight"), ("bias", "bias")):
            if part not in dense[number_of_layer]:
                raise ModelError(f"{path}: the layer dense_{number_of_layer} has no {part}")
            tensor = dense[number_of_layer][part]
            made[f"linear_{place}.{own}"] = np.ascontiguousarray(tensor.T) if part == "kernel" else tensor
    return made


def _without_prefix(tensors: Mapping[str, NDArray[np.float32]], *begins: str) -> dict[str, NDArray[np.float32]]:
    """Tensors without what is before names that begin like this."""
    made = {}
    for name, tensor in tensors.items():
        at = min((name.find(begin) for begin in begins if begin in name), default=0)
        made[name[at:]] = tensor
    return made


def _layers(
    path: str | Path, tensors: Mapping[str, NDArray[np.float32]], names: Iterable[str]
) -> tuple[tuple[NDArray[np.float32], ...], tuple[NDArray[np.float32], ...]]:
    """The matrices and biases of layers, each of which takes what the one before gives."""
    weights: list[Any] = []
    biases: list[Any] = []
    for name in names:
        matrix, bias = (_tensor(path, tensors, f"{name}.{part}") for part in ("weight", "bias"))
        before = weights[-1].shape[0] if weights else matrix.shape[-1]
        if matrix.ndim != 2 or matrix.shape[1] != before or bias.shape != matrix.shape[:1]:
            raise ModelError(f"{path}: {name} has the shapes {matrix.shape} and {bias.shape} after {before} numbers")
        weights.append(matrix)
        biases.append(bias)
    if not weights or weights[-1].shape[0] != 1:
        raise ModelError(f"{path} does not end in a layer with one output; it has {', '.join(sorted(tensors)[:5])}")
    return tuple(weights), tuple(biases)


def _tensor(path: str | Path, tensors: Mapping[str, NDArray[np.float32]], name: str) -> NDArray[np.float32]:
    if name not in tensors:
        raise ModelError(f"{path} has no tensor {name!r}, only {', '.join(sorted(tensors)[:8])}")
    return tensors[name]


def _sigmoid(values: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # the exponential of a large number is infinite, and its inverse 0
        made: NDArray[np.float32] = np.float32(1) / (np.float32(1) + np.exp(-values))
    return made
