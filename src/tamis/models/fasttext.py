"""fastText models (Joulin et al., 2016): load one from a file, and label whole columns with it.

Files are read and labels computed by tamis itself, outside Python's lock; the package ``fasttext`` is needed only to
train a model.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import did_you_mean
from tamis.kernels.utf8 import Utf8
from tamis.models.fasttext_file import HIERARCHICAL, SOFTMAX, FastTextFile, read_fasttext

__all__ = ["FastTextModel", "check_model_file", "ends_within", "load_fasttext"]

_SIGMOID_STEPS = 512
_SIGMOID_LIMIT = np.float32(8)


class FastTextModel:
    """A supervised fastText model. Made by :func:`load_fasttext`.

    Args:
        path: Where it was loaded from.
        file: What was read from there.
    """

    def __init__(self, path: str, file: FastTextFile) -> None:
        self.path, self.labels = path, list(file.labels)
        self._network, self._loss = file.network, file.loss
        self._names = pa.array([*self.labels, ""], pa.string())
        self._tree = _Tree(file.label_counts) if file.loss == HIERARCHICAL else None

    def predict(
        self, column: pa.Array | pa.ChunkedArray, max_bytes: int | None = None
    ) -> tuple[pa.StringArray, NDArray[np.float32]]:
        """The likeliest label of each text and its probability; ``""`` and 0.0 where the model knows no word of it.

        Args:
            column: Texts. A newline, which would end what fastText looks at, counts as a space, a null as no text.
            max_bytes: How much of each text is looked at, in bytes from its beginning; ``None`` for all of it.
        """
        labels, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for likely, known in self._likelihoods(column, max_bytes):
            # Between equal scores fastText takes the last label.
            best = likely.shape[1] - 1 - likely[:, ::-1].argmax(axis=1)
            best_scores = _exp(likely[np.arange(len(likely)), best])
            labels.append(np.where(known, best, len(self.labels)))
            scores.append(np.where(known, best_scores, np.float32(0)))
        return self._names.take(pa.array(np.concatenate(labels))), np.concatenate(scores)

    def probabilities(self, column: pa.Array | pa.ChunkedArray, max_bytes: int | None = None) -> NDArray[np.float32]:
        """The probability of each label, in the order of ``labels``: a row for each text.

        A row is zero where the model knows no word of the text. Parameters are those of :meth:`predict`.
        """
        parts = [
            np.where(known[:, None], _exp(likely), np.float32(0))
            for likely, known in self._likelihoods(column, max_bytes)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.labels)), np.float32)

    def probability_of(
        self, column: pa.Array | pa.ChunkedArray, label: str, max_bytes: int | None = None
    ) -> NDArray[np.float32]:
        """The probability of one label in each text; 0.0 where the model knows no word of it.

        Args:
            column: Texts.
            label: The label, with ``__label__`` or without.
            max_bytes: How much of each text is looked at, in bytes from its beginning; ``None`` for all of it.
        """
        place = self._place(label)
        parts = [np.zeros(0, np.float32)]
        for likely, known in self._likelihoods(column, max_bytes):
            parts.append(np.where(known, _exp(likely[:, place]), np.float32(0)))
        return np.concatenate(parts)

    def predict_top(
        self, column: pa.Array | pa.ChunkedArray, k: int, min_probability: float = 0.0, max_bytes: int | None = None
    ) -> tuple[pa.ListArray, pa.ListArray]:
        """The likeliest labels of each text and their probabilities, the likeliest first.

        Args:
            column: Texts.
            k: The most labels per text.
            min_probability: The lowest probability of a label that is given. A model with a tree of labels gives none
                below 1e-5, as in fastText.
            max_bytes: How much of each text is looked at, in bytes from its beginning; ``None`` for all of it.
        """
        if k < 1:
            raise ValueError(f"predict_top(k={k}): must be at least 1")
        least = _log(np.array([min_probability]))[0]  # as fastText compares
        parts = [(np.zeros((0, len(self.labels)), np.float32), np.zeros(0, np.bool_))]
        likely, known = map(np.concatenate, zip(*parts, *self._likelihoods(column, max_bytes), strict=True))
        order = np.argsort(-likely, axis=1, kind="stable")[:, :k]
        chosen = np.take_along_axis(likely, order, axis=1)
        scores, given = _exp(chosen), known[:, None] & (chosen >= least)
        offsets = pa.array(np.concatenate(([0], np.cumsum(given.sum(axis=1)))), pa.int32())
        names = self._names.take(pa.array(order[given]))
        return pa.ListArray.from_arrays(offsets, names), pa.ListArray.from_arrays(offsets, pa.array(scores[given]))

    def _place(self, label: str) -> int:
        for name in (label, f"__label__{label}"):
            if name in self.labels:
                return self.labels.index(name)
        known = [name.removeprefix("__label__") for name in self.labels]
        hint = did_you_mean(label.removeprefix("__label__"), known) or f" It has {', '.join(known[:10])}."
        raise ValueError(f"{self.path} has no label {label!r}.{hint}")

    def _likelihoods(
        self, column: pa.Array | pa.ChunkedArray, max_bytes: int | None
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """The logarithms of probabilities, and which texts the model knows a word of: some rows at a time.

        fastText adds 1e-5 to a probability before it takes the logarithm, and gives the exponential of that.
        """
        texts = Utf8.from_arrow(column)
        for outputs, counts in self._network.outputs(texts.data, texts.offsets, ends_within(texts, max_bytes)):
            if self._tree is not None:
                yield self._tree.likelihoods(outputs), counts > 0
            else:
                yield _log(_softmax(outputs) if self._loss == SOFTMAX else _sigmoids(outputs)), counts > 0


class _Tree:
    """The binary tree of hierarchical softmax: Huffman's, with labels that are seen often near the root.

    Args:
        counts: How often each label was seen, in descending order.
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        labels = len(counts)
        totals = [*counts.tolist(), *[10**15] * (labels - 1)]
        parents, sides = [-1] * len(totals), [False] * len(totals)
        leaf, node = labels - 1, labels
        for made in range(labels, 2 * labels - 1):
            pair = []
            for _ in range(2):
                if leaf >= 0 and totals[leaf] < totals[node]:
                    pair.append(leaf)
                    leaf -= 1
                else:
                    pair.append(node)
                    node += 1
            totals[made] = totals[pair[0]] + totals[pair[1]]
            parents[pair[0]] = parents[pair[1]] = made
            sides[pair[1]] = True
        self._labels = labels
        # Children after their parents, so that scores are summed from the root down.
        self._steps = [(node, parents[node], sides[node]) for node in range(2 * labels - 3, -1, -1)]

    def likelihoods(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logarithm of the probability of each label, from the outputs of the inner nodes."""
        with np.errstate(over="ignore"):
            right = (1 / (1 + _exp(-outputs).astype(np.float64))).astype(np.float32)
        logs = _log((np.float32(1) - right).astype(np.float64)), _log(right.astype(np.float64))
        scores = np.zeros((2 * self._labels - 1, len(outputs)), np.float32)
        for node, parent, side in self._steps:
            np.add(scores[parent], logs[side][:, parent - self._labels], out=scores[node])
        return np.ascontiguousarray(scores[: self._labels].T)


def load_fasttext(path: str, needed_by: str) -> FastTextModel:
    """Load a fastText model; once in each process, however often it is asked for.

    Args:
        path: A ``.bin`` or ``.ftz`` file.
        needed_by: What it is for, for error messages.
    """
    check_model_file(path, needed_by)
    return _loaded(path, os.stat(path).st_mtime_ns)


def check_model_file(path: str, needed_by: str) -> None:
    """Refuse a path that leads to no file.

    >>> check_model_file("lid.176.bin", "FastTextLangId")
    Traceback (most recent call last):
    FileNotFoundError: FastTextLangId: there is no model file lid.176.bin; give the path of a fastText .bin or .ftz file
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"{needed_by}: there is no model file {path}; give the path of a fastText .bin or .ftz file"
        )


def ends_within(texts: Utf8, max_bytes: int | None) -> NDArray[np.int64]:
    """Where each text ends, or, if it is longer than so many bytes, where its last character that fits in ends.

    >>> ends_within(Utf8.from_arrow(pa.array(["né", "abc"])), 2).tolist()
    [1, 5]
    """
    starts, ends = texts.offsets[:-1], texts.offsets[1:]
    if max_bytes is None:
        return ends
    cuts = np.minimum(ends, starts + max_bytes)
    for _ in range(3):  # a character has at most three bytes after its first
        inside = np.flatnonzero(cuts < ends)
        cuts[inside] -= (texts.data[cuts[inside]] & 0xC0) == 0x80
    return np.maximum(cuts, starts)


def _softmax(outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rounded and summed as fastText does it: labels of nearly equal probability otherwise change places."""
    shares = _exp(outputs - outputs.max(axis=1, keepdims=True))
    shares /= np.cumsum(shares, axis=1)[:, -1:]
    made: NDArray[np.float64] = shares.astype(np.float64)
    return made


def _sigmoids(outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """The logistic function in steps of 1/32, as fastText takes it from a table."""
    inside = np.clip(outputs, -_SIGMOID_LIMIT, _SIGMOID_LIMIT)
    steps = ((inside + _SIGMOID_LIMIT) * np.float32(_SIGMOID_STEPS) / _SIGMOID_LIMIT / np.float32(2)).astype(np.int64)
    values = _sigmoid_table()[steps]
    return np.where(outputs < -_SIGMOID_LIMIT, 0.0, np.where(outputs > _SIGMOID_LIMIT, 1.0, values))


@functools.cache
def _sigmoid_table() -> NDArray[np.float64]:
    limit = int(_SIGMOID_LIMIT)
    steps = (np.arange(_SIGMOID_STEPS + 1, dtype=np.float32) * (2 * limit)) / np.float32(_SIGMOID_STEPS) - limit
    values: NDArray[np.float64] = (1 / (1 + _exp(-steps).astype(np.float64))).astype(np.float32).astype(np.float64)
    return values


def _exp(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded from 64 bits: NumPy's exponential of 32 bits depends on how an array lies in memory."""
    made: NDArray[np.float32] = np.exp(values.astype(np.float64)).astype(np.float32)
    return made


def _log(probabilities: NDArray[np.float64]) -> NDArray[np.float32]:
    logs: NDArray[np.float32] = np.log(probabilities + 1e-5).astype(np.float32)
    return logs


@functools.lru_cache(maxsize=4)
def _loaded(path: str, changed_ns: int) -> FastTextModel:
    return FastTextModel(path, read_fasttext(path))
