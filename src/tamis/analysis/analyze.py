"""Run an analysis, from the input to the page."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from tamis.analysis.files import check_amount, check_output, write_file
from tamis.analysis.inputs import (
    ChosenSplits,
    Coverage,
    check_columns,
    choose,
    partitioning_of,
    reader_for,
    url_field_in,
    whole_blocks,
)
from tamis.analysis.page import analysis_page
from tamis.analysis.result import Analysis
from tamis.analysis.tables import score_table
from tamis.analysis.thresholds import Proposal, bound_fields, chosen, propose, propose_together
from tamis.errors import DataError, MissingExtraError
from tamis.models.language import built_in_languages
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.io import JsonlWriter
from tamis.stages.io.readers import Reader
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.stages.text.statistics import TextStatistics, TextSummary, merge_summaries

DEFAULT_SAMPLE: Final = 100_000
"""About how many documents are analyzed by default."""

MAX_SAMPLE: Final = 100_000
"""How many documents are kept with their scores."""


def analyze(
    paths: str | Sequence[str],
    *,
    output: str = "tamis-analysis",
    sample: int | None = None,
    fraction: float | None = None,
    everything: bool = False,
    text_field: str = "text",
    format_name: str | None = None,
    keep_rate: float = 0.9,
    filters: Sequence[str] | None = None,
    languages: bool = True,
    workers: int | None = None,
    progress: Literal["auto", "live", "plain", "off"] = "auto",
) -> Analysis:
    """Analyze a data set: what is in it, what the heuristic filters would drop, which thresholds fit it.

    Writes a page (``index.html``), all distributions (``scores.parquet``), the scores of the documents in the sample
    (``sample.parquet``) and a recipe with the proposed thresholds (``recipe.yaml``).

    Args:
        paths: A file, a directory or a pattern, or several: JSON lines, Parquet, CSV or text.
        output: The directory for the results. Those of an earlier analysis are replaced.
        sample: About how many documents to analyze, spread over the whole input; 100,000 by default.
        fraction: The share of the documents to analyze instead, 0 to 1.
        everything: Whether to analyze all documents instead.
        text_field: The column with the text.
        format_name: ``"jsonl"``, ``"parquet"``, ``"csv"``, ``"tsv"`` or ``"text"``; by the files' names when not given.
        keep_rate: The share of documents that the proposed thresholds should keep, 0 to 1.
        filters: Names of the filters to propose thresholds for together; all by default.
        languages: Whether to identify languages, which needs the extra ``language`` and takes the longest.
        workers: How many tasks are processed at the same time; all cores by default.
        progress: What is shown while it runs.

    >>> import tempfile
    >>> from tamis.quickstart import sample_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = analyze(sample_files()[3], output=folder, everything=True, progress="off")
    >>> found.documents, found.proposed_share() >= 0.9
    (173, True)
    """
    check_amount(sample, fraction, everything, keep_rate)
    began = time.monotonic()
    given = [str(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    check_output(output, given)
    reader = reader_for(given, format_name, text_field, whole=everything)
    url_field = url_field_in(check_columns(reader, text_field))
    no_languages = _why_no_languages() if languages else "Languages were not identified, as requested."
    wanted = None if everything or fraction is not None else sample or DEFAULT_SAMPLE
    coverage = choose(reader, wanted, fraction, MAX_SAMPLE)
    stage = TextStatistics(
        text_field,
        url_field,
        fraction=coverage.fraction,
        languages=not no_languages,
        max_sample=MAX_SAMPLE,
        sampled=coverage.sampled,
    )
    proposed_for = chosen(stage.chosen_filters, filters)
    result = _run(reader, coverage, stage, output, workers, progress)
    summary = merge_summaries(TextSummary.from_table(task.data) for task in result)
    # The summaries of single batches say nothing more.
    shutil.rmtree(os.path.join(result.run_dir, "outputs"), ignore_errors=True)
    Path(result.run_dir, "outputs.jsonl").unlink(missing_ok=True)
    if summary is None or not summary.total("documents"):
        raise DataError("it contains no documents", path=", ".join(given))
    scores = {one.name: summary.sample[one.name].to_numpy() for one in stage.chosen_filters}
    scores["words"] = summary.sample["words"].to_numpy()
    together = propose_together(proposed_for, scores, keep_rate)
    analysis = Analysis(
        paths=given,
        text_field=text_field,
        url_field=url_field,
        coverage=coverage,
        summary=summary,
        filters=stage.chosen_filters,
        keep_rate=keep_rate,
        alone={one.name: propose(one, scores, keep_rate) for one in stage.chosen_filters if any(bound_fields(one))},
        together=together,
        recipe=_recipe(reader, text_field, together),
        quarantined=sum(stats.quarantined for stats in result.stages),
        seconds=time.monotonic() - began,
        no_languages=no_languages,
        output=output,
    )
    write_analysis(analysis)
    return analysis


def write_analysis(analysis: Analysis) -> None:
    """Write the page and the tables, each whole or not at all."""
    folder = Path(analysis.output)
    write_file(folder / "scores.parquet", lambda path: score_table(analysis).write_parquet(path))
    write_file(folder / "sample.parquet", lambda path: analysis.sample.write_parquet(path))
    write_file(folder / "recipe.yaml", lambda path: path.write_text(analysis.recipe, encoding="utf-8"))
    write_file(folder / "index.html", lambda path: path.write_text(analysis_page(analysis), encoding="utf-8"))


def _why_no_languages() -> str:
    """Why languages cannot be identified; empty if they can."""
    try:
        built_in_languages()
    except MissingExtraError as e:
        return f"Languages were not identified: {e}"
    return ""


def _run(
    reader: Reader,
    coverage: Coverage,
    stage: TextStatistics,
    output: str,
    workers: int | None,
    progress: Literal["auto", "live", "plain", "off"],
) -> RunResult:
    from tamis.backends.local import LocalExecutor

    run_dir = os.path.join(output, "run")
    if os.path.exists(os.path.join(run_dir, "run.json")):
        shutil.rmtree(run_dir)
    pipeline = Pipeline(
        "analyze",
        "Analyzes a data set.",
        [
            ChosenSplits(partitioning_of(reader), coverage.below).with_(name="choose"),
            reader.reader_stage().with_(name="read"),
            stage.with_(name="measure"),
        ],
    )
    return pipeline.run(LocalExecutor(workers), run_dir=run_dir, progress=progress)


def _recipe(reader: Reader, text_field: str, together: Sequence[Proposal]) -> str:
    """A recipe with the proposed thresholds."""
    filters: list[Any] = [_as_written(proposal.filter) for proposal in together]
    stages: list[ProcessingStage[Any, Any]] = [
        whole_blocks(reader),
        *([ScoreFilter(filters, text_field=text_field)] if filters else []),
        JsonlWriter("curated"),
    ]
    return Pipeline("proposed", "Thresholds that tamis analyze proposes.", stages).to_recipe()


def _as_written(one: ThresholdFilter) -> ThresholdFilter:
    """The filter without the setting that is only needed for exact scores."""
    if hasattr(one, "stop_at_false"):
        return dataclasses.replace(one, stop_at_false=True)  # type: ignore[type-var]  # it is a dataclass
    return one
