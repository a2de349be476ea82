"""The card of a trained classifier: a Markdown page that says what it is and how good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tamis
from tamis.models.text_classifier import Features, VectorFeatures

if TYPE_CHECKING:
    from tamis.training.classifier import TrainedModel

__all__ = ["card_text"]

_MOST_LABELS = 30
_UNITS = {"token": "words and marks, in lower case", "word": "words", "character": "characters"}


def card_text(trained: TrainedModel, kind: str, features: Features | VectorFeatures) -> str:
    """The card.

    Args:
        trained: What was trained.
        kind: The kind of classifier.
        features: What it looks at.
    """
    found, texts = trained.evaluation, trained.training["texts"]
    name = Path(trained.folder).name
    what, given = _what(kind, features)
    parts = [
        f"# {name}",
        f"A text classifier trained with tamis {tamis.__version__}: {what}.",
        f"Labels: {', '.join(f'`{label}`' for label in trained.labels)}.",
        "## Use",
        "```python\nfrom tamis.stages.text.trained_classifier import TrainedClassifier\n\n"
        f"stage = TrainedClassifier(model={_quoted(name)}, filter_by=[{_quoted(trained.labels[-1])}]{given})\n```",
        "## Training",
        f"{texts['training']:,} texts for training, {texts['calibration']:,} for calibration, {texts['test']:,} for "
        f"the test; seed {trained.training['seed']}. Texts that are equal or nearly equal are in the same part.",
        _table(["label", "rows read"], [[_cell(k), f"{v:,}"] for k, v in trained.training["rows_by_label"].items()]),
        *(f"- {note}" for note in trained.notes),
        "## Evaluation",
    ]
    if not found.rows:
        return "\n\n".join([*parts, "There was no text for a test.", ""])
    parts.append(
        f"On {found.rows:,} texts that were not used for training: accuracy {_share(found.accuracy)}, "
        f"macro F1 {_share(found.macro_f1)}."
    )
    rows = [
        [_cell(f.label), f"{f.rows:,}", _share(f.precision), _share(f.recall), _share(f.f1)] for f in found.by_label
    ]
    parts.append(_table(["label", "texts", "precision", "recall", "F1"], rows))
    if len(trained.labels) <= _MOST_LABELS:
        parts.append("Rows are the labels of the texts, columns what was predicted:")
        counts = [[_cell(one), *map(str, row)] for one, row in zip(trained.labels, found.confusion, strict=True)]
        parts.append(_table(["", *map(_cell, trained.labels)], counts))
    before = trained.training["calibration_error_before"]
    parts += [
        "### Calibration",
        f"Scores are divided by {trained.temperature:g}. The expected calibration error is "
        f"{_share(found.calibration_error)} ({_share(before)} without).",
        _table(
            ["probability", "texts", "mean probability", "share that was right"],
            [
                [f"{b.low:.1f} to {b.high:.1f}", f"{b.rows:,}", _share(b.confidence), _share(b.accuracy)]
                for b in found.reliability
                if b.rows
            ],
        ),
    ]
    if found.thresholds:
        parts += [
            "### Thresholds",
            "What `min_score` keeps:",
            _table(
                ["label", "min_score", "texts kept", "precision", "recall"],
                [
                    [_cell(t.label), f"{t.min_score:g}", _share(t.kept), _share(t.precision), _share(t.recall)]
                    for t in found.thresholds
                ],
            ),
        ]
    doubts = [[f"{d.score:.3f}", _cell(d.label), _cell(d.predicted), _cell(d.text)] for d in found.doubtful]
    parts += ["### Least certain", _table(["probability", "label", "predicted", "text"], doubts), ""]
    return "\n\n".join(parts)


def _what(kind: str, features: Features | VectorFeatures) -> tuple[str, str]:
    """What was trained, and a further argument of the stage that uses it."""
    if isinstance(features, VectorFeatures):
        given = f", embedding_field={_quoted(features.embedding_field)}"
        column = f"`{features.embedding_field}`, of {features.length:,} numbers, scaled to length 1"
        return f"a multinomial logistic regression on the vectors in the column {column}", given
    what = (
        f"a multinomial logistic regression on hashed n-grams: 1 to {features.longest} {_UNITS[features.unit]}"
        if kind == "linear"
        else f"a fastText model on n-grams of 1 to {features.longest} words"
    )
    return what + ("" if features.max_bytes is None else f", of the first {features.max_bytes:,} bytes of a text"), ""


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
