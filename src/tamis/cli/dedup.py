"""``tamis dedup``."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Any, Final

from tamis.cli.dedup_arguments import STAGE_OPTIONS
from tamis.cli.output import print_json, write

if TYPE_CHECKING:
    from tamis.pipeline import Pipeline
    from tamis.runs.progress import ProgressKind
    from tamis.runs.result import RunResult
    from tamis.runs.stats import StageStats
    from tamis.stages.base import ProcessingStage
    from tamis.stages.io.readers import Reader

_EMBEDDINGS_HINT: Final = (
    "Name the column with the vectors: --embedding-field. Or embed the texts first: --model hashed, or another model."
)
_OF_ROWS: Final = ("exact", "fuzzy", "semantic")
"""The ways to remove whole rows."""

_STAGES: Final = {
    "exact": ("tamis.stages.deduplication.exact", "ExactDeduplication"),
    "fuzzy": ("tamis.stages.deduplication.fuzzy", "FuzzyDeduplication"),
    "semantic": ("tamis.stages.deduplication.semantic", "SemanticDeduplication"),
    "lines": ("tamis.stages.deduplication.lines", "LineDeduplication"),
    "substrings": ("tamis.stages.deduplication.substrings", "SubstringDeduplication"),
}


def run(arguments: argparse.Namespace) -> int:
    """Deduplicate files; show progress on stderr and the result on stdout."""
    if arguments.kind == "estimate":
        from tamis.cli.dedup_estimate import run as run_estimate

        return run_estimate(arguments)
    from tamis.cli.run import exit_status
    from tamis.pipeline.recipe import OF_THE_RUN, RunSettings

    pipeline = _pipeline(arguments)
    names = ("executor", "address", "workers", "run_dir", "scratch", "failure_budget")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    settings = RunSettings(**given)
    own = {name: getattr(settings, name) for name in OF_THE_RUN}
    progress: ProgressKind = "off" if arguments.quiet else arguments.progress
    result = pipeline.run(settings.make_executor(), progress=progress, fresh=arguments.fresh, **own)
    if arguments.json:
        print_json(_figures(result, arguments))
    elif not arguments.quiet:
        _show(result, arguments)
    return exit_status(result)


def stage_settings(arguments: argparse.Namespace, kind: str) -> dict[str, Any]:
    """The parameters of a stage that were given."""
    return {name: getattr(arguments, name) for name in STAGE_OPTIONS[kind] if name in arguments}


def reader_of(arguments: argparse.Namespace) -> Reader:
    """What reads the input; an error if it does not have the column with the text, or with the embeddings."""
    from tamis.analysis.inputs import check_columns, reader_for

    text_field = getattr(arguments, "text_field", "text")
    paths = sorted(arguments.input)  # so that their order does not matter: of equal lines, the first stays
    reader = reader_for(paths, arguments.input_format, text_field, whole=True, option="--input-format")
    if arguments.kind != "semantic" or arguments.model:
        check_columns(reader, text_field)
    else:
        check_columns(reader, getattr(arguments, "embedding_field", "embeddings"), _EMBEDDINGS_HINT)
    return reader


def _pipeline(arguments: argparse.Namespace) -> Pipeline:
    from tamis.errors import PlanError
    from tamis.pipeline import Pipeline
    from tamis.stages.io import JsonlWriter, ParquetReader, ParquetWriter

    reader = reader_of(arguments)
    module, name = _STAGES[arguments.kind]
    try:
        stage = getattr(importlib.import_module(module), name)(**stage_settings(arguments, arguments.kind))
    except ValueError as error:
        raise PlanError(str(error)) from error
    written = arguments.format or ("parquet" if isinstance(reader, ParquetReader) else "jsonl")
    writer = ParquetWriter if written == "parquet" else JsonlWriter
    mode = "overwrite" if arguments.overwrite else "error"
    stages = [stage] if arguments.kind != "semantic" else _with_embeddings(arguments, stage)
    return Pipeline(
        f"dedup {arguments.kind}", "", [reader, *stages, writer(arguments.output, mode=mode).with_(name="write")]
    )


def _with_embeddings(
    arguments: argparse.Namespace, stage: ProcessingStage[Any, Any]
) -> list[ProcessingStage[Any, Any]]:
    """The stage, and with ``--model`` what embeds the texts before it."""
    if not arguments.model:
        return [stage]
    from tamis.stages.deduplication.semantic.embedding import embedding_stage
    from tamis.stages.text.columns import DropColumns

    column = getattr(arguments, "embedding_field", "embeddings")
    embedding = embedding_stage(arguments.model, getattr(arguments, "text_field", "text"), column)
    return [embedding, stage, *([] if arguments.keep_embeddings else [DropColumns([column])])]


def _figures(result: RunResult, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was removed, for programs."""
    stage = result.stage(_STAGES[arguments.kind][1])
    rows: dict[str, Any] = {"rows": _rows_in(stage), "removed": stage.rows_dropped, **stage.custom}
    if arguments.kind in _OF_ROWS:
        found = result.duplicates(stage.name)
        rows |= {"groups": found.groups, "sizes": found.sizes}
    return {**rows, "run_dir": str(result.run_dir), "output": arguments.output, "summary": result.summary.to_dict()}


def _show(result: RunResult, arguments: argparse.Namespace) -> None:
    from tamis.runs import figures

    stage = result.stage(_STAGES[arguments.kind][1])
    rows = _rows_in(stage)
    share = f" ({figures.percent(stage.rows_dropped / rows)})" if rows else ""
    took = figures.duration(result.summary.seconds)
    told = f"{figures.number(stage.rows_dropped)} of {figures.number(rows)} rows{share} in {took}"
    if arguments.kind in _OF_ROWS:
        totals = result.duplicates(stage.name).totals
        largest = f", the largest of {figures.number(totals.largest)} rows" if totals.groups else ""
        told += f"; {figures.number(totals.groups)} groups{largest}"
    for name, value in stage.custom.items():
        words = name.replace("_", " ")
        told += f"; {words} {figures.size(value) if 'bytes' in name else figures.number(value)}"
    summary = result.summary
    write(f"removed  {told}")
    write(
        f"output   {arguments.output}: {figures.number(summary.output_rows)} rows in "
        f"{figures.number(summary.output_files)} file{'s' * (summary.output_files != 1)}, "
        f"{figures.size(summary.output_bytes)}"
    )
    write(f"report   {result.run_dir}/report.html")


def _rows_in(stage: StageStats) -> int:
    from tamis.runs import figures

    return figures.steps([stage])[0].before
