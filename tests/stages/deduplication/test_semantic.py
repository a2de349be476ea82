"""Semantic deduplication inside a pipeline, held to its definition: all rows compared with all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError, PlanError
from tamis.kernels.products import products_on
from tamis.stages.deduplication.semantic import RankingStrategy, SemanticDeduplication, SemanticDeduplicationStage, fit
from tamis.stages.deduplication.semantic import cell as cells
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader
from tamis.testing import run_stage

Vectors = NDArray[np.float64]


def vectors(seed: int, count: int, dimensions: int = 6, spread: float = 0.15) -> Vectors:
    """Vectors around a few directions, some of them nearly or exactly equal, in any order."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(5, dimensions))
    made = centres[rng.integers(0, 5, count)] + rng.normal(size=(count, dimensions)) * spread
    copies = rng.integers(0, count, (2, count // 3))
    made[copies[0]] = made[copies[1]] * rng.choice([1, 2, 0.5], (count // 3, 1))
    return made.astype(np.float32).astype(np.float64)


def rows_of(matrix: Vectors, **columns: Any) -> list[dict[str, Any]]:
    return [
        {"id": n, "embeddings": row.tolist(), **{name: values[n] for name, values in columns.items()}}
        for n, row in enumerate(matrix)
    ]


def kept_by_definition(matrix: Vectors, eps: float, order: list[int] | None = None, compare_with: str = "kept") -> set:
    """The rows that stay: one after the other in the order of their ranks."""
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    similar = (unit @ unit.T).astype(np.float32) >= np.float32(1 - eps)
    kept: list[int] = []
    seen: list[int] = []
    for row in range(len(matrix)) if order is None else order:
        if not similar[row, kept if compare_with == "kept" else seen].any():
            kept.append(row)
        seen.append(row)
    return set(kept)


def ids(run: Any) -> set[int]:
    return {row["id"] for row in run}


@pytest.mark.parametrize("eps", [0.0, 0.003, 0.02, 0.2])
@pytest.mark.parametrize("n_clusters", [None, 1, 7, 60])
def test_rows_that_stay_are_those_of_the_definition(eps: float, n_clusters: int | None) -> None:
    for seed in range(3):
        matrix = vectors(seed, 300)
        run = run_stage(SemanticDeduplication(eps=eps, n_clusters=n_clusters, keep="first"), rows_of(matrix))
        assert ids(run) == kept_by_definition(matrix, eps)
        assert {dropped.reason for dropped in run.dropped} == {"semantic duplicate"}


def test_clusters_that_would_need_many_copies_only_rank() -> None:
    """Issue 13: with a wide eps and the number of clusters given, each row was copied to nearly all clusters."""
    matrix = np.random.default_rng(3).normal(size=(400, 24)) * 0.25 + 1
    stage = {"eps": 0.1, "n_clusters": 40, "which_to_keep": "easy"}
    run = run_stage(SemanticDeduplication(**stage), rows_of(matrix))
    counted = {name: value for stats in run.stages for name, value in stats.custom.items()}
    assert (counted["clusters"], counted["cells"]) == (40, 1)
    assert counted["copies"] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "_MOST_COPIES", 1e9)  # compared in all clusters, with the same ranks
        everywhere = run_stage(SemanticDeduplication(**stage), rows_of(matrix))
    assert ids(run) == ids(everywhere)
    assert 1 < len(ids(run)) < 400


def test_without_borders_pairs_are_lost() -> None:
    matrix = vectors(4, 400)
    stage = {"eps": 0.02, "n_clusters": 40, "keep": "first"}
    right = kept_by_definition(matrix, 0.02)
    assert ids(run_stage(SemanticDeduplication(**stage), rows_of(matrix))) == right
    assert len(ids(run_stage(SemanticDeduplication(**stage, borders=False), rows_of(matrix)))) > len(right)


def test_removed_rows_remove_others_if_that_is_asked_for() -> None:
    turned = np.arange(12) * np.arccos(1 - 0.009)  # each is similar to the next one only
    matrix = np.stack([np.cos(turned), np.sin(turned)], axis=1)
    for compare_with, expected in (("kept", {0, 2, 4, 6, 8, 10}), ("all", {0})):
        stage = SemanticDeduplication(keep="first", compare_with=compare_with, n_clusters=3)
        assert ids(run_stage(stage, rows_of(matrix))) == expected
    matrix = vectors(5, 300)
    for n_clusters in (1, 20):
        stage = SemanticDeduplication(keep="first", compare_with="all", n_clusters=n_clusters, eps=0.02)
        assert ids(run_stage(stage, rows_of(matrix))) == kept_by_definition(matrix, 0.02, compare_with="all")


def test_a_cloud_of_similar_rows_across_many_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_MOST_OPEN", 2)
    monkeypatch.setattr(fit, "_MOST_COPIES", 1e9)
    rng = np.random.default_rng(6)
    matrix = np.ones((500, 4)) + rng.normal(size=(500, 4)) * 0.12
    for eps in (0.004, 0.02):
        run = run_stage(SemanticDeduplication(eps=eps, n_clusters=12, keep="first"), rows_of(matrix))
        assert ids(run) == kept_by_definition(matrix, eps)
    decided = next(s for s in run.stages if s.name.endswith("(decide)"))
    assert decided.custom["looked_at_again"] > 0


@pytest.mark.parametrize("all_remove", [False, True])
def test_many_equal_rows_near_a_border_are_compared_with_the_first_alone(all_remove: bool) -> None:
    """Issue 13: each was compared with, and written down for, all others before it."""
    equal = np.tile(np.float32([0.6, 0.8]), (1500, 1))
    is_shared = np.ones(1500, np.bool_)
    cell = cells.Cell(lambda rows: equal[rows], is_home=is_shared, is_shared=is_shared, dimensions=2)
    found = cells.find_similar(cell, 0.9, products_on(), all_remove=all_remove)
    assert found.later.tolist() == list(range(1, 1500))
    assert set(found.earlier.tolist()) == {0}
    assert not found.is_cut.any()


def test_which_row_stays() -> None:
    matrix = vectors(7, 200)
    score, day = np.random.default_rng(7).integers(0, 4, (2, 200)).tolist()
    rows = rows_of(matrix, score=score, day=day)
    by_score = sorted(range(200), key=lambda n: (-score[n], n))
    by_both = sorted(range(200), key=lambda n: (day[n], -score[n], n))
    strategy = RankingStrategy.metadata_based(["day", "score"], [True, False])
    for settings, order in (
        ({"keep": "highest:score"}, by_score),
        ({"ranking_strategy": strategy}, by_both),
    ):
        run = run_stage(SemanticDeduplication(eps=0.02, n_clusters=9, **settings), rows)
        assert ids(run) == kept_by_definition(matrix, 0.02, order)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_hard_keeps_what_is_far_from_the_centre_and_easy_what_is_near(metric: str) -> None:
    matrix = np.random.default_rng(8).normal(size=(30, 3)) * 0.05 + [1, 1, 1]
    unit = matrix / np.linalg.norm(matrix, axis=1)[:, None]
    centre = unit.astype(np.float32).mean(axis=0)
    order = np.argsort(unit @ centre)
    found = [
        ids(run_stage(SemanticDeduplication(which_to_keep=which, distance_metric=metric, eps=0.01), rows_of(matrix)))
        for which in ("hard", "easy")
    ]
    assert found == [kept_by_definition(matrix, 0.01, some) for some in (order.tolist(), order[::-1].tolist())]
    assert found[0] != found[1]


def test_random_depends_on_the_seed_only() -> None:
    matrix = np.ones((50, 2))
    stays = [
        ids(run_stage(SemanticDeduplication(which_to_keep="random", random_state=seed), rows_of(matrix)))
        for seed in (1, 1, 2, 3, 4)
    ]
    assert stays[0] == stays[1]
    assert len({min(some) for some in stays}) > 1
    assert all(len(some) == 1 for some in stays)


def test_vectors_that_cannot_be_compared_stay_and_are_counted() -> None:
    good = [[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]
    odd = [None, None, [], [0.0, 0.0], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0], [1.0], [1.0, None]]
    rows = [{"id": n, "embeddings": vector} for n, vector in enumerate([*good, *odd])]
    run = run_stage(SemanticDeduplication(keep="first"), rows)
    assert ids(run) == {0, 2, *range(3, 13)}
    counted = {name: value for stage in run.stages for name, value in stage.custom.items()}
    assert counted["rows_without_vector"] == 3
    assert counted["vectors_without_direction"] == 5
    assert counted["vectors_of_other_lengths"] == 2


@pytest.mark.parametrize("rows", [[{"id": 0, "embeddings": None}], [{"id": 0, "embeddings": [1.0]}]])
def test_hardly_any_rows(rows: list[dict[str, Any]]) -> None:
    assert ids(run_stage(SemanticDeduplication(), rows)) == {0}


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 6), pa.list_(pa.float64(), 6)],
)
def test_any_type_of_lists_of_numbers(tmp_path: Path, kind: pa.DataType) -> None:
    matrix = vectors(9, 60).astype(np.float16).astype(np.float64)
    table = pa.table({"id": range(60), "embeddings": pa.array(matrix.tolist()).cast(kind)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=7)
    stage = SemanticDeduplication(keep="first", eps=0.02, n_clusters=3)
    assert kept_ids(deduplicated(tmp_path / "in.parquet", tmp_path / "out", stage)) == sorted(
        kept_by_definition(matrix, 0.02)
    )


def test_a_column_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="vectors are lists of numbers"):
        run_stage(SemanticDeduplication(), [{"embeddings": "text"}])
    (tmp_path / "a.jsonl").write_text('{"embeddings": [1]}\n')
    with pytest.raises(ColumnError, match="embedding"):
        Pipeline("p", [JsonlReader(tmp_path / "a.jsonl", fields=["id"]), SemanticDeduplication()]).plan()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"eps": 1.0}, "eps=1.0"),
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"which_to_keep": "hardest"}, "Did you mean 'hard'"),
        ({"distance_metric": "dot"}, "distance_metric='dot'"),
        ({"keep": "longest"}, "rank by a column"),
        ({"keep": "first", "ranking_strategy": RankingStrategy(["a"])}, "set only one"),
        ({"compare_with": "none"}, "compare_with='none'"),
        ({"memory_budget": "1MiB"}, "64 MiB"),
        ({"init": "best"}, "init='best'"),
        ({"fit_data_fraction": 0.0}, "fit_data_fraction=0.0"),
    ],
)
def test_bad_parameters_are_refused_at_once(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        SemanticDeduplication(**parameters)


def write(folder: Path, rows: list[dict[str, Any]], files: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = []
    for number in range(files):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[number::files]), encoding="utf-8")
        paths.append(path)
    return paths


def kept_ids(result: Any) -> list[int]:
    folder = Path(result.run_dir).with_suffix("")
    return sorted(json.loads(line)["id"] for file in folder.glob("*.jsonl") for line in file.open())


def deduplicated(inputs: Any, output: Path, stage: Any, executor: Any = None, **reader: Any) -> Any:
    kind = ParquetReader if str(inputs).endswith(".parquet") else JsonlReader
    pipeline = Pipeline("semantic", [kind(inputs, **reader), stage, JsonlWriter(str(output))])
    executor = executor or LocalExecutor(workers=0)
    return pipeline.run(executor, run_dir=output.parent / f"{output.name}.run", progress="off")


def pairs(result: Any) -> list[tuple[Any, ...]]:
    """The removed rows with those kept in their place and their similarity, by id."""
    names = {}
    for path in {d["source"] for d in result.drops().to_pylist()} | {
        d["score_text"].rpartition(":")[0] for d in result.drops().to_pylist()
    }:
        at = 0
        for line in Path(path).read_bytes().splitlines(keepends=True):
            names[f"{path}:{at}"] = json.loads(line)["id"]
            at += len(line)
    return sorted(
        (names[f"{d['source']}:{d['position']}"], names[d["score_text"]], d["score"])
        for d in result.drops().to_pylist()
    )


def test_any_workers_any_blocks_and_any_order_of_files(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", rows_of(vectors(10, 400)), 6)
    settings = {"eps": 0.02, "n_clusters": 9, "refine_rounds": 2, "fit_data_fraction": 0.5}
    runs = [
        deduplicated(paths, tmp_path / "a", SemanticDeduplication(**settings)),
        deduplicated(
            paths[::-1],
            tmp_path / "b",
            SemanticDeduplication(**settings, partitions=3),
            LocalExecutor(workers=4),
            files_per_partition=2,
        ),
        deduplicated(
            str(tmp_path / "in"),
            tmp_path / "c",
            SemanticDeduplication(**settings),
            LocalExecutor(workers=2),
            blocksize="2KiB",
        ),
    ]
    removed = pairs(runs[0])
    assert len(removed) > 100
    assert removed == pairs(runs[1]) == pairs(runs[2])
    assert runs[0].stage("SemanticDeduplication (fit)").custom["vectors_fitted"] < 300


def test_processes_remove_the_same_rows_as_threads(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", rows_of(vectors(11, 150)), 3)
    stage = SemanticDeduplication(eps=0.02, n_clusters=5)
    threads = deduplicated(paths, tmp_path / "a", stage, LocalExecutor(workers=2))
    processes = deduplicated(paths, tmp_path / "b", stage, LocalExecutor(workers=2, substrate="processes"))
    assert pairs(threads) == pairs(processes)


def test_what_does_not_fit_into_memory_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = vectors(12, 800)
    paths = write(tmp_path / "in", rows_of(matrix, place=list(range(800))), 3)
    monkeypatch.setattr("tamis.stages.deduplication.semantic.stage._LEAST_MEMORY", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("tamis.kernels.products.CpuProducts.pair_rows", 16)
    monkeypatch.setattr("tamis.kernels.products.CpuProducts.pair_columns", 64)
    stage = SemanticDeduplication(eps=0.01, n_clusters=4, partitions=1, memory_budget="8KiB", keep="lowest:place")
    result = deduplicated(paths, tmp_path / "small", stage)
    assert result.stage("SemanticDeduplication (mark)").custom["parts"] > 2
    assert result.stage("SemanticDeduplication (fit)").custom["vectors_fitted"] < 200
    assert kept_ids(result) == sorted(kept_by_definition(matrix, 0.01))


def test_the_ledger_names_what_is_kept_and_how_similar_it_is(tmp_path: Path) -> None:
    matrix = np.array([[1, 0], [1, 0.1], [3, 0]])
    (path,) = write(tmp_path / "in", rows_of(matrix), 1)
    result = deduplicated(path, tmp_path / "out", SemanticDeduplication(keep="first", eps=0.1))
    found = pairs(result)
    assert [(row, kept) for row, kept, _ in found] == [(1, 0), (2, 0)]
    assert found[0][2] == pytest.approx(1 / np.sqrt(1.01), abs=1e-6)
    assert found[1][2] == 1.0
    duplicates = result.duplicates()
    assert (duplicates.removed, duplicates.groups, duplicates.sizes) == (2, 1, {3: 1})


def test_the_stage_under_the_name_of_nemo_curator() -> None:
    rows = [{"image_id": "a", "image_embedding": [1.0, 0.0]}, {"image_id": "b", "image_embedding": [1.0, 0.0]}]
    stage = SemanticDeduplicationStage(id_field="image_id", embedding_field="image_embedding", n_clusters=100, eps=0.01)
    assert len(run_stage(stage, rows)) == 1


@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_a_smaller_eps_can_be_tried_afterwards(tmp_path: Path, compare_with: Any) -> None:
    paths = write(tmp_path / "in", rows_of(vectors(13, 250)), 2)
    settings = {"n_clusters": 6, "compare_with": compare_with, "keep": "first"}
    wide = SemanticDeduplication(eps=0.05, pairs_path=str(tmp_path / "pairs"), **settings)
    recorded = deduplicated(paths, tmp_path / "wide", wide)
    narrow = deduplicated(paths, tmp_path / "narrow", SemanticDeduplication(eps=0.01, **settings))
    again = recorded.duplicates().rethreshold(0.99)
    assert again.rows["removed"].to_pylist() == narrow.duplicates().rows()["removed"].to_pylist()
    assert again.removed < recorded.duplicates().removed
    same = recorded.duplicates().rethreshold(0.95)
    assert (same.removed, len(same.newly_kept), len(same.newly_removed)) == (recorded.duplicates().removed, 0, 0)
    with pytest.raises(DataError, match=r"eps=0\.05, less similar pairs were not recorded"):
        recorded.duplicates().rethreshold(0.9)


def test_products_on_a_gpu_fall_back_to_cpus_with_a_note(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", rows_of(vectors(14, 60)), 1)
    result = deduplicated(path, tmp_path / "gpu", SemanticDeduplication(gpus=0.5, n_clusters=3))
    note = "SemanticDeduplication (compare): there is no GPU: it runs on CPUs"
    plan = str(Pipeline("p", [JsonlReader(path), SemanticDeduplication(gpus=0.5)]).plan())
    assert (note in plan) != LocalExecutor().has_gpus()
    assert pairs(result) == pairs(deduplicated(path, tmp_path / "cpu", SemanticDeduplication(n_clusters=3)))


def test_products_of_torch_remove_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (path,) = write(tmp_path / "in", rows_of(vectors(15, 200)), 1)
    settings = {"n_clusters": 8, "eps": 0.02, "refine_rounds": 1}
    numpy = deduplicated(path, tmp_path / "numpy", SemanticDeduplication(**settings))
    for module in ("assign", "compare", "fit"):
        monkeypatch.setattr(f"tamis.stages.deduplication.semantic.{module}.device_of", lambda stage: "torch:cpu")
    torch = deduplicated(path, tmp_path / "torch", SemanticDeduplication(**settings))
    assert pairs(numpy) == pairs(torch)
