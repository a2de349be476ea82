"""Fitting of the weights of classifiers: logistic regression by gradient descent, and fastText."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, ModelError
from tamis.kernels.ngram_features import SparseRows, descend, ngram_vectors
from tamis.kernels.unit_vectors import unit_rows
from tamis.kernels.utf8 import Utf8
from tamis.models.text_classifier import (
    FastTextWeights,
    Features,
    LinearWeights,
    VectorWeights,
    fasttext_lines,
    softmax,
)

__all__ = ["LinearTraining", "fit_fasttext", "fit_linear", "fit_vectors"]

_BLOCK_BYTES: Final = 1 << 20
_TRAIN: Final = (
    "import fasttext, json, sys; fasttext.train_supervised(**json.loads(sys.argv[1])).save_model(sys.argv[2])"
)


@dataclass(frozen=True)
class LinearTraining:
    """How weights are fitted.

    Args:
        epochs: How often to pass over the texts at most. Of the passes, the one after which the labels of the
            calibration texts are likeliest counts.
        rate: The learning rate of AdaGrad.
        pull: The strength of the pull towards zero.
        step_rows: How many texts are looked at before the weights are changed.
    """

    epochs: int = 10
    rate: float = 0.5
    pull: float = 1e-6
    step_rows: int = 16


def fit_linear(
    texts: pa.Array,
    truth: NDArray[np.int32],
    label_count: int,
    features: Features,
    training: LinearTraining,
    seed: int,
    held_out: tuple[pa.Array, NDArray[np.int32]],
) -> LinearWeights:
    """Fit a multinomial logistic regression.

    Args:
        texts: The texts, of which no more than wanted is left.
        truth: The number of each text's label.
        label_count: How many labels there are.
        features: What to look at.
        training: How to fit.
        seed: Of the order of the texts.
        held_out: Other texts and their labels, by which the best pass is chosen; there may be none.
    """
    found = _fitted(
        (_vectors(texts, features), truth),
        (_vectors(held_out[0], features), held_out[1]),
        (1 << features.bits, label_count),
        training,
        seed,
    )
    return LinearWeights(features, *found)


def fit_vectors(
    vectors: NDArray[np.float32],
    truth: NDArray[np.int32],
    label_count: int,
    training: LinearTraining,
    seed: int,
    held_out: tuple[NDArray[np.float32], NDArray[np.int32]],
) -> VectorWeights:
    """Fit a multinomial logistic regression on vectors, whatever their lengths.

    Args:
        vectors: One in each row.
        truth: The number of each vector's label.
        label_count: How many labels there are.
        training: How to fit.
        seed: Of the order of the vectors.
        held_out: Other vectors and their labels, by which the best pass is chosen; there may be none.
    """
    length = vectors.shape[1]
    shape = (1 << max(length - 1, 1).bit_length(), label_count)
    weights, bias = _fitted((_dense(vectors), truth), (_dense(held_out[0]), held_out[1]), shape, training, seed)
    return VectorWeights(weights[:length].copy(), bias)


def _dense(vectors: NDArray[np.float32]) -> SparseRows:
    """Vectors of length one as sparse ones in which no slot is left out."""
    rows, length = vectors.shape
    slots = np.tile(np.arange(length, dtype=np.uint32), rows)
    return SparseRows(slots, unit_rows(vectors)[0].reshape(-1), np.arange(rows + 1, dtype=np.int64) * length)


def _fitted(
    given: tuple[SparseRows, NDArray[np.int32]],
    held_out: tuple[SparseRows, NDArray[np.int32]],
    shape: tuple[int, int],
    training: LinearTraining,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Weights, a row for each slot and a column for each label, and a bias for each label."""
    (vectors, truth), others, label_count = given, held_out[0], shape[1]
    weights = np.zeros(shape, np.float32)
    squares = np.zeros_like(weights)
    shares = np.bincount(truth, minlength=label_count) / len(truth)
    bias = np.log(np.maximum(shares, 1e-9))
    bias_squares = np.full(label_count, 1e-12)
    chance = np.random.default_rng(seed)
    best: tuple[float, NDArray[np.float32], NDArray[np.float64]] | None = None
    for _ in range(training.epochs):
        order = chance.permutation(len(truth)).astype(np.int64)
        for begin in range(0, len(order), training.step_rows):
            rows = order[begin : begin + training.step_rows]
            slopes = softmax(vectors.times(weights, rows) + bias)
            slopes[np.arange(len(rows)), truth[rows]] -= 1
            descend(vectors, rows, slopes, weights, squares, training.rate, training.pull)
            mean = slopes.mean(axis=0)
            bias_squares += mean * mean
            bias -= 0.1 * training.rate * mean / np.sqrt(bias_squares)
        if len(held_out[1]):
            loss = _loss(others.times(weights) + bias, held_out[1])
            if best is None or loss < best[0]:
                best = (loss, weights.copy(), bias.copy())
            elif loss > 1.02 * best[0]:
                break
    return best[1:] if best is not None else (weights, bias)


def _loss(scores: NDArray[np.float64], truth: NDArray[np.int32]) -> float:
    shares = softmax(scores)[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(shares, 1e-300)).mean())


def _vectors(texts: pa.Array, features: Features) -> SparseRows:
    parts = [SparseRows(np.zeros(0, np.uint32), np.zeros(0, np.float32), np.zeros(1, np.int64))]
    for block in Utf8.from_arrow(texts).blocks(_BLOCK_BYTES):
        parts.append(ngram_vectors(block.to_arrow(), features.unit, features.longest, features.bits))
    return SparseRows.concat(parts)


def fit_fasttext(
    texts: pa.Array, truth: NDArray[np.int32], label_count: int, path: Path, epochs: int, longest: int, seed: int
) -> FastTextWeights:
    """Train a fastText model and write it to a file. One thread: the same texts and seed give the same model.

    Args:
        texts: The texts, of which no more than wanted is left.
        truth: The number of each text's label.
        label_count: How many labels there are.
        path: The file to write.
        epochs: How often to pass over the texts.
        longest: The largest n-gram of words.
        seed: Of the order of the texts and of the first weights.
    """
    if importlib.util.find_spec("fasttext") is None:
        raise MissingExtraError("train-classifier --kind fasttext", package="fasttext-numpy2", extra="language")
    order = np.random.default_rng(seed).permutation(len(truth))
    lines = fasttext_lines(texts)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.txt"
        with file.open("wb") as sink:
            for row in order.tolist():
                sink.write(b"__label__%d %s\n" % (truth[row], lines[row]))
        settings: dict[str, Any] = {
            "epoch": epochs,
            "wordNgrams": longest,
            "seed": seed % 2**31,
            "thread": 1,
            "verbose": 0,
        }
        settings |= {"input": str(file), "dim": 32, "lr": 0.5, "bucket": 1 << 18, "minCount": 2}
        _run_fasttext(settings, path)
    return FastTextWeights(str(path), label_count)


def _run_fasttext(settings: dict[str, Any], path: Path) -> None:
    """Train in a process of its own.

    With one thread, fastText gives first values to a tenth of its matrix and expects the rest to be zero. Memory is
    zero only if the system has just provided it: in a new process, with every large array in a mapping of its own.
    """
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", _TRAIN, json.dumps(settings), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]
        raise ModelError(f"fastText cannot be trained on these texts: {said or f'exit status {done.returncode}'}")
