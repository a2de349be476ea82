"""Semantic deduplication from files to files: against all rows compared with all, and the files of each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.semantic import (
    IdentifyDuplicatesStage,
    KMeansStage,
    PairwiseStage,
    RankingStrategy,
    SemanticDeduplicationWorkflow,
)
from tamis.stages.text.deduplication.semantic import TextSemanticDeduplicationWorkflow
from tamis.tasks import DocumentBatch

Vectors = NDArray[np.float64]


def vectors(seed: int, count: int, dimensions: int = 5) -> Vectors:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, dimensions))
    made = centres[rng.integers(0, 4, count)] + rng.normal(size=(count, dimensions)) * 0.15
    return made.astype(np.float32).astype(np.float64)


def unit(matrix: Vectors) -> Vectors:
    return matrix / np.linalg.norm(matrix, axis=1)[:, None]


def write(folder: Path, matrix: Vectors, files: int = 3, **columns: Any) -> str:
    folder.mkdir(parents=True)
    table = pa.table(
        {
            "id": [f"row-{n:04d}" for n in range(len(matrix))],
            "embeddings": pa.array(matrix.astype(np.float32).tolist(), pa.list_(pa.float32())),
            **columns,
        }
    )
    size = -(-len(matrix) // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet", row_group_size=20)
    return str(folder)


def read(folder: Path) -> pa.Table:
    """All rows of the Parquet files below a folder."""
    return pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(folder.rglob("*.parquet"))])


def run(workflow: Any, workers: int = 0) -> Any:
    return workflow.run(executor=LocalExecutor(workers=workers), progress="off")


def before_by_definition(matrix: Vectors, order: list[int], eps: float) -> list[str]:
    """The rows with a similar one before them."""
    similar = (unit(matrix) @ unit(matrix).T).astype(np.float32) >= np.float32(1 - eps)
    return sorted(f"row-{row:04d}" for at, row in enumerate(order) if similar[row, order[:at]].any())


def test_the_clusters_of_rows_and_their_distances(tmp_path: Path) -> None:
    matrix = vectors(1, 150)
    source = write(tmp_path / "in", matrix, score=list(range(150)))
    stage = KMeansStage(6, "id", "embeddings", source, str(tmp_path / "out"), metadata_fields=["score"])
    Pipeline("kmeans", [stage]).run(LocalExecutor(workers=2), run_dir=tmp_path / "run", progress="off")
    folders = sorted(path.name for path in (tmp_path / "out").glob("centroid=*"))
    assert folders == [f"centroid={n}" for n in range(6)]
    rows = 0
    for folder in folders:
        table = read(tmp_path / "out" / folder)
        assert table.column_names == ["id", "score", "embeddings", "l2_dist_to_cent", "cosine_dist_to_cent"]
        own = np.array([int(name[4:]) for name in table["id"].to_pylist()])
        assert table["score"].to_pylist() == own.tolist()
        written = np.array(table["embeddings"].to_pylist())
        np.testing.assert_allclose(written, unit(matrix)[own], atol=1e-6)
        centre = written.mean(axis=0)
        np.testing.assert_allclose(table["l2_dist_to_cent"], np.linalg.norm(written - centre, axis=1), atol=1e-5)
        cosine = 1 - written @ centre / np.linalg.norm(centre)
        np.testing.assert_allclose(table["cosine_dist_to_cent"], cosine, atol=1e-5)
        rows += len(own)
    assert rows == 150


@pytest.mark.parametrize("which", ["hard", "easy", "random"])
def test_the_most_similar_row_before_each(tmp_path: Path, which: Any) -> None:
    matrix = vectors(2, 120)
    source = write(tmp_path / "in", matrix)
    clusters, pairs = str(tmp_path / "clusters"), tmp_path / "pairs"
    stages = [KMeansStage(4, "id", "embeddings", source, clusters)]
    Pipeline("kmeans", stages).run(LocalExecutor(workers=0), run_dir=tmp_path / "run1", progress="off")
    stage = PairwiseStage("id", "embeddings", clusters, str(pairs), which_to_keep=which, pairwise_batch_size=7)
    Pipeline("pairwise", [stage]).run(LocalExecutor(workers=2), run_dir=tmp_path / "run2", progress="off")
    assert sorted(path.name for path in pairs.glob("*.parquet")) == [f"cluster_{n}.parquet" for n in range(4)]
    for number in range(4):
        cluster, found = (
            read(tmp_path / "clusters" / f"centroid={number}"),
            pq.read_table(pairs / f"cluster_{number}.parquet"),
        )
        assert found.column_names == ["id", "max_id", "cosine_sim_score"]
        ids = found["id"].to_pylist()
        assert sorted(ids) == sorted(cluster["id"].to_pylist())
        if which != "random":
            distance = dict(zip(cluster["id"].to_pylist(), cluster["cosine_dist_to_cent"].to_pylist(), strict=True))
            assert [distance[name] for name in ids] == sorted(distance.values(), reverse=which == "hard")
        rows = unit(matrix)[[int(name[4:]) for name in ids]]
        products = np.tril(rows @ rows.T, -1) + np.triu(np.full((len(ids), len(ids)), -2.0))
        expected = np.concatenate([[0.0], products[1:].max(axis=1)])
        np.testing.assert_allclose(found["cosine_sim_score"], expected, atol=1e-6)
        assert found["max_id"].to_pylist()[1:] == [ids[n] for n in products[1:].argmax(axis=1)]
        assert found["max_id"][0].as_py() == ids[0]


def test_the_workflow_finds_what_the_definition_says(tmp_path: Path) -> None:
    matrix = vectors(3, 300)
    matrix[250:] = matrix[:50]
    rank = np.random.default_rng(3).permutation(300)
    source = write(tmp_path / "in", matrix, score=rank)
    expected = before_by_definition(matrix, np.argsort(rank).tolist(), 0.01)
    found = []
    for number, settings in enumerate(({"n_clusters": 12}, {"n_clusters": None}, {"n_clusters": 12, "borders": False})):
        workflow = SemanticDeduplicationWorkflow(
            source,
            tmp_path / f"out{number}",
            cache_path=tmp_path / f"cache{number}",
            ranking_strategy=RankingStrategy.metadata_based(["score"]),
            eps=0.01,
            **settings,
        )
        result = run(workflow, workers=number)
        ids = read(tmp_path / f"out{number}" / "duplicates")["id"].to_pylist()
        assert len(ids) == len(set(ids)) == result.get_metadata("num_duplicates")
        assert {"kmeans_time", "pairwise_time", "total_time"} <= result.metadata.keys()
        assert {"kmeans", "pairwise"} <= result.pipeline_tasks.keys()
        found.append(sorted(ids))
    assert found[0] == found[1] == expected
    assert set(found[2]) < set(expected)


def test_without_eps_there_are_similarities_and_no_ids(tmp_path: Path) -> None:
    source = write(tmp_path / "in", vectors(4, 40))
    result = run(SemanticDeduplicationWorkflow(source, tmp_path / "out", n_clusters=2))
    assert len(read(tmp_path / "out" / "pairwise_results")) == 40
    assert not (tmp_path / "out" / "duplicates").exists()
    assert result.get_metadata("num_duplicates") is None


def test_the_workflow_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source = write(tmp_path / "in", vectors(5, 60))
    workflow = SemanticDeduplicationWorkflow(source, tmp_path / "out", n_clusters=3, eps=0.05)
    run(workflow)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    run(workflow)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}


class Letters(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Counts of letters, as embeddings."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        counts = [[float(text.count(letter)) for letter in "abcd"] for text in task.data["text"].to_pylist()]
        return task.with_column("embeddings", pa.array(counts, pa.list_(pa.float32(), 4)))


@pytest.mark.parametrize("use_id_generator", [False, True])
def test_texts_are_embedded_and_those_that_stay_are_written(tmp_path: Path, use_id_generator: bool) -> None:
    texts = ["ab", "ba", "aabb", "cd", "dc", "abcd", "ddd", ""]
    (tmp_path / "in").mkdir()
    for number in range(2):
        lines = [json.dumps({"id": f"{n}", "text": text}) + "\n" for n, text in enumerate(texts)][number::2]
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(lines))
    workflow = TextSemanticDeduplicationWorkflow(
        str(tmp_path / "in"),
        tmp_path / "out",
        tmp_path / "cache",
        embedding_stage=Letters(),
        n_clusters=2,
        input_filetype="jsonl",
        output_filetype="jsonl",
        use_id_generator=use_id_generator,
    )
    result = run(workflow)
    kept = [json.loads(line) for path in (tmp_path / "out/deduplicated").glob("*.jsonl") for line in path.open()]
    assert sorted(sorted(row["text"]) for row in kept if row["text"]) in (
        [["a", "a", "b", "b"], ["a", "b", "c", "d"], ["c", "d"], ["d", "d", "d"]],
        [["a", "b"], ["a", "b", "c", "d"], ["c", "d"], ["d", "d", "d"]],
    )
    assert [row["text"] for row in kept].count("") == 1
    assert all(row.keys() == {"id", "text"} for row in kept)
    assert result.get_metadata("num_duplicates") == result.get_metadata("num_duplicates_removed") == 3


def test_bad_parameters_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="eps=1"):
        IdentifyDuplicatesStage("out", 1.0)
    with pytest.raises(PlanError, match="needs eps"):
        TextSemanticDeduplicationWorkflow("in", "out", eps=None)
    with pytest.raises(PlanError, match="'csv' is not a file type"):
        SemanticDeduplicationWorkflow("in", "out", input_filetype="csv")
    with pytest.raises(PlanError, match="embedding_output_dtype"):
        SemanticDeduplicationWorkflow("in", "out", kmeans_embedding_output_dtype="int8")
