"""Stages for the whole input, called directly with one batch, take it for the whole input and return a batch."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pictures import encoded, picture
from PIL import Image

import tamis.stages.deduplication
import tamis.stages.image
from tamis.compat.batch import DocumentBatch as FrameBatch
from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.bloom import BloomDeduplication
from tamis.stages.deduplication.document_ids import AssignIds
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.deduplication.lines import LineDeduplication
from tamis.stages.deduplication.removal import RemoveByIds
from tamis.stages.deduplication.semantic import SemanticDeduplication, SemanticDeduplicationStage
from tamis.stages.deduplication.substrings import SubstringDeduplication
from tamis.stages.exchange import ShuffleStage
from tamis.stages.image.deduplication import (
    ImageDuplicatesRemovalStage,
    ImageExactDeduplication,
    PerceptualDeduplication,
    PerceptualHash,
)
from tamis.stages.image.embedders import ImageDescriptorStage
from tamis.stages.image.io import ConvertImageBatchToDocumentBatchStage, UnpackImages
from tamis.stages.image.statistics import ImageStatistics
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.task_types import task_types
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch, ImageBatch, TableTask
from tamis.tasks.views import view_of
from tamis.testing import run_stage

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "the quick brown fox jumps over the lazy dog",
    "",
    None,
    "other",
]


def texts() -> DocumentBatch:
    columns = {
        "text": TEXTS,
        "id": [0, 1, 2, 3, 4],
        "embeddings": [[1.0, 0.0], [1.0, 0.001], [0.0, 1.0], [0.5, 0.5], None],
    }
    return DocumentBatch(columns, dataset_name="d").named("x")


def images() -> DocumentBatch:
    files = [encoded(picture(1)), encoded(picture(1)), encoded(Image.fromarray(np.full((64, 64, 3), 90, np.uint8)))]
    columns = {"image_bytes": files, "image_path": ["a", "b", "c"], "image_id": ["a", "b", "c"]}
    return DocumentBatch(columns, dataset_name="d").named("x")


def pictures() -> ImageBatch:
    return view_of(images(), ImageBatch)


def ids(folder: Path, of: Any) -> str:
    pq.write_table(pa.table({"id": of}), folder / "ids.parquet")
    return str(folder / "ids.parquet")


Case = tuple[Callable[[Path], Any], Callable[[], TableTask], list[str]]

CASES: dict[Any, Case] = {
    ExactDeduplication: (lambda _: ExactDeduplication(), texts, ["x:0", "x:2", "x:3", "x:4"]),
    FuzzyDeduplication: (lambda _: FuzzyDeduplication(), texts, ["x:0", "x:2", "x:3", "x:4"]),
    BloomDeduplication: (lambda _: BloomDeduplication(), texts, ["x:0", "x:2", "x:3", "x:4"]),
    LineDeduplication: (lambda _: LineDeduplication(), texts, ["x:0", "x:2", "x:3", "x:4"]),
    SubstringDeduplication: (lambda _: SubstringDeduplication(), texts, ["x:0", "x:1", "x:2", "x:3", "x:4"]),
    SemanticDeduplication: (lambda _: SemanticDeduplication(), texts, ["x:0", "x:2", "x:3", "x:4"]),
    SemanticDeduplicationStage: (lambda _: SemanticDeduplicationStage(), texts, ["x:0", "x:2", "x:3", "x:4"]),
    RemoveByIds: (lambda folder: RemoveByIds(ids(folder, [4, 0]), "id"), texts, ["x:1", "x:2", "x:3"]),
    ImageExactDeduplication: (lambda _: ImageExactDeduplication(), images, ["x:0", "x:2"]),
    PerceptualDeduplication: (lambda _: PerceptualDeduplication(), images, ["x:0", "x:2"]),
    ImageDuplicatesRemovalStage: (
        lambda folder: ImageDuplicatesRemovalStage(ids(folder, ["b"])),
        pictures,
        ["x:0", "x:2"],
    ),
    PerceptualHash: (lambda _: PerceptualHash(), pictures, ["x:0", "x:1", "x:2"]),
    ImageDescriptorStage: (lambda _: ImageDescriptorStage(), pictures, ["x:0", "x:1", "x:2"]),
    ConvertImageBatchToDocumentBatchStage: (
        lambda _: ConvertImageBatchToDocumentBatchStage(),
        pictures,
        ["x:0", "x:1", "x:2"],
    ),
    UnpackImages: (lambda _: UnpackImages("image_bytes"), images, ["x:0", "x:1", "x:2"]),
}

NEED_A_MODEL = {
    "ImageEmbeddingStage",
    "ImageAestheticFilterStage",
    "BaseFilterStage",
    "ImageNSFWFilterStage",
    "ImageTextSimilarityFilter",
}
"""They have tests of their own."""


@pytest.mark.parametrize("stage", CASES, ids=lambda stage: stage.__name__)
def test_process_returns_the_batch_with_the_names_of_its_rows(stage: Any, tmp_path: Path) -> None:
    make, given, names = CASES[stage]
    batch = given()
    made = make(tmp_path).process(batch)
    assert isinstance(made, TableTask)
    assert made.names is not None
    assert made.names.to_texts() == names
    assert len(made.to_pandas()) == made.num_items
    assert made.dataset_name == "d"
    assert sum(len(drop.rows) for drop in made.dropped) == batch.num_items - made.num_items
    assert batch.data.equals(given().data)


@pytest.mark.parametrize("stage", CASES, ids=lambda stage: stage.__name__)
def test_a_batch_without_rows_gives_one_without_rows(stage: Any, tmp_path: Path) -> None:
    make, given, _ = CASES[stage]
    assert make(tmp_path).process(given().select([])).num_items == 0


def test_every_stage_from_rows_to_rows_is_tested_here() -> None:
    found = set()
    for package in (tamis.stages.deduplication, tamis.stages.image):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name in getattr(importlib.import_module(module.name), "__all__", ()):
                cls = getattr(importlib.import_module(module.name), name)
                if inspect.isclass(cls) and issubclass(cls, ProcessingStage) and cls.__module__ == module.name:
                    taken, given = task_types(object.__new__(cls))
                    if all(inspect.isclass(kind) and issubclass(kind, TableTask) for kind in (taken, given)):
                        found.add(cls)
    others = {cls.__name__ for cls in found - set(CASES)}
    assert others == NEED_A_MODEL | {AssignIds.__name__, ImageStatistics.__name__}


@pytest.mark.parametrize("stage", [ExactDeduplication(), FuzzyDeduplication()], ids=lambda stage: stage.name)
def test_the_result_is_that_of_a_pipeline(stage: Any) -> None:
    made, run = stage.process(texts()), run_stage(stage, texts())
    assert made.data.to_pylist() == list(run)
    assert [drop.reason for drop in made.dropped] == [row.reason for row in run.dropped]


def test_rows_that_were_dropped_before_are_said_once() -> None:
    before = ScoreFilter(WordCountFilter(min_words=1)).process(texts())
    made = ExactDeduplication().process(before)
    assert [(drop.reason, len(drop.rows)) for drop in made.dropped] == [
        ("word_count outside 1..100000", 2),
        ("exact duplicate", 1),
    ]


def test_rows_without_names_are_given_some() -> None:
    made = ExactDeduplication().process(DocumentBatch({"text": ["a", "a", "b"]}))
    assert made["text"].to_pylist() == ["a", "b"]


def test_a_batch_of_pandas_stays_one() -> None:
    made = ExactDeduplication().process(FrameBatch(data=pd.DataFrame({"text": ["a", "a"]})))
    assert isinstance(made.data, pd.DataFrame)
    assert made.data["text"].tolist() == ["a"]


def test_a_composite_of_ones_own_and_a_shuffle_in_it() -> None:
    class Longest(ShuffleStage):
        def reduce(self, partition: Any) -> Any:
            return partition.with_table(partition.data.sort_by("id").slice(0, 1))

    class Both(CompositeStage[DocumentBatch, DocumentBatch]):
        def decompose(self) -> list[ProcessingStage[Any, Any]]:
            return [ScoreFilter(WordCountFilter(min_words=1)), Longest(by=["text"], partitions=1)]

    made = Both().process(texts())
    assert made["id"].to_pylist() == [0]


@pytest.mark.parametrize("stage", [JsonlReader("in"), JsonlWriter("out")], ids=lambda stage: stage.name)
def test_what_reads_or_writes_files_says_how_it_is_run(stage: Any) -> None:
    with pytest.raises(PlanError, match="run it in a pipeline"):
        stage.process(texts())
