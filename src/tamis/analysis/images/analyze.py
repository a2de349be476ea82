"""Run an analysis of images, from the input to the page."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from tamis.analysis.files import check_amount, check_output, write_file
from tamis.analysis.images.duplicates import equal_groups, near_groups
from tamis.analysis.images.inputs import ImageFormat, count_images, image_reader
from tamis.analysis.images.page import image_page
from tamis.analysis.images.result import ImageAnalysis
from tamis.analysis.images.tables import image_score_table
from tamis.analysis.thresholds import bound_fields, chosen, propose, propose_together
from tamis.errors import DataError
from tamis.pipeline import Pipeline
from tamis.stages.image.statistics import ImageStatistics
from tamis.stages.text.filters import ScoreFilter

__all__ = ["DEFAULT_IMAGES", "analyze_images"]

DEFAULT_IMAGES: Final = 20_000
"""About how many images are measured by default."""


def analyze_images(
    paths: str | Sequence[str],
    *,
    output: str = "tamis-analysis",
    sample: int | None = None,
    fraction: float | None = None,
    everything: bool = False,
    format_name: ImageFormat | None = None,
    keep_rate: float = 0.9,
    filters: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Literal["auto", "live", "plain", "off"] = "auto",
) -> ImageAnalysis:
    """Analyze images: sizes, formats, broken files, duplicates, captions, and which thresholds of filters fit them.

    Writes a page (``index.html``), all distributions (``scores.parquet``), the figures of each image
    (``sample.parquet``) and a recipe with the proposed thresholds (``recipe.yaml``). The figures of all images that are
    measured are held in memory, about 300 bytes each.

    Args:
        paths: A folder, a file or a pattern, or several: image files, tars in the layout of WebDataset, or Parquet.
        output: The directory for the results. Those of an earlier analysis are replaced.
        sample: About how many images to measure, chosen by their names; 20,000 by default.
        fraction: The share of the images to measure instead, 0 to 1.
        everything: Whether to measure all images instead.
        format_name: ``"tar"``, ``"folder"`` or ``"parquet"``; by the files' names when not given.
        keep_rate: The share of images that the proposed thresholds should keep, 0 to 1.
        filters: Names of the filters to propose thresholds for together; all by default.
        workers: How many tasks are processed at the same time; all cores by default.
        progress: What is shown while it runs.

    >>> import tempfile
    >>> from tamis.quickstart import sample_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = analyze_images(sample_images()[0], output=folder, progress="off")
    >>> found.images > 20, len(found.broken) > 0
    (True, True)
    """
    check_amount(sample, fraction, everything, keep_rate)
    began = time.monotonic()
    given = [str(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    check_output(output, given)
    reader = image_reader(given, format_name)
    if not everything and fraction is None:
        wanted, count = sample or DEFAULT_IMAGES, count_images(reader)
        fraction = 1.0 if count is None else min(wanted / max(count, 1), 1.0)
    stage = ImageStatistics(fraction=fraction or 1.0)
    proposed_for = chosen(stage.chosen_filters, filters)
    result = _run(reader, stage, output, workers, progress)
    parts = [pl.from_arrow(task.data) for task in result]
    shutil.rmtree(os.path.join(result.run_dir, "outputs"), ignore_errors=True)  # the figures are in sample.parquet
    Path(result.run_dir, "outputs.jsonl").unlink(missing_ok=True)
    table = pl.concat([part for part in parts if isinstance(part, pl.DataFrame)], how="vertical") if parts else None
    if table is None or not table.height:
        raise DataError("it contains no images", path=", ".join(given))
    table = table.sort("source", "position", "part")
    whole = table.filter(pl.col("problem").is_null())
    scores = {one.name: whole[one.name].to_numpy() for one in stage.chosen_filters}
    together = propose_together(proposed_for, scores, keep_rate) if whole.height else []
    alone = {one.name: propose(one, scores, keep_rate) for one in stage.chosen_filters if any(bound_fields(one))}
    analysis = ImageAnalysis(
        paths=given,
        fraction=stage.fraction,
        table=table,
        exact=equal_groups(table, "bytes_hash"),
        pixels=equal_groups(table, "pixels_hash"),
        near=near_groups(table),
        filters=stage.chosen_filters,
        keep_rate=keep_rate,
        alone=alone if whole.height else {},
        together=together,
        recipe=_recipe(reader, [proposal.filter for proposal in together]),
        quarantined=sum(stats.quarantined for stats in result.stages),
        seconds=time.monotonic() - began,
        output=output,
    )
    write_image_analysis(analysis)
    return analysis


def write_image_analysis(analysis: ImageAnalysis) -> None:
    """Write the page and the tables, each whole or not at all."""
    folder = Path(analysis.output)
    write_file(folder / "scores.parquet", lambda path: image_score_table(analysis).write_parquet(path))
    write_file(folder / "sample.parquet", lambda path: analysis.table.write_parquet(path))
    write_file(folder / "recipe.yaml", lambda path: path.write_text(analysis.recipe, encoding="utf-8"))
    write_file(folder / "index.html", lambda path: path.write_text(image_page(analysis), encoding="utf-8"))


def _run(
    reader: Any,
    stage: ImageStatistics,
    output: str,
    workers: int | None,
    progress: Literal["auto", "live", "plain", "off"],
) -> Any:
    from tamis.backends.local import LocalExecutor

    run_dir = os.path.join(output, "run")
    if os.path.exists(os.path.join(run_dir, "run.json")):
        shutil.rmtree(run_dir)
    pipeline = Pipeline("analyze", "Analyzes images.", [reader, stage.with_(name="measure")])
    return pipeline.run(LocalExecutor(workers), run_dir=run_dir, progress=progress)


def _recipe(reader: Any, filters: list[Any]) -> str:
    """A recipe with the proposed thresholds."""
    from tamis.stages.io import ParquetWriter

    stages = [reader, *([ScoreFilter(filters)] if filters else []), ParquetWriter("curated")]
    return Pipeline("proposed", "Thresholds that tamis analyze proposes.", stages).to_recipe()
