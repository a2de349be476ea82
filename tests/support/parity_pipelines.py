"""Pipelines that must give the same on every executor, and how two runs are compared.

Each function of :data:`PIPELINES` builds a pipeline for an input directory (see :func:`write_input`) and an output
directory of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.backends.base import Executor
from tamis.pipeline import Pipeline
from tamis.runs.drops import SCHEMA
from tamis.runs.result import RunResult
from tamis.stages.base import CompositeStage, ProcessingStage, WorkerMetadata
from tamis.stages.deduplication.bloom import BloomDeduplication
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.deduplication.lines import LineDeduplication
from tamis.stages.deduplication.semantic import SemanticDeduplication
from tamis.stages.emit import BadRow, BadRows, Drop
from tamis.stages.exchange import Exchange
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.io.card_files import CARD_FILES
from tamis.stages.io.output_directory import MARKER
from tamis.stages.resources import Resources
from tamis.stages.text.columns import DropColumns
from tamis.stages.text.embedders import HashedEmbeddingStage
from tamis.tasks import DocumentBatch, FileGroup

Stage = ProcessingStage[Any, Any]
Builder = Callable[[Path, Path], Pipeline]

LANGUAGES = ["en", "de", "fr"]


def write_input(directory: Path, files: int = 6, rows: int = 20) -> Path:
    """Documents in several languages; texts repeat across files, and one line of the last file is broken."""
    directory.mkdir(parents=True, exist_ok=True)
    for f in range(files):
        lines = [
            json.dumps({"text": f"text {(7 * f + r) % 50}", "n": rows * f + r, "lang": LANGUAGES[(f + r) % 3]})
            for r in range(rows)
        ]
        (directory / f"{f:02d}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


class Upper(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A map with a setup of its own."""

    name = "upper"

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._case = str.upper

    def process(self, task: DocumentBatch) -> DocumentBatch:
        texts = [self._case(t) for t in task.data["text"].to_pylist()]
        place = task.data.column_names.index("text")
        return task.with_table(task.data.set_column(place, "text", pa.array(texts)))


class KeepEven(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A filter: rows it leaves out go to the drop ledger."""

    name = "even"
    releases_gil = True

    def process(self, task: DocumentBatch) -> Iterator[Any]:
        odd = np.flatnonzero(task.data["n"].to_numpy() % 2)
        yield Drop(task, odd, "odd number")
        yield task.with_table(task.data.filter(pa.array(task.data["n"].to_numpy() % 2 == 0)))


@processing_stage(name="halves")
def halves(task: DocumentBatch) -> list[DocumentBatch]:
    """Fan-out: two tasks of one."""
    half = task.num_items // 2
    return [task.with_table(task.data.slice(0, half)), task.with_table(task.data.slice(half))]


@processing_stage(name="every_other_task")
def every_other_task(task: DocumentBatch) -> DocumentBatch | None:
    """``None`` for some tasks."""
    return task if task.data["n"][0].as_py() % 40 == 0 else None


@processing_stage(name="nothing")
def nothing(task: DocumentBatch) -> None:
    """``None`` for all tasks."""


class Both(CompositeStage[DocumentBatch, DocumentBatch]):
    """A composite."""

    name = "both"

    def decompose(self) -> list[Stage]:
        return [Upper(), KeepEven()]


class Total(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes several tasks at once and makes one of them: depends on which ones are given together."""

    name = "total"
    batch_size = 4
    makes_rows = "new"

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        sums = [sum(t.data["n"].to_pylist()) for t in tasks]
        return [DocumentBatch({"tasks": [len(tasks)], "sums": [sums]})]


class SetAsideSevens(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Rows that fail: they go to the quarantine."""

    name = "sevens"

    def process(self, task: DocumentBatch) -> Iterator[Any]:
        numbers = task.data["n"].to_numpy()
        bad = [BadRow("made", int(n), 0, "a seven", str(n).encode()) for n in numbers if n % 7 == 0]
        if bad:
            yield BadRows(tuple(bad))
        yield task.with_table(task.data.filter(pa.array(numbers % 7 != 0)))


class OnGpu(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that says it needs a GPU and runs anywhere."""

    name = "on_gpu"
    resources = Resources(cpus=1, gpus=0.5)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        doubled = pa.array(2 * task.data["n"].to_numpy())
        return task.with_table(task.data.append_column("doubled", doubled))


class Raises(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that fails on one task."""

    name = "raises"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if 47 in task.data["n"].to_pylist():
            raise KeyError("47 is not here")
        return task


class ByNumber(Exchange[DocumentBatch, DocumentBatch]):
    """Sorts all rows, in ranges."""

    name, key, partitioning, partitions = "by_number", "n", "range", 3


class PerLanguage(Exchange[DocumentBatch, DocumentBatch]):
    """Counts rows by a key."""

    name, key, partitions = "per_language", "lang", 2

    def reduce(self, rows: DocumentBatch) -> DocumentBatch:
        counted = rows.data.group_by("lang", use_threads=False).aggregate([("n", "sum"), ("text", "count")])
        return DocumentBatch(counted)


def _pipeline(name: str, *stages: Stage) -> Pipeline:
    return Pipeline(name, stages=stages)


def _read(path: Path) -> JsonlReader:
    return JsonlReader(str(path), files_per_partition=1)


@processing_stage(name="files-are-there")
def files_are_there(task: FileGroup) -> FileGroup:
    """Fails unless the files that a writer names have these names already."""
    assert all(Path(path).exists() for path in task.data)
    return task


@processing_stage(name="under-a-menu")
def under_a_menu(task: DocumentBatch) -> DocumentBatch:
    """Adds lines that are on every page, or on many."""
    texts = [f"Home\n{text[:6]}\n\n{text}" for text in task.data["text"].to_pylist()]
    place = task.data.column_names.index("text")
    return task.with_same_rows(task.data.set_column(place, "text", pa.array(texts)))


PIPELINES: dict[str, Builder] = {
    "map": lambda i, o: _pipeline("map", _read(i), Upper(), JsonlWriter(str(o))),
    "filter": lambda i, o: _pipeline("filter", _read(i), KeepEven(), JsonlWriter(str(o))),
    "fan-out": lambda i, o: _pipeline("fan-out", _read(i), halves, Upper(), halves, ParquetWriter(str(o))),
    "none": lambda i, o: _pipeline("none", _read(i), every_other_task, Upper(), JsonlWriter(str(o))),
    "nothing-left": lambda i, o: _pipeline("nothing-left", _read(i), nothing, JsonlWriter(str(o))),
    "composite": lambda i, o: _pipeline("composite", _read(i), Both(), JsonlWriter(str(o))),
    "branch": lambda i, o: _pipeline(
        "branch",
        _read(i),
        Tee([halves, JsonlWriter(str(o / "all"))]),
        Dropped(KeepEven(), to=[JsonlWriter(str(o / "odd"))]),
        Route("lang", {"en": [Upper()], "de": [JsonlWriter(str(o / "de"))]}, otherwise=[halves]),
        JsonlWriter(str(o / "rest")),
    ),
    "shuffle": lambda i, o: _pipeline(
        "shuffle", _read(i), Upper(), ExactDeduplication(partitions=3), KeepEven(), JsonlWriter(str(o))
    ),
    "fuzzy": lambda i, o: _pipeline(
        "fuzzy", _read(i), FuzzyDeduplication(partitions=2, char_ngrams=4, minhashes_per_band=2), JsonlWriter(str(o))
    ),
    "semantic": lambda i, o: _pipeline(
        "semantic",
        _read(i),
        HashedEmbeddingStage(dim=16),
        SemanticDeduplication(n_clusters=5, eps=0.1, partitions=2, refine_rounds=1),
        DropColumns(["embeddings"]),
        JsonlWriter(str(o)),
    ),
    "lines": lambda i, o: _pipeline(
        "lines",
        _read(i),
        # with less room than it needs, and a rate so high that it makes errors: they, too, are the same
        BloomDeduplication(expected_documents=40, false_positive_rate=0.3, partitions=2),
        under_a_menu,
        LineDeduplication(partitions=2, counts_field="removed"),
        JsonlWriter(str(o)),
    ),
    "exchanges": lambda i, o: _pipeline(
        "exchanges",
        _read(i),
        Tee([PerLanguage(), JsonlWriter(str(o / "counts"))]),
        ByNumber(),
        JsonlWriter(str(o / "rows")),
    ),
    "batches": lambda i, o: _pipeline("batches", _read(i), halves, Total(), JsonlWriter(str(o))),
    "failing-rows": lambda i, o: _pipeline("failing-rows", _read(i), SetAsideSevens(), JsonlWriter(str(o))),
    "after-a-writer": lambda i, o: _pipeline("after-a-writer", _read(i), JsonlWriter(str(o)), files_are_there),
    "no-writer": lambda i, o: _pipeline("no-writer", _read(i), Upper(), halves),
}
"""Without the one with a GPU, which the local executor refuses where there is none."""


def with_gpu(source: Path, target: Path) -> Pipeline:
    """A pipeline with a stage for GPUs."""
    return _pipeline("gpu", _read(source), Upper(), OnGpu(), KeepEven(), JsonlWriter(str(target)))


def without_gpu(source: Path, target: Path) -> Pipeline:
    """The same as :func:`with_gpu`, for executors on machines without one."""
    return _pipeline(
        "gpu", _read(source), Upper(), OnGpu().with_(resources=Resources(cpus=2)), KeepEven(), JsonlWriter(str(target))
    )


def failing(source: Path, target: Path) -> Pipeline:
    """A pipeline that fails."""
    return _pipeline("failing", _read(source), Upper(), Raises(), JsonlWriter(str(target)))


@dataclasses.dataclass
class Result:
    """All that a run leaves behind and that must not depend on the executor."""

    files: dict[str, str]
    outputs: list[tuple[str, tuple[int, ...], Any]]
    drops: list[dict[str, Any]]
    quarantine: dict[str, str]
    stats: list[dict[str, Any]]


def run_on(executor: Executor, build: Builder, source: Path, work: Path, **settings: Any) -> Result:
    """Run a pipeline in a directory of its own and collect what it leaves behind."""
    target = work / "out"
    result = build(source, target).run(executor, run_dir=str(work / "run"), progress="off", **settings)
    return collect(result, target, work / "run")


def collect(result: RunResult, target: Path, run_dir: Path) -> Result:
    """What a finished run left behind."""
    outputs = [(t.task_id, t.order, _shown(t, target)) for t in result]
    return Result(
        _digests(target), outputs, _drops(run_dir / "drops"), _digests(run_dir / "quarantine"), _stats(result)
    )


def _shown(task: Any, target: Path) -> Any:
    """A task's data; of files only the names, as the directories differ from run to run."""
    if isinstance(task, DocumentBatch):
        return task.data.to_pylist()
    return [str(Path(p).relative_to(target)) for p in task.data]


def _digests(directory: Path) -> dict[str, str]:
    """The files of a directory, without those that say which run wrote them."""
    return {
        p.relative_to(directory).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.name not in (MARKER, *CARD_FILES)
    }


def _drops(directory: Path) -> list[dict[str, Any]]:
    """The rows of the drop ledger. Which of them share a file depends on when tasks were finished."""
    rows = [
        row for path in directory.glob("*.parquet") for row in pq.read_table(path, columns=SCHEMA.names).to_pylist()
    ]
    return sorted(rows, key=str)


def _stats(result: RunResult) -> list[dict[str, Any]]:
    """The counts, without time and memory: what a table takes depends on whether it has been in a file meanwhile."""
    varying = ("seconds", "queue_s", "custom", "bytes_in", "bytes_out", "scores")
    return [{k: v for k, v in dataclasses.asdict(s).items() if k not in varying} for s in result.summary.stages]
