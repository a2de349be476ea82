"""Text classifiers that tamis trains: a folder with a configuration, weights and a card, and what they predict.

``config.json`` names the labels, the features, the temperature and the hash of the weights. Weights of the kinds
``linear`` and ``embeddings`` are in ``model.safetensors``, those of kind ``fasttext`` in ``model.bin``. Nothing in a
folder is code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import ModelError, did_you_mean
from tamis.kernels.ngram_features import MOST_BITS, ngram_vectors
from tamis.kernels.text_units import UNITS
from tamis.kernels.unit_vectors import unit_rows
from tamis.kernels.utf8 import Utf8
from tamis.models.fasttext import ends_within, load_fasttext
from tamis.models.tensor_file import read_tensors, write_tensors

__all__ = [
    "CONFIG",
    "FORMAT",
    "KINDS",
    "FastTextWeights",
    "Features",
    "LinearWeights",
    "TextClassifier",
    "VectorFeatures",
    "VectorWeights",
    "Weights",
    "cut_texts",
    "load_text_classifier",
    "save_config",
    "softmax",
]

FORMAT: Final = "tamis text classifier"
VERSION: Final = 1
CONFIG: Final = "config.json"
KINDS: Final = ("linear", "fasttext", "embeddings")
"""The kinds of classifiers: of texts, and of texts of which embeddings are there."""

WEIGHTS: Final = {"linear": "model.safetensors", "fasttext": "model.bin", "embeddings": "model.safetensors"}
"""The file of the weights, by kind."""

_BLOCK_BYTES: Final = 1 << 20
_LABEL: Final = "__label__"
_LEAST: Final = 1e-12


@dataclass(frozen=True)
class Features:
    """What a linear classifier looks at.

    Args:
        unit: What n-grams are made of: ``"token"``, ``"word"`` or ``"character"``,
            see :mod:`tamis.kernels.text_units`.
        longest: The largest n-gram.
        bits: n-grams are hashed into ``2 ** bits`` slots.
        max_bytes: How much of a text is looked at, in bytes from its beginning; ``None`` for all of it.
    """

    unit: str = "token"
    longest: int = 2
    bits: int = 20
    max_bytes: int | None = 65536

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit={self.unit!r}: must be one of {', '.join(map(repr, UNITS))}")
        if not 1 <= self.longest <= 10:
            raise ValueError(f"longest={self.longest}: must be from 1 to 10")
        if not 10 <= self.bits <= MOST_BITS:
            raise ValueError(f"bits={self.bits}: must be from 10 to {MOST_BITS}")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise ValueError(f"max_bytes={self.max_bytes}: must be at least 1")


@dataclass(frozen=True)
class VectorFeatures:
    """What a classifier of embeddings looks at.

    Args:
        embedding_field: The column with the vectors that it was trained on.
        length: How many numbers they have.
    """

    embedding_field: str
    length: int


class Weights(Protocol):
    """What a classifier has learnt from texts."""

    def scores(self, texts: pa.Array) -> NDArray[np.float64]:
        """The logarithm of the probability of each label, up to a constant, for each text."""


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """A multinomial logistic regression on hashed n-grams.

    Args:
        features: What it looks at.
        weights: A row for each slot, a column for each label.
        bias: One number for each label.
    """

    features: Features
    weights: NDArray[np.float32]
    bias: NDArray[np.float64]

    def scores(self, texts: pa.Array) -> NDArray[np.float64]:
        """The scores of each text: the product of its vector with the weights, and the bias."""
        features = self.features
        parts = [np.zeros((0, len(self.bias)))]
        for block in Utf8.from_arrow(texts).blocks(_BLOCK_BYTES):
            vectors = ngram_vectors(block.to_arrow(), features.unit, features.longest, features.bits)
            parts.append(vectors.times(self.weights) + self.bias)
        return np.concatenate(parts)

    def save(self, path: Path) -> None:
        """Write the slots that are not zero."""
        slots = np.flatnonzero(self.weights.any(axis=1)).astype(np.uint32)
        arrays: dict[str, NDArray[Any]] = {"bias": self.bias, "slots": slots, "weights": self.weights[slots]}
        write_tensors(path, arrays, {"format": FORMAT})

    @classmethod
    def load(cls, path: Path, features: Features) -> LinearWeights:
        """Read them."""
        arrays, _ = read_tensors(path)
        try:
            bias = np.array(arrays["bias"], np.float64)
            weights = np.zeros((1 << features.bits, len(bias)), np.float32)
            weights[arrays["slots"]] = arrays["weights"]
        except (KeyError, IndexError, ValueError) as error:
            raise ModelError(f"{path} does not hold the weights that {CONFIG} describes: {error!r}") from error
        return cls(features, weights, bias)


@dataclass(frozen=True, eq=False)
class FastTextWeights:
    """A fastText model whose labels are ``__label__0``, ``__label__1`` and so on.

    Args:
        path: The model.
        label_count: How many labels it has.
    """

    path: str
    label_count: int

    def scores(self, texts: pa.Array) -> NDArray[np.float64]:
        """The logarithms of the probabilities; equal where the model knows no word of a text."""
        model = load_fasttext(self.path, "a text classifier")
        places = [int(label.removeprefix(_LABEL)) for label in model.labels]
        found = np.zeros((len(texts), self.label_count))
        if len(texts):
            found[:, places] = model.probabilities(pc.replace_substring(texts, _LABEL, " "))
        logs: NDArray[np.float64] = np.log(np.maximum(found, _LEAST))
        return logs


@dataclass(frozen=True, eq=False)
class VectorWeights:
    """A multinomial logistic regression on vectors of length one.

    Args:
        weights: A row for each number of a vector, a column for each label.
        bias: One number for each label.
    """

    weights: NDArray[np.float32]
    bias: NDArray[np.float64]

    def scores(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """The scores of each vector: its product with the weights, and the bias."""
        found: NDArray[np.float64] = unit_rows(vectors)[0] @ self.weights + self.bias
        return found

    def save(self, path: Path) -> None:
        """Write them."""
        write_tensors(path, {"bias": self.bias, "weights": self.weights}, {"format": FORMAT})

    @classmethod
    def load(cls, path: Path, shape: tuple[int, int]) -> VectorWeights:
        """Read them."""
        arrays, _ = read_tensors(path)
        weights, bias = arrays.get("weights"), arrays.get("bias")
        if weights is None or bias is None or weights.shape != shape or bias.shape != shape[1:]:
            raise ModelError(f"{path} does not hold the weights that {CONFIG} describes")
        return cls(np.array(weights, np.float32), np.array(bias, np.float64))


@dataclass(frozen=True, eq=False)
class TextClassifier:
    """A classifier of texts. Made by :func:`load_text_classifier`.

    Args:
        labels: The labels, in the order of the probabilities.
        kind: One of :data:`KINDS`.
        features: What it looks at; of a fastText model only ``max_bytes`` is used.
        weights: What it has learnt.
        temperature: Scores are divided by it, so that probabilities are as large as they should be.
    """

    labels: tuple[str, ...]
    kind: str
    features: Features | VectorFeatures
    weights: Weights | VectorWeights
    temperature: float = 1.0

    def probabilities(self, texts: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
        """The probability of each label, for each text: one row each. A null is an empty text."""
        if isinstance(self.features, VectorFeatures) or isinstance(self.weights, VectorWeights):
            raise ModelError(
                "the model was trained on embeddings, not on texts: give TrainedClassifier embedding_field, the column "
                "with the vectors"
            )
        return softmax(self.weights.scores(cut_texts(texts, self.features.max_bytes)) / self.temperature)

    def probabilities_of_vectors(self, vectors: NDArray[np.float32], needed_by: str) -> NDArray[np.float64]:
        """The probability of each label, for each vector: one row each."""
        if not isinstance(self.features, VectorFeatures) or not isinstance(self.weights, VectorWeights):
            raise ModelError(
                f"{needed_by}: the model was trained on texts, not on embeddings: leave out embedding_field"
            )
        if vectors.shape[1] != self.features.length and len(vectors):
            raise ModelError(
                f"{needed_by}: the model was trained on vectors of {self.features.length} numbers, but these have "
                f"{vectors.shape[1]}: embed with the stage and the settings that were used for the training"
            )
        if not len(vectors):
            return np.zeros((0, len(self.labels)))
        return softmax(self.weights.scores(vectors) / self.temperature)

    def number_of(self, label: str, needed_by: str) -> int:
        """The place of a label; ``ModelError`` if it is not one of this model's."""
        if label not in self.labels:
            known = ", ".join(map(repr, self.labels))
            raise ModelError(
                f"{needed_by}: the model has no label {label!r}, only {known}.{did_you_mean(label, self.labels)}"
            )
        return self.labels.index(label)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities that follow from scores, row by row.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)
    return shares


def cut_texts(texts: pa.Array | pa.ChunkedArray, max_bytes: int | None) -> pa.Array:
    """The beginnings of texts: at most so many bytes of each, and no broken character. A null becomes an empty text.

    >>> cut_texts(pa.array(["né", None, "abc"]), 2).to_pylist()
    ['n', '', 'ab']
    """
    held = Utf8.from_arrow(texts)
    if max_bytes is None or not len(held) or int(np.diff(held.offsets).max()) <= max_bytes:
        return held.to_arrow()
    ends = ends_within(held, max_bytes)
    pieces = [held.data[begin:end] for begin, end in zip(held.offsets[:-1].tolist(), ends.tolist(), strict=True)]
    offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), ends - held.offsets[:-1]]))
    return Utf8(np.concatenate(pieces), offsets).to_arrow()


def fasttext_lines(texts: pa.Array) -> list[bytes]:
    """Texts as fastText is given them: one line each, without what it takes for labels."""
    cleaned = pc.replace_substring(pc.replace_substring(texts, _LABEL, " "), "\n", " ")
    return [text.encode() for text in cleaned.to_pylist()]


def save_config(folder: Path, classifier: TextClassifier, training: dict[str, Any]) -> None:
    """Write the configuration of a model whose weights are in the folder already."""
    weights = folder / WEIGHTS[classifier.kind]
    config = {
        "format": FORMAT,
        "version": VERSION,
        "kind": classifier.kind,
        "labels": list(classifier.labels),
        "temperature": classifier.temperature,
        "features": asdict(classifier.features),
        "weights": {"file": weights.name, "sha256": _sha256(weights)},
        "training": training,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_text_classifier(folder: str, needed_by: str = "load_text_classifier") -> TextClassifier:
    """The classifier in a folder; it is read once in each process.

    Args:
        folder: What ``tamis train-classifier`` wrote.
        needed_by: What it is for, for error messages.

    >>> load_text_classifier("no-such-folder", "TrainedClassifier")
    Traceback (most recent call last):
    tamis.errors.ModelError: TrainedClassifier: there is no model folder no-such-folder: it has no config.json
    """
    path = Path(os.path.expanduser(folder)) / CONFIG
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        raise ModelError(f"{needed_by}: there is no model folder {folder}: it has no {CONFIG}") from None
    return _loaded(str(path), changed)


@functools.lru_cache(maxsize=8)
def _loaded(path: str, changed_ns: int) -> TextClassifier:
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
        is_ours, version = config.get("format") == FORMAT, config.get("version")
    except (ValueError, AttributeError) as error:
        raise ModelError(f"{path} is damaged: {error}") from error
    if not is_ours:
        raise ModelError(f"{path} is not the configuration of a {FORMAT}")
    if version != VERSION:
        raise ModelError(f"{path} has version {version}; this tamis reads version {VERSION}. Train the model again")
    try:
        kind, labels = config["kind"], tuple(config["labels"])
        features = (VectorFeatures if kind == "embeddings" else Features)(**config["features"])
        weights = Path(path).parent / WEIGHTS[kind]
        digest, temperature = config["weights"]["sha256"], float(config["temperature"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is damaged: {error!r}") from error
    if not weights.is_file() or _sha256(weights) != digest:
        raise ModelError(
            f"{weights} is not the file that {path} was written for: it is missing, damaged or was changed"
        )
    held: Weights | VectorWeights
    if isinstance(features, VectorFeatures):
        held = VectorWeights.load(weights, (features.length, len(labels)))
    elif kind == "linear":
        held = LinearWeights.load(weights, features)
    else:
        held = FastTextWeights(str(weights), len(labels))
    return TextClassifier(labels, kind, features, held, temperature)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
