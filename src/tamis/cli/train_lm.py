"""``tamis train-lm``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tamis.cli.output import complain, print_json, write

if TYPE_CHECKING:
    from tamis.training.language_model import TrainedLanguageModel

_MISUSED = 2


def run(arguments: argparse.Namespace) -> int:
    """Train an n-gram language model, or turn one in the ARPA format into a file of tamis."""
    if bool(arguments.input) == bool(arguments.arpa):
        complain("give either texts or --arpa FILE")
        return _MISUSED
    if arguments.arpa:
        return _convert(arguments)
    from tamis.training import train_language_model

    trained = train_language_model(
        arguments.input,
        arguments.output,
        order=arguments.order,
        unit=arguments.unit,
        text_field=arguments.text,
        min_unit_count=arguments.min_unit_count,
        min_counts=arguments.min_counts,
        max_bytes=arguments.max_bytes,
        exact=arguments.exact,
        seed=arguments.seed,
        format_name=arguments.format,
    )
    if arguments.json:
        print_json(trained.to_dict())
    elif not arguments.quiet:
        _show(trained)
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    from tamis.runs import figures
    from tamis.training.language_model import convert_arpa

    model = convert_arpa(arguments.arpa, arguments.output)
    if not arguments.quiet:
        size = figures.size(os.path.getsize(arguments.output))
        write(f"model    {arguments.output}: {model.table.order}-grams, {size}")
    return 0


def _show(trained: TrainedLanguageModel) -> None:
    from tamis.runs import figures

    part = "" if trained.is_whole else ", a sample of the input"
    write(f"texts    {figures.number(trained.texts)}, {figures.number(trained.units)} {trained.unit}s{part}")
    for n, (kept, pruned) in enumerate(zip(trained.ngrams, trained.pruned, strict=True), start=1):
        left_out = f", {figures.number(pruned)} rare ones left out" if pruned else ""
        write(f"         {figures.number(kept)} {n}-grams{left_out}")
    if trained.perplexity is not None and trained.unknown_share is not None:
        write(
            f"others   perplexity {trained.perplexity:,.1f} on texts that were not used; "
            f"{figures.percent(trained.unknown_share)} of their units are unknown"
        )
        quantiles = ", ".join(f"{float(q):.0%} up to {value:,.0f}" for q, value in trained.quantiles.items())
        write(f"         of these texts {quantiles}")
    write(f"model    {trained.path}, {figures.size(trained.nbytes)}")
