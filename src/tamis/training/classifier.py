"""Training of a text classifier, from files with labels to a model folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.errors import DataError, PlanError, did_you_mean
from tamis.models.text_classifier import (
    FORMAT,
    KINDS,
    WEIGHTS,
    Features,
    TextClassifier,
    VectorFeatures,
    cut_texts,
    load_text_classifier,
    save_config,
    softmax,
)
from tamis.training.card import card_text
from tamis.training.evaluation import Evaluation, evaluate, fit_temperature
from tamis.training.fitting import LinearTraining, fit_fasttext, fit_linear, fit_vectors
from tamis.training.inputs import InputRows, RowCounts, VectorsOfTexts
from tamis.training.model_folder import model_folder
from tamis.training.sample import TextSample
from tamis.training.split import CALIBRATION, TEST, TRAIN, groups_of, parts_of

__all__ = ["LEAST_ROWS", "TrainedModel", "evaluate_classifier", "train_classifier"]

EVALUATION: Final = "evaluation.json"
LEAST_ROWS: Final = 5
"""How many different texts a label must have."""

CALIBRATION_SHARE: Final = 0.1
SAMPLE_ROWS: Final = 200_000
SAMPLE_BYTES: Final = 1 << 30
SEED_LABEL: Final = "seed"
OTHER_LABEL: Final = "other"
_OTHERS_PER_SEED: Final = 10
_LEAST_OTHERS: Final = 1000
_MOST_LABELS: Final = 1000
_MOST_WEIGHTS: Final = 1 << 29
_LEAST_CALIBRATION: Final = 20


@dataclass(frozen=True)
class TrainedModel:
    """What a training made.

    Args:
        folder: The model's folder.
        labels: Its labels.
        counts: What became of the rows that were read.
        training: Figures of the training: sizes of the sample and its parts, settings, seed.
        evaluation: How good it is on texts it has not seen.
        temperature: The number by which scores are divided.
        notes: Remarks, such as that a sample was used.
    """

    folder: str
    labels: list[str]
    counts: RowCounts
    training: dict[str, Any]
    evaluation: Evaluation
    temperature: float
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Sampled:
    """Texts, the numbers of their labels and their keys, and whether these are all there are."""

    labels: list[str]
    texts: pa.Array
    truth: NDArray[np.int32]
    keys: NDArray[np.uint64]
    counts: RowCounts
    seen: dict[str, int]
    is_whole: bool
    sources: list[InputRows]


def train_classifier(
    paths: str | Sequence[str],
    output: str,
    *,
    text_field: str = "text",
    label_field: str | None = None,
    label_where: str | None = None,
    seeds: str | Sequence[str] | None = None,
    kind: str = "linear",
    embedding_field: str | None = None,
    features: Features | None = None,
    epochs: int = 10,
    test_share: float = 0.2,
    seed: int = 0,
    max_rows: int = SAMPLE_ROWS,
    format_name: str | None = None,
) -> TrainedModel:
    """Train a classifier on texts with labels, evaluate it on texts that it has not seen, and write a model folder.

    The same texts and settings give the same folder, byte for byte, in whatever order the rows come.

    Args:
        paths: JSON lines, Parquet or CSV files, directories or patterns.
        output: The folder to write. An earlier model in it is replaced; anything else is refused.
        text_field: The column with the text.
        label_field: The column with the label; ``"label"`` when nothing else says what the labels are.
        label_where: Instead, a condition such as ``"stars >= 4"``, for the labels ``"true"`` and ``"false"``.
        seeds: Instead, files with texts like those that are wanted, which get the label ``"seed"``. A sample of the
            texts in ``paths``, ten times as many, gets the label ``"other"``.
        kind: ``"linear"``, ``"fasttext"``, which needs the extra ``language``, or ``"embeddings"``.
        embedding_field: The column with a vector for each text, for a linear classifier of these; ``kind`` is then
            ``"embeddings"``. The texts are for the split and the card.
        features: What to look at. With fastText, only ``longest`` and ``max_bytes`` are used.
        epochs: How often to pass over the texts, at most.
        test_share: The share of the texts that is kept for the evaluation, 0 to 0.8.
        seed: Another seed chooses other texts for training and test.
        max_rows: If there are more texts, a sample of about so many is used.
        format_name: ``"jsonl"``, ``"parquet"``, ``"csv"``, ``"tsv"`` or ``"text"``; by the files' names when not given.

    >>> import json, tempfile
    >>> rows = [{"text": f"{a} {b}", "label": a} for a in ("good", "bad") for b in "abcdefghijklmnopqrst"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "rows.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    ...     trained = train_classifier(f"{folder}/rows.jsonl", f"{folder}/model")
    >>> trained.labels, trained.evaluation.accuracy
    (['bad', 'good'], 1.0)
    """
    features = features or Features()
    if embedding_field is not None and kind == "linear":
        kind = "embeddings"
    _check(kind, embedding_field, epochs, test_share, max_rows, (label_field, label_where, seeds))
    given, wanted = _listed(paths), _listed(seeds) if seeds is not None else None
    with model_folder(output, FORMAT) as folder:
        if wanted is not None:
            sampled = _from_seeds(given, wanted, text_field, seed, max_rows, format_name)
        else:
            column = None if label_where is not None else label_field or "label"
            rows = InputRows(given, text_field, column, label_where, format_name=format_name)
            sampled = _sampled(rows, TextSample(max_rows, SAMPLE_BYTES, seed))
        _check_labels(sampled, features, kind)
        return _train(sampled, output, folder, kind, features, epochs, test_share, seed, embedding_field)


def evaluate_classifier(
    folder: str,
    paths: str | Sequence[str],
    *,
    text_field: str = "text",
    label_field: str = "label",
    embedding_field: str | None = None,
    max_rows: int = SAMPLE_ROWS,
    format_name: str | None = None,
) -> Evaluation:
    """Evaluate a model on other texts with labels.

    Texts with labels that the model does not have are counted in ``unseen`` and left out of all other figures.

    Args:
        folder: The model's folder.
        paths: JSON lines, Parquet or CSV files, directories or patterns.
        text_field: The column with the text.
        label_field: The column with the label.
        embedding_field: The column with the vectors, for a model that was trained on embeddings: that of the training
            when not given.
        max_rows: If there are more texts, a sample of about so many is used.
        format_name: The format of the files; by their names when not given.
    """
    model = load_text_classifier(folder, "evaluate_classifier")
    rows = InputRows(_listed(paths), text_field, label_field, format_name=format_name)
    sampled = _sampled(rows, TextSample(max_rows, SAMPLE_BYTES, 0))
    vectors = None
    if isinstance(model.features, VectorFeatures):
        sampled, vectors, _ = _with_vectors(sampled, embedding_field or model.features.embedding_field, 0)
    places = np.array([model.labels.index(name) if name in model.labels else -1 for name in sampled.labels], np.int32)
    truth = places[sampled.truth] if len(sampled.truth) else sampled.truth
    unseen = {name: int((sampled.truth == n).sum()) for n, name in enumerate(sampled.labels) if places[n] < 0}
    if not (truth >= 0).any():
        raise DataError(
            f"none of its rows has a text and one of the model's labels, {', '.join(map(repr, model.labels))}",
            path=", ".join(_listed(paths)),
        )
    texts = sampled.texts.filter(arrow_array(truth >= 0))
    if vectors is None:
        shares = model.probabilities(texts)
    else:
        shares = model.probabilities_of_vectors(vectors[truth >= 0], "evaluate_classifier")
    return evaluate(model.labels, shares, truth[truth >= 0], texts, unseen)


def _check(
    kind: str, embedding_field: str | None, epochs: int, test_share: float, max_rows: int, labels: Sequence[Any]
) -> None:
    if kind not in KINDS:
        raise PlanError(f"kind={kind!r}: must be one of {', '.join(map(repr, KINDS))}.{did_you_mean(kind, KINDS)}")
    if kind == "embeddings" and embedding_field is None:
        raise PlanError("kind='embeddings': give embedding_field, the column with the vectors")
    if kind == "fasttext" and embedding_field is not None:
        raise PlanError("kind='fasttext' is for texts; leave out embedding_field, or kind")
    if epochs < 1:
        raise PlanError(f"epochs={epochs}: must be at least 1")
    if not 0 <= test_share <= 0.8:
        raise PlanError(f"test_share={test_share}: must be from 0 to 0.8")
    if max_rows < 10:
        raise PlanError(f"max_rows={max_rows}: must be at least 10")
    if sum(one is not None for one in labels) > 1:
        raise PlanError("set only one of label_field, label_where and seeds")


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else [str(path) for path in paths]


def _sampled(rows: InputRows, sample: TextSample) -> _Sampled:
    """A sample of texts, with labels in the order of their names."""
    names: dict[str, int] = {}
    for texts, labels in rows.batches():
        assert labels is not None
        encoded = labels.dictionary_encode()
        numbers = [names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()]
        if len(names) > _MOST_LABELS:
            raise DataError(
                f"it has more than {_MOST_LABELS:,} different labels, such as {', '.join(map(repr, list(names)[:3]))}",
                path=", ".join(rows.paths),
                hint="Is it the column with the labels? A column of numbers becomes two labels with a condition: "
                '--label-where "score >= 0.5" (label_where in Python).',
            )
        sample.add(
            texts, np.array(numbers, np.int32)[np.asarray(encoded.indices)] if numbers else np.zeros(0, np.int32)
        )
    texts, truth, keys = sample.finish()
    ordered = sorted(names)
    places = np.array([ordered.index(name) for name in names], np.int32)
    seen = {name: int(sample.seen[number]) for name, number in names.items()}
    truth = places[truth] if len(truth) else truth
    return _Sampled(ordered, texts, truth, keys, rows.counts, dict(sorted(seen.items())), sample.is_whole, [rows])


def _with_vectors(sampled: _Sampled, field: str, seed: int) -> tuple[_Sampled, NDArray[np.float32], int]:
    """The texts that have a vector, their vectors, and how many have none."""
    found = VectorsOfTexts(sampled.keys)
    for source in sampled.sources:
        replace(source).add_vectors(found, field, seed)
    vectors, is_there = found.finish()
    texts, truth, keys = sampled.texts.filter(arrow_array(is_there)), sampled.truth[is_there], sampled.keys[is_there]
    return replace(sampled, texts=texts, truth=truth, keys=keys), vectors[is_there], int((~is_there).sum())


def _from_seeds(
    paths: list[str], seeds: list[str], text_field: str, seed: int, max_rows: int, format_name: str | None
) -> _Sampled:
    wanted = _sampled(
        InputRows(seeds, text_field, label=SEED_LABEL, format_name=format_name),
        TextSample(max_rows // 2, SAMPLE_BYTES // 2, seed, 0),
    )
    count = min(max(_OTHERS_PER_SEED * len(wanted.texts), _LEAST_OTHERS), max_rows)
    others = _sampled(
        InputRows(paths, text_field, label=OTHER_LABEL, format_name=format_name),
        TextSample(count, SAMPLE_BYTES // 2, seed, 0),
    )
    # A seed that is among the other texts, too, is a seed.
    other = ~np.isin(others.keys, wanted.keys)
    keys = np.concatenate([wanted.keys, others.keys[other]])
    order = np.argsort(keys, kind="stable")
    texts = pa.concat_arrays([wanted.texts, others.texts.filter(arrow_array(other))]).take(arrow_array(order))
    truth = np.repeat(np.array([1, 0], np.int32), [len(wanted.keys), int(other.sum())])[order]
    return _Sampled(
        [OTHER_LABEL, SEED_LABEL],
        texts,
        truth,
        keys[order],
        wanted.counts + others.counts,
        {**others.seen, **wanted.seen},
        wanted.is_whole and others.is_whole,
        [*wanted.sources, *others.sources],
    )


def _check_labels(sampled: _Sampled, features: Features, kind: str) -> None:
    counts = sampled.counts
    if not len(sampled.texts):
        unreadable = f"; {counts.unreadable:,} more could not be read" if counts.unreadable else ""
        raise DataError(
            f"there is nothing to learn from: of {counts.rows:,} rows, {counts.without_text:,} have no text and "
            f"{counts.without_label:,} no label{unreadable}"
        )
    if len(np.unique(sampled.truth)) < 2:
        raise DataError(
            f"every text has the label {sampled.labels[int(sampled.truth[0])]!r}: a classifier needs two labels",
            hint="To find texts like these in others, give them as seeds: tamis train-classifier OTHERS --seeds THESE "
            "(seeds in Python).",
        )
    of_each = np.bincount(sampled.truth, minlength=len(sampled.labels))
    few = [f"{name!r} has {n}" for name, n in zip(sampled.labels, of_each.tolist(), strict=True) if n < LEAST_ROWS]
    if few:
        raise DataError(
            f"each label needs at least {LEAST_ROWS} different texts, but {', '.join(few[:5])}"
            f"{' and more' if len(few) > 5 else ''}",
            hint="Add texts with these labels, join them with others, or leave them out.",
        )
    if kind == "linear" and len(sampled.labels) << features.bits > _MOST_WEIGHTS:
        raise PlanError(
            f"{len(sampled.labels)} labels with 2 ** {features.bits} slots are more than {_MOST_WEIGHTS:,} weights: "
            "choose fewer bits"
        )


def _train(
    sampled: _Sampled,
    output: str,
    folder: Path,
    kind: str,
    features: Features,
    epochs: int,
    test_share: float,
    seed: int,
    embedding_field: str | None,
) -> TrainedModel:
    vectors, without_vector = None, 0
    if embedding_field is not None:
        sampled, vectors, without_vector = _with_vectors(sampled, embedding_field, seed)
        _check_labels(sampled, features, kind)
    names, texts = sampled.labels, cut_texts(sampled.texts, features.max_bytes)
    groups = groups_of(texts)
    parts = parts_of(groups, sampled.keys, sampled.truth, CALIBRATION_SHARE, test_share)
    seen: Any = texts if vectors is None else vectors
    of_part = [(_chosen(seen, parts == part), sampled.truth[parts == part]) for part in range(3)]
    train, held_out, test = of_part[TRAIN], of_part[CALIBRATION], of_part[TEST]
    looks_at: Features | VectorFeatures = features
    if vectors is not None and embedding_field is not None:
        looks_at = VectorFeatures(embedding_field, vectors.shape[1])
        fitted = fit_vectors(*train, len(names), LinearTraining(epochs), seed, held_out)
        fitted.save(folder / WEIGHTS[kind])
        weights: Any = fitted
    elif kind == "linear":
        linear = fit_linear(*train, len(names), features, LinearTraining(epochs), seed, held_out)
        linear.save(folder / WEIGHTS[kind])
        weights = linear
    else:
        path = folder / WEIGHTS[kind]
        weights = fit_fasttext(*train, len(names), path, epochs, features.longest, seed)
    notes = _notes(sampled, groups, parts)
    if without_vector:
        notes.append(f"{without_vector:,} texts have no vector and were left out.")
    temperature = 1.0
    if len(held_out[1]) >= _LEAST_CALIBRATION:
        temperature = fit_temperature(weights.scores(held_out[0]), held_out[1])
    else:
        notes.append(f"There are fewer than {_LEAST_CALIBRATION} texts for calibration: probabilities are as trained.")
    shown, scores = _chosen(texts, parts == TEST), weights.scores(test[0])
    before = evaluate(names, softmax(scores), test[1], shown)
    found = evaluate(names, softmax(scores / temperature), test[1], shown)
    missing = [figures.label for figures in found.by_label if not figures.rows]
    if missing and test_share:
        some = ", ".join(map(repr, missing[:5]))
        notes.append(f"The test has no text with {some}: too few texts differ enough to be split.")
    training = {
        "texts": {"training": len(train[1]), "calibration": len(held_out[1]), "test": len(test[1])},
        "rows_read": asdict(sampled.counts),
        "rows_by_label": sampled.seen,
        "content": hashlib.sha256(np.ascontiguousarray(np.sort(sampled.keys), "<u8").tobytes()).hexdigest(),
        "seed": seed,
        "epochs": epochs,
        "calibration_error_before": before.calibration_error,
    }
    save_config(folder, TextClassifier(tuple(names), kind, looks_at, weights, temperature), training)
    trained = TrainedModel(output, names, sampled.counts, training, found, temperature, notes)
    written = json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n"
    (folder / EVALUATION).write_text(written, encoding="utf-8")
    (folder / "README.md").write_text(card_text(trained, kind, looks_at), encoding="utf-8")
    return trained


def _chosen(seen: Any, is_chosen: NDArray[np.bool_]) -> Any:
    """Some of the texts, or of the vectors."""
    return seen[is_chosen] if isinstance(seen, np.ndarray) else seen.filter(arrow_array(is_chosen))


def _notes(sampled: _Sampled, groups: NDArray[np.int64], parts: NDArray[np.int8]) -> list[str]:
    notes = []
    counts = sampled.counts
    total = sum(sampled.seen.values())
    if not sampled.is_whole:
        notes.append(f"Trained on a sample: {len(sampled.texts):,} of {total:,} texts with labels.")
    elif len(sampled.texts) < total:
        notes.append(f"{total - len(sampled.texts):,} rows repeat the text and label of another; each counts once.")
    left_out = {"have no text": counts.without_text, "have no label": counts.without_label}
    notes += [f"{number:,} rows {what} and were left out." for what, number in left_out.items() if number]
    if counts.unreadable:
        notes.append(f"{counts.unreadable:,} rows could not be read and were left out.")
    conflicts = len(sampled.keys) - len(np.unique(sampled.keys))
    if conflicts:
        notes.append(f"{conflicts:,} texts have more than one label.")
    near = len(groups) - len(np.unique(groups)) - conflicts
    if near > 0:
        notes.append(f"{near:,} texts are nearly equal to another one; such texts are in the same part.")
    return notes
