"""n-gram language models: how likely texts are under a model that tamis trained, or one in the ARPA format."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import ModelError
from tamis.kernels.ngram_table import NgramTable
from tamis.kernels.text_units import UNITS, hash_units
from tamis.kernels.utf8 import Utf8
from tamis.models.arpa import is_arpa, read_arpa
from tamis.models.tensor_file import read_tensors, write_tensors

__all__ = ["FORMAT", "NgramModel", "Scores", "load_ngram_model"]

FORMAT: Final = "tamis n-gram model"
VERSION: Final = 1
_BLOCK_BYTES: Final = 1 << 18


@dataclass(frozen=True, eq=False)
class Scores:
    """How likely texts are.

    Args:
        logs: The logarithm, to the base 10, of the probability of each text: of all its lines that are not blank.
        units: How many units each text has, and ends of such lines.
        unknown: How many of these units the model does not know.
    """

    logs: NDArray[np.float64]
    units: NDArray[np.int64]
    unknown: NDArray[np.int64]

    def perplexities(self) -> NDArray[np.float64]:
        """The perplexity of each text; infinite for one without units."""
        with np.errstate(over="ignore"):
            mean = np.where(self.units > 0, -self.logs / np.maximum(self.units, 1), np.inf)
            found: NDArray[np.float64] = 10.0**mean
        return found


@dataclass(frozen=True, eq=False)
class NgramModel:
    """An n-gram language model.

    A line that is not blank is a sentence: its units are scored after its beginning, and so is its end.

    Args:
        unit: What n-grams are made of, see :mod:`tamis.kernels.text_units`.
        table: The n-grams.
        training: What is known about its training.
    """

    unit: str
    table: NgramTable
    training: dict[str, Any] = field(default_factory=dict)

    def score(self, texts: pa.Array | pa.ChunkedArray) -> Scores:
        """How likely texts are. A null is an empty text."""
        parts = []
        for block in Utf8.from_arrow(texts).blocks(_BLOCK_BYTES):
            parts.append(self.table.score(*hash_units(block.to_arrow(), self.unit, line_marks=True)))
        empty = (np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))
        return Scores(*(np.concatenate(each) for each in zip(empty, *parts, strict=True)))

    def save(self, path: str | Path) -> None:
        """Write the model to a file, which can be mapped into memory."""
        table = self.table
        metadata = {
            "format": FORMAT,
            "version": str(VERSION),
            "unit": self.unit,
            "order": str(table.order),
            "width": str(table.width),
            "is_closed": str(int(table.is_closed)),
            "training": json.dumps(self.training),
        }
        arrays = {"table": table.table, "likely": table.likely, "backoffs": table.backoffs}
        partial = Path(f"{path}.{os.getpid()}.tmp")
        try:
            write_tensors(partial, arrays, metadata)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def load_ngram_model(path: str, needed_by: str = "load_ngram_model") -> NgramModel:
    """The model in a file: what ``tamis train-lm`` wrote, or the ARPA format, plain or compressed (``.gz``).

    It is read once in each process. A file in the ARPA format takes a while: ``tamis train-lm --arpa FILE`` turns it
    into one that is mapped into memory.

    Args:
        path: The file.
        needed_by: What it is for, for error messages.

    >>> load_ngram_model("no-such-file", "PerplexityFilter")
    Traceback (most recent call last):
    tamis.errors.ModelError: PerplexityFilter: there is no model file no-such-file
    """
    expanded = os.path.expanduser(path)
    if not os.path.isfile(expanded):
        raise ModelError(f"{needed_by}: there is no model file {path}")
    return _loaded(expanded, os.stat(expanded).st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _loaded(path: str, changed_ns: int) -> NgramModel:
    if is_arpa(path):
        return NgramModel("word", read_arpa(path), {"arpa": os.path.basename(path)})
    arrays, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise ModelError(f"{path} is neither a {FORMAT} nor in the ARPA format")
    if metadata.get("version") != str(VERSION):
        raise ModelError(f"{path} has version {metadata.get('version')}; this tamis reads {VERSION}. Train it again")
    try:
        numbers = {name: int(metadata[name]) for name in ("order", "width", "is_closed")}
        unit, training = metadata["unit"], json.loads(metadata["training"])
        table = np.ascontiguousarray(arrays["table"], np.uint64)
        codes = [np.array(arrays[name], np.float64) for name in ("likely", "backoffs")]
        is_sound = unit in UNITS and numbers["order"] >= 1 and numbers["width"] in (1, 2) and len(table)
        if not is_sound or any(len(each) & (len(each) - 1) or not len(each) for each in codes):
            raise ValueError("its settings do not fit together")
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{path} is damaged: {error!r}") from error
    held = NgramTable(numbers["order"], table, numbers["width"], bool(numbers["is_closed"]), *codes)
    return NgramModel(unit, held, training)
