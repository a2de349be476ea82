"""Training of an n-gram language model, from files of texts to a model file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tamis.arrays import arrow_array
from tamis.errors import DataError, ModelError, PlanError, StorageError
from tamis.kernels.text_units import UNITS, hash_units
from tamis.models.ngram_model import FORMAT, NgramModel, load_ngram_model
from tamis.models.tensor_file import read_tensors
from tamis.training.inputs import InputRows, RowCounts
from tamis.training.kneser_ney import estimate
from tamis.training.sample import TextSample

__all__ = ["TrainedLanguageModel", "convert_arpa", "train_language_model"]

SAMPLE_BYTES: Final = 50_000_000
SAMPLE_ROWS: Final = 10_000_000
MOST_ORDER: Final = 8
QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_HELD_OUT: Final = 50
"""One text of so many is not used for training."""

_MOST_HELD_OUT: Final = 2000


@dataclass(frozen=True)
class TrainedLanguageModel:
    """What a training made.

    Args:
        path: The model's file.
        unit: What n-grams are made of.
        order: The largest n.
        texts: Texts that were used.
        units: Units of text that were counted.
        known: Different units that the model knows.
        ngrams: n-grams of each order.
        pruned: n-grams of each order that were left out, because they were too rare.
        nbytes: The size of the file.
        perplexity: That of other texts of the same input, all together; ``None`` if there were too few texts.
        quantiles: The perplexity that so many of these texts do not exceed, by their share.
        unknown_share: The share of their units that the model does not know.
        counts: What became of the rows that were read.
        is_whole: Whether all texts were used, not a sample of them.
    """

    path: str
    unit: str
    order: int
    texts: int
    units: int
    known: int
    ngrams: list[int]
    pruned: list[int]
    nbytes: int
    perplexity: float | None
    quantiles: dict[str, float]
    unknown_share: float | None
    counts: RowCounts
    is_whole: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def train_language_model(
    paths: str | Sequence[str],
    output: str,
    *,
    order: int = 5,
    unit: str = "token",
    text_field: str = "text",
    min_unit_count: int = 2,
    min_counts: Sequence[int] = (1, 1, 2),
    max_bytes: int = SAMPLE_BYTES,
    exact: bool = False,
    seed: int = 0,
    format_name: str | None = None,
) -> TrainedLanguageModel:
    """Train an n-gram model with interpolated modified Kneser-Ney smoothing, and write it to a file.

    Of larger inputs a sample is used, so that memory is bounded: up to 200 bytes for each unit of text. Equal texts
    count once. The same texts and settings give the same file, in whatever order the texts come.

    Args:
        paths: JSON lines, Parquet, CSV or text files, directories or patterns.
        output: The file to write. An earlier model there is replaced; anything else is refused.
        order: The largest n.
        unit: What n-grams are made of: ``"token"`` (words in lower case, and marks), ``"word"`` (between white space)
            or ``"character"``.
        text_field: The column with the text.
        min_unit_count: Units that occur fewer times count as unknown.
        min_counts: How often n-grams of each order must occur to be kept; the last number holds for all longer ones.
        max_bytes: How much text is used at most, in bytes.
        exact: Whether to keep probabilities as they are, instead of quantising them; the file is twice as large.
        seed: Another seed chooses other texts.
        format_name: The format of the files; by their names when not given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("the cat sat\\nthe dog sat\\n" * 5)
    ...     trained = train_language_model(f"{folder}/a.txt", f"{folder}/model.lm", order=2)
    ...     model = load_ngram_model(f"{folder}/model.lm")
    >>> import pyarrow as pa
    >>> likely, unlikely = model.score(pa.array(["the cat sat", "sat the cat"])).perplexities()
    >>> trained.ngrams, bool(likely < unlikely)
    ([7, 6], True)
    """
    if unit not in UNITS:
        raise PlanError(f"unit={unit!r}: must be one of {', '.join(map(repr, UNITS))}")
    if not 1 <= order <= MOST_ORDER:
        raise PlanError(f"order={order}: must be from 1 to {MOST_ORDER}")
    if min_unit_count < 1 or not min_counts or min(min_counts) < 1:
        raise PlanError("min_unit_count and min_counts must be at least 1")
    if list(min_counts) != sorted(min_counts):
        raise PlanError(f"min_counts={list(min_counts)}: must not decrease, because an n-gram needs its shorter ones")
    if max_bytes < 1:
        raise PlanError(f"max_bytes={max_bytes}: must be at least 1")
    _check_target(output)
    rows = InputRows([paths] if isinstance(paths, str) else list(paths), text_field, format_name=format_name)
    sample = TextSample(SAMPLE_ROWS, max_bytes, seed, 0)
    for texts, _ in rows.batches():
        sample.add(texts, np.zeros(len(texts), np.int32))
    texts, _, keys = sample.finish()
    if not len(texts):
        unreadable = f"; {rows.counts.unreadable:,} more could not be read" if rows.counts.unreadable else ""
        raise DataError(f"there is nothing to learn from: none of {rows.counts.rows:,} rows has a text{unreadable}")
    held_out = np.zeros(len(texts), np.bool_)
    held_out[np.argsort(keys * np.uint64(0x9E3779B97F4A7C15), kind="stable")[: len(texts) // _HELD_OUT]] = True
    held_out[np.flatnonzero(held_out)[_MOST_HELD_OUT:]] = False
    train, test = texts.filter(arrow_array(~held_out)), texts.filter(arrow_array(held_out))
    hashes, _ = hash_units(train, unit, line_marks=True)
    smoothed = estimate(hashes, order, min_unit_count, min_counts, exact)
    training = {"texts": len(train), "units": len(hashes), "seed": seed, "discounts": smoothed.discounts}
    training |= {"min_unit_count": min_unit_count, "min_counts": list(min_counts), "ngrams": smoothed.ngrams}
    model = NgramModel(unit, smoothed.table, training)
    _save(model, output)
    scores = model.score(test)
    each = scores.perplexities()[scores.units > 0]
    units = int(scores.units.sum())
    return TrainedLanguageModel(
        path=output,
        unit=unit,
        order=order,
        texts=len(train),
        units=len(hashes),
        known=smoothed.units,
        ngrams=smoothed.ngrams,
        pruned=smoothed.pruned,
        nbytes=os.path.getsize(output),
        perplexity=float(10 ** (-scores.logs.sum() / units)) if units else None,
        quantiles={f"{q:g}": float(np.quantile(each, q)) for q in QUANTILES} if len(each) else {},
        unknown_share=float(scores.unknown.sum() / units) if units else None,
        counts=rows.counts,
        is_whole=sample.is_whole,
    )


def convert_arpa(path: str, output: str) -> NgramModel:
    """Turn a model in the ARPA format into a file that is mapped into memory. Its numbers stay as they are.

    Args:
        path: The file, plain or compressed with gzip.
        output: The file to write.
    """
    _check_target(output)
    model = load_ngram_model(path, "train-lm --arpa")
    _save(model, output)
    return model


def _save(model: NgramModel, output: str) -> None:
    try:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        model.save(output)
    except OSError as error:
        raise StorageError(f"the model cannot be written to {output}: {error}") from error


def _check_target(output: str) -> None:
    """Refuse to write over anything but an earlier model."""
    if not os.path.lexists(output):
        return
    try:
        held = read_tensors(output)[1].get("format") if os.path.isfile(output) else None
    except ModelError:
        held = None
    if held != FORMAT:
        raise PlanError(f"{output} is there and is not a {FORMAT}: it is not overwritten. Choose another file")
