"""The deduplication workflows on Ray: the same ids and the same documents as on this machine."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("ray")

from tamis.backends.local import LocalExecutor
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.pipeline.workflow import WorkflowBase
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow

pytestmark = pytest.mark.usefixtures("ray_cluster")


def result_of(workflow: WorkflowBase, executor: Any, output: Path) -> tuple[Any, ...]:
    counts = workflow.run(executor=executor, progress="off").metadata
    ids = [pq.read_table(path).column(0).to_pylist() for path in sorted(output.glob("*DuplicateIds/part.*.parquet"))]
    texts = [path.read_text() for path in sorted(output.glob("deduplicated/*.jsonl"))]
    return counts["num_duplicates"], counts["num_duplicates_removed"], ids, texts


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = random.Random(5)
    words = [f"word{n}" for n in range(500)]
    originals = [" ".join(drawn.choices(words, k=80)) for _ in range(15)]
    folder = tmp_path_factory.mktemp("in")
    for number in range(3):
        rows = [{"text": drawn.choice(originals) + drawn.choice(["", " again"])} for _ in range(20)]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def exact(folder: Path, source: Path) -> ExactDeduplicationWorkflow:
    return ExactDeduplicationWorkflow(
        folder / "out", source, "jsonl", input_blocksize="5KiB", total_nparts=3, perform_removal=True
    )


def fuzzy(folder: Path, source: Path) -> FuzzyDeduplicationWorkflow:
    return FuzzyDeduplicationWorkflow(
        folder / "cache",
        folder / "out",
        source,
        "jsonl",
        input_blocksize="5KiB",
        perform_removal=True,
        num_bands=4,
        minhashes_per_band=4,
        bands_per_iteration=4,
        lsh_num_output_partitions=2,
    )


others = pytest.mark.exhaustive  # a pipeline takes seconds there, and a workflow has up to four


@pytest.mark.parametrize(
    ("make", "executor"),
    [
        (exact, StreamingExecutor),
        pytest.param(exact, RayActorPoolExecutor, marks=others),
        pytest.param(exact, RayDataExecutor, marks=others),
        pytest.param(fuzzy, StreamingExecutor, marks=others),
        pytest.param(fuzzy, RayActorPoolExecutor, marks=others),
        pytest.param(fuzzy, RayDataExecutor, marks=others),
    ],
)
def test_the_same_documents_are_removed(tmp_path: Path, source: Path, make: Any, executor: Any) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    expected = result_of(make(here, source), LocalExecutor(workers=2), here / "out")
    assert expected[0] == expected[1] > 20
    assert result_of(make(there, source), executor(), there / "out") == expected
