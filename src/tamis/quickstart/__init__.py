"""The first run: a small real data set, curated from end to end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from tamis.backends.base import Executor
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.runs.report import write_report
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage

__all__ = ["quickstart_pipeline", "run_quickstart", "sample_files", "sample_images"]

WITHOUT_SPACES = ("ja", "zh")
"""Languages whose words are not separated by spaces: counting words says nothing there."""


def sample_files() -> list[str]:
    """The files of the sample data set; ``SOURCES.md`` beside them says where they come from.

    >>> len(sample_files())
    6
    """
    folder = Path(__file__).parent / "sample"
    return sorted(str(p) for p in folder.iterdir() if ".jsonl" in p.name)


def sample_images() -> list[str]:
    """The tar files of the sample images, as WebDataset has them: each image with a caption and its licence beside it.

    ``SOURCES.md`` beside them says where they come from, and ``defects.json`` which of them are copies, broken or poor.

    >>> len(sample_images())
    3
    """
    folder = Path(__file__).parent / "sample_images"
    return sorted(str(p) for p in folder.iterdir() if p.suffix == ".tar")


def quickstart_pipeline(output: str) -> Pipeline:
    """Read, clean, score and filter, deduplicate, write: what the quickstart runs.

    Args:
        output: Directory for the result: ``curated/`` for the kept rows, ``dropped/`` for the dropped ones with the
            reasons.

    >>> [stage.name for stage in quickstart_pipeline("out").stages][0]
    'JsonlReader'
    """
    from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
    from tamis.stages.flow import Dropped, Route
    from tamis.stages.io import JsonlReader, JsonlWriter
    from tamis.stages.text.filters import (
        MeanWordLengthFilter,
        NumbersFilter,
        RepeatedLinesFilter,
        ScoreFilter,
        SymbolsToWordsFilter,
        UrlsFilter,
        WhiteSpaceFilter,
        WordCountFilter,
    )
    from tamis.stages.text.modifiers import ControlCharacterRemover, Modify, NewlineNormalizer, WhitespaceCollapser

    any_language: list[Any] = [NumbersFilter(), UrlsFilter(), WhiteSpaceFilter(), RepeatedLinesFilter()]
    by_words: list[Any] = [WordCountFilter(min_words=20), MeanWordLengthFilter(), SymbolsToWordsFilter()]

    def keep(filters: list[Any], name: str) -> ProcessingStage[Any, Any]:
        aside = JsonlWriter(os.path.join(output, "dropped", name), mode="overwrite").with_(name=f"write {name}")
        return Dropped(ScoreFilter(filters).with_(name=name), to=[aside])

    return Pipeline(
        "quickstart",
        "Curates the sample data set that ships with tamis.",
        [
            JsonlReader(sample_files(), blocksize="2MiB", on_error="quarantine"),
            Modify([ControlCharacterRemover(), NewlineNormalizer(), WhitespaceCollapser()]).with_(name="clean"),
            Route(
                "lang",
                {language: [keep(any_language, f"filter-{language}")] for language in WITHOUT_SPACES},
                otherwise=[keep([*by_words, *any_language], "filter")],
            ),
            FuzzyDeduplication(partitions=2),  # similar documents, and equal ones
            JsonlWriter(os.path.join(output, "curated"), mode="overwrite").with_(name="write"),
        ],
    )


def run_quickstart(
    output: str = "tamis-quickstart", executor: Executor | None = None, quiet: bool = False
) -> RunResult:
    """Curate the sample data set.

    Args:
        output: Directory for the result and the report. Those of an earlier quickstart are replaced.
        executor: What runs it; this machine by default.
        quiet: Whether to show no progress.
    """
    from tamis.backends.local import LocalExecutor
    from tamis.pipeline.recipe import dump_recipe

    try:
        os.makedirs(output, exist_ok=True)
    except FileExistsError as e:
        raise PlanError(f"{output} is a file: the quickstart needs a directory to write to") from e
    except OSError as e:
        raise PlanError(f"{output}: this directory cannot be made: {e.strerror}") from e
    pipeline = quickstart_pipeline(output)
    run_dir = os.path.join(output, "run")
    if os.path.exists(os.path.join(run_dir, "run.json")):
        shutil.rmtree(run_dir)
    result = pipeline.run(executor or LocalExecutor(), run_dir=run_dir, progress="off" if quiet else "auto")
    Path(output, "recipe.yaml").write_text(dump_recipe(pipeline), encoding="utf-8")
    write_report(run_dir, os.path.join(output, "report.html"))
    return result
