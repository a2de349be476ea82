"""``tamis train-classifier``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tamis.cli.output import print_json, write

if TYPE_CHECKING:
    from tamis.training import TrainedModel

_MOST_LABELS = 20


def run(arguments: argparse.Namespace) -> int:
    """Train a classifier and show how good it is."""
    from tamis.errors import PlanError
    from tamis.models.text_classifier import Features
    from tamis.training import train_classifier

    try:
        features = Features(arguments.unit, arguments.ngrams, arguments.bits, arguments.max_bytes or None)
    except ValueError as error:
        raise PlanError(str(error)) from error
    trained = train_classifier(
        arguments.input,
        arguments.output,
        text_field=arguments.text,
        label_field=arguments.label,
        label_where=arguments.label_where,
        seeds=arguments.seeds,
        kind=arguments.kind,
        embedding_field=arguments.embeddings,
        features=features,
        epochs=arguments.epochs,
        test_share=arguments.test_share,
        seed=arguments.seed,
        max_rows=arguments.max_rows,
        format_name=arguments.format,
    )
    if arguments.json:
        print_json(trained.to_dict())
    elif not arguments.quiet:
        _show(trained)
    return 0


def _show(trained: TrainedModel) -> None:
    from tamis.runs import figures

    found, texts = trained.evaluation, trained.training["texts"]
    write(
        f"texts    {figures.number(texts['training'])} for training, {figures.number(texts['calibration'])} for "
        f"calibration, {figures.number(texts['test'])} for the test"
    )
    for note in trained.notes:
        write(f"         {note}")
    if found.rows:
        write(
            f"test     accuracy {_share(found.accuracy)}, macro F1 {_share(found.macro_f1)}, "
            f"calibration error {_share(found.calibration_error)}"
        )
        width = max(len(label) for label in trained.labels[:_MOST_LABELS])
        for of_label in found.by_label[:_MOST_LABELS]:
            write(
                f"         {of_label.label:<{width}}  precision {_share(of_label.precision)}  "
                f"recall {_share(of_label.recall)}  F1 {_share(of_label.f1)}  ({figures.number(of_label.rows)} texts)"
            )
    write(f"model    {trained.folder}")
    write(f"card     {trained.folder}/README.md")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
