"""Semantic deduplication of images: inside a pipeline, and from files to files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.pipeline.workflows.semantic import SemanticDeduplicationWorkflow
from tamis.stages.deduplication.semantic import SemanticDeduplicationStage
from tamis.stages.image.deduplication import ImageDuplicatesRemovalStage
from tamis.tasks import ImageBatch
from tamis.testing import run_everywhere, run_stage
from tests.support.pictures import encoded, picture

COUNT = 24


@pytest.fixture(scope="module")
def batches() -> list[ImageBatch]:
    """Images with vectors: each of the first eight has a second one that is nearly the same."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(COUNT, 8))
    vectors[8:16] = vectors[:8] + rng.normal(size=(8, 8)) * 1e-3
    vectors = (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8)
    content = encoded(picture(0).resize((32, 24)))
    table = pa.table(
        {
            "image_bytes": pa.array([content] * COUNT, pa.large_binary()),
            "image_id": [f"{number:02d}" for number in range(COUNT)],
            "image_embedding": flat,
        }
    )
    return [ImageBatch(table.slice(start, 7)) for start in range(0, COUNT, 7)]


@pytest.mark.parametrize("n_clusters", [3, 100])
def test_similar_images_are_removed_and_batches_stay_as_they_are(batches: list[ImageBatch], n_clusters: int) -> None:
    """With more clusters than rows, each row may be a cluster: pairs across borders are found all the same."""
    stage = SemanticDeduplicationStage(
        id_field="image_id", embedding_field="image_embedding", n_clusters=n_clusters, eps=0.01
    )
    run = run_stage(stage, batches)
    stay = {row["image_id"] for row in run}
    assert len(stay) == COUNT - 8
    assert all(len({f"{number:02d}", f"{number + 8:02d}"} & stay) == 1 for number in range(8))
    assert {type(task) for task in run.tasks} == {ImageBatch}
    assert run.tasks[0].get_columns() == batches[0].get_columns()
    assert run.tasks[0].data.schema == batches[0].data.schema


def test_every_executor_removes_the_same_images(batches: list[ImageBatch]) -> None:
    stage = SemanticDeduplicationStage("image_id", "image_embedding", n_clusters=4, eps=0.01)
    run_everywhere(lambda folder: Pipeline("images", [stage]), initial_tasks=batches, workers=2)


def test_from_files_of_embeddings_to_ids_to_images_without_duplicates(
    batches: list[ImageBatch], tmp_path: Path
) -> None:
    (tmp_path / "embeddings").mkdir()
    for number, batch in enumerate(batches):
        pq.write_table(batch.data.select(["image_id", "image_embedding"]), tmp_path / f"embeddings/{number}.parquet")
    workflow = SemanticDeduplicationWorkflow(
        input_path=str(tmp_path / "embeddings"),
        output_path=str(tmp_path / "found"),
        cache_path=str(tmp_path / "cache"),
        id_field="image_id",
        embedding_field="image_embedding",
        n_clusters=100,
        eps=0.01,
    )
    done = workflow.run(LocalExecutor(0), progress="off")
    assert done.get_metadata("num_duplicates") == 8
    run = run_stage(ImageDuplicatesRemovalStage(str(tmp_path / "found" / "duplicates")), batches)
    assert len(run) == COUNT - 8
