"""Perceptual deduplication: the same images are removed, whoever does it and in whatever order."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, PlanError
from tamis.pipeline.recipe import load_recipe
from tamis.stages.image.deduplication import PerceptualDeduplication, PerceptualHash, similar
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.tasks import ImageBatch
from tamis.testing import run_stage
from tests.support.pictures import encoded, picture, variants

Row = dict[str, Any]

GROUPS = 10


@pytest.fixture(scope="module")
def images() -> list[Row]:
    """Pictures, of each what was made of it, and some that are there once; shuffled, with their hashes."""
    rows: list[Row] = []
    for seed in range(GROUPS):
        image = picture(seed)
        for name, content in {"original": encoded(image), **variants(image)}.items():
            rows.append({"image_id": f"{seed}-{name}", "picture": seed, "image_bytes": content})
    rows += [
        {"image_id": f"{seed}-alone", "picture": seed, "image_bytes": encoded(picture(seed))} for seed in range(90, 98)
    ]
    random.Random(1).shuffle(rows)
    for number, row in enumerate(rows):
        row |= {"id": number, "score": number % 7, "width": Image.open(io.BytesIO(row["image_bytes"])).width}
    return [dict(row) for row in run_stage(PerceptualHash(("phash", "dhash")), rows)]


def groups_by_definition(hashes: list[int], max_distance: int = 4) -> list[int]:
    """For each row the first row of its group: rows that are similar, directly or through others."""
    group = list(range(len(hashes)))
    for row, hash_ in enumerate(hashes):
        for other in range(row):
            if (hash_ ^ hashes[other]).bit_count() <= max_distance and group[other] != group[row]:
                low, high = sorted((group[other], group[row]))
                group = [low if each == high else each for each in group]
    return group


def table_of(rows: list[Row]) -> pa.Table:
    """Rows as a table; hashes are numbers without a sign."""
    kinds = {name: pa.uint64() if name in ("phash", "dhash") else None for name in rows[0]}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def write(folder: Path, rows: list[Row], files: int) -> list[str]:
    folder.mkdir()
    paths = [folder / f"{number}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        pq.write_table(table_of(rows[number::files]), path)
    return [str(path) for path in paths]


def deduplicated(
    inputs: Any, output: Path, executor: LocalExecutor, failure_budget: int | None = 0, **settings: Any
) -> Any:
    stages = [ParquetReader(inputs, files_per_partition=1), PerceptualDeduplication(**settings)]
    pipeline = Pipeline("images", [*stages, ParquetWriter(str(output))])
    run_dir = output.parent / f"{output.name}.run"
    return pipeline.run(executor, run_dir=run_dir, progress="off", failure_budget=failure_budget)


def kept(output: Path) -> set[str]:
    return {name for path in output.glob("*.parquet") for name in pq.read_table(path)["image_id"].to_pylist()}


@pytest.mark.parametrize("kind", ["phash", "dhash"])
def test_one_image_of_each_group_is_kept(images: list[Row], kind: str) -> None:
    groups = groups_by_definition([row[kind] for row in images])
    run = run_stage(PerceptualDeduplication(kind), table_of(images))
    assert {row["id"] for row in run} == set(groups)
    assert {dropped.reason for dropped in run.dropped} == {"perceptual duplicate"}
    assert isinstance(run.tasks[0], ImageBatch) or run.tasks[0].get_columns() == list(images[0])


def test_variants_of_a_picture_are_found_and_other_pictures_stay(images: list[Row]) -> None:
    run = run_stage(PerceptualDeduplication(), table_of(images))
    assert {row["picture"] for row in run} == {row["picture"] for row in images}
    assert len(run) <= len({row["picture"] for row in images}) + GROUPS * 4 // 20  # at least 95 % of the variants


def test_hashes_in_a_column_are_used(images: list[Row]) -> None:
    rows = [{name: row[name] for name in ("id", "phash")} for row in images]
    expected = {row["id"] for row in run_stage(PerceptualDeduplication(), table_of(images))}
    assert {row["id"] for row in run_stage(PerceptualDeduplication(hash_field="phash"), table_of(rows))} == expected
    as_bytes = [{**row, "phash": row["phash"].to_bytes(8, "big")} for row in rows]
    table = pa.Table.from_pylist(as_bytes, pa.schema({"id": pa.int64(), "phash": pa.binary(8)}))
    assert {row["id"] for row in run_stage(PerceptualDeduplication(hash_field="phash"), table)} == expected


def test_the_same_rows_on_every_executor_and_in_any_order_of_files(images: list[Row], tmp_path: Path) -> None:
    paths = write(tmp_path / "in", images, 5)
    deduplicated(paths, tmp_path / "inline", LocalExecutor(0))
    deduplicated(paths[::-1], tmp_path / "threads", LocalExecutor(4, substrate="threads"), partitions=3)
    random.Random(2).shuffle(paths)
    deduplicated(paths, tmp_path / "processes", LocalExecutor(1, substrate="processes"))
    assert kept(tmp_path / "inline") == kept(tmp_path / "threads") == kept(tmp_path / "processes")
    assert GROUPS < len(kept(tmp_path / "inline")) < len(images)


@pytest.mark.parametrize("keep", ["highest:width", "lowest:score"])
def test_which_image_stays(images: list[Row], keep: str) -> None:
    rule, column = keep.split(":")
    groups = groups_by_definition([row["phash"] for row in images])
    best: dict[int, Row] = {}
    for group, row in zip(groups, images, strict=True):
        other = best.setdefault(group, row)
        if row[column] > other[column] if rule == "highest" else row[column] < other[column]:
            best[group] = row
    run = run_stage(PerceptualDeduplication(keep=keep), table_of(images))
    assert {row["id"] for row in run} == {row["id"] for row in best.values()}


def test_duplicates_are_told_with_what_is_kept_and_how_similar_they_are(images: list[Row], tmp_path: Path) -> None:
    (path,) = write(tmp_path / "in", images, 1)
    result = deduplicated(path, tmp_path / "out", LocalExecutor(0))
    found = result.duplicates()
    groups = groups_by_definition([row["phash"] for row in images])
    expected = {
        (f"{path}:{row}", f"{path}:{first}"): 1 - (images[row]["phash"] ^ images[first]["phash"]).bit_count() / 64
        for row, first in enumerate(groups)
        if row != first
    }
    pairs = found.rows().to_pylist()
    assert {(pair["removed"], pair["kept"]): pair["similarity"] for pair in pairs} == expected
    assert found.groups == len({first for _, first in expected})
    report = (Path(result.run_dir) / "report.html").read_text(encoding="utf-8")
    assert "Duplicates: PerceptualDeduplication" in report


def test_images_with_the_same_hash_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"h": 0}] * 3000 + [{"h": 3}] * 2000 + [{"h": 2**60 - 1}, {"h": None}, {"h": None}]
    compared: list[int] = []
    pairs = similar.Choice.pairs
    monkeypatch.setattr(similar.Choice, "pairs", lambda self, h, d: compared.append(len(h)) or pairs(self, h, d))
    run = run_stage(PerceptualDeduplication(hash_field="h"), rows)
    assert list(run) == [{"h": 0}, {"h": 2**60 - 1}, {"h": None}, {"h": None}]
    assert set(compared) == {3}


def test_hashes_that_do_not_fit_into_memory_are_compared_in_parts(
    images: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = list(run_stage(PerceptualDeduplication(hash_field="phash"), table_of(images)))
    monkeypatch.setattr(similar, "range_count", lambda hashes, memory_bytes: 5)
    monkeypatch.setattr(similar, "_LEAST_WORK", 1)
    monkeypatch.setattr(similar, "_EDGES_AT_ONCE", 2)
    assert list(run_stage(PerceptualDeduplication(hash_field="phash"), table_of(images))) == expected


def test_images_may_be_decoded_at_a_smaller_scale() -> None:
    rows = [{"image_bytes": encoded(picture(seed, 1200, 900), "JPEG")} for seed in range(6)]
    exact, scaled = (run_stage(PerceptualHash(exact=exact), rows) for exact in (True, False))
    assert max((a["phash"] ^ b["phash"]).bit_count() for a, b in zip(exact, scaled, strict=True)) <= 2
    rows += [{"image_bytes": encoded(picture(1, 1200, 900).resize((600, 450)))}]
    assert len(run_stage(PerceptualDeduplication(exact=False), rows)) == 6


def test_no_distance_means_equal_hashes(images: list[Row]) -> None:
    run = run_stage(PerceptualDeduplication(max_distance=0, hash_field="phash"), table_of(images))
    assert {row["phash"] for row in run} == {row["phash"] for row in images}
    assert len(run) == len({row["phash"] for row in images})


def test_no_rows_and_one_row() -> None:
    assert list(run_stage(PerceptualDeduplication(hash_field="h"), pa.table({"h": pa.array([], pa.uint64())}))) == []
    assert list(run_stage(PerceptualDeduplication(hash_field="h"), [{"h": 1}])) == [{"h": 1}]


def test_a_broken_image_is_set_aside_alone(images: list[Row], tmp_path: Path) -> None:
    rows = [{"image_id": row["image_id"], "image_bytes": row["image_bytes"]} for row in images]
    rows[7]["image_bytes"] = rows[7]["image_bytes"][:60]
    (path,) = write(tmp_path / "in", rows, 1)
    result = deduplicated(path, tmp_path / "out", LocalExecutor(0, retries=0), failure_budget=None)
    others = run_stage(PerceptualDeduplication(), rows[:7] + rows[8:])
    assert kept(tmp_path / "out") == {row["image_id"] for row in others}
    (failure,) = result.failures
    assert "cannot be decoded" in str(failure)


def test_a_recipe_can_name_the_stages(images: list[Row], tmp_path: Path) -> None:
    write(tmp_path / "in", images, 2)
    recipe = load_recipe(
        f"""
        name: images
        stages:
          - ParquetReader: {{file_paths: {tmp_path}/in}}
          - ImageExactDeduplication: {{by: pixels}}
          - PerceptualHash: {{kinds: [phash]}}
          - PerceptualDeduplication: {{hash_field: phash, max_distance: 3, keep: "highest:width"}}
          - ParquetWriter: {{path: {tmp_path}/out}}
        """
    )
    recipe.to_pipeline().run(LocalExecutor(0), run_dir=tmp_path / "run", progress="off")
    assert GROUPS <= len(kept(tmp_path / "out")) < len(images)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "pash"}, "Did you mean 'phash'"),
        ({"max_distance": 17}, "from 0 to 16 bits"),
        ({"keep": "longest"}, "highest:COLUMN"),
        ({"partitions": 0}, "from 1 to 32768"),
        ({"memory_budget": 1}, "at least"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        PerceptualDeduplication(**settings)


def test_columns_without_hashes_are_refused() -> None:
    batch = ImageBatch({"phash": ["8f0c"]})
    with pytest.raises(ColumnError, match="whole numbers of 64 bits or strings of 8 bytes"):
        similar.hashes_in(batch, "phash")
    with pytest.raises(PlanError, match="kinds"):
        PerceptualHash("phash")


DYING = """
import os, sys
from pathlib import Path
from tamis import Pipeline, ProcessingStage
from tamis.backends.local import LocalExecutor
from tamis.stages.image.deduplication import PerceptualDeduplication
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.tasks import TableTask

class DieOnce(ProcessingStage[TableTask, TableTask]):
    def __init__(self, name, task):
        self.name, self.task, self.seen = name, task, 0

    def process(self, batch):
        self.seen += 1
        flag = Path(sys.argv[1]) / self.name
        if self.seen == self.task and sys.argv[2] == "dies" and not flag.exists():
            flag.touch()
            os._exit(9)
        return batch

work = sys.argv[1]
stages = [ParquetReader(work + "/in", files_per_partition=1)]
stages += [PerceptualDeduplication(partitions=2), DieOnce("after", 2), ParquetWriter(work + "/" + sys.argv[2])]
Pipeline("p", stages).run(LocalExecutor(0), run_dir=work + "/run-" + sys.argv[2], progress="off")
"""


def test_a_run_that_is_killed_goes_on_to_the_same_end(images: list[Row], tmp_path: Path) -> None:
    """Killed while duplicates are removed."""
    write(tmp_path / "in", images, 4)

    def start(kind: str) -> int:
        command = [sys.executable, "-c", DYING, str(tmp_path), kind]
        return subprocess.run(command, check=False, capture_output=True).returncode

    assert start("lives") == 0
    assert [start("dies") for _ in range(2)] == [9, 0]
    lived, died = (
        {path.name: path.read_bytes() for path in (tmp_path / kind).glob("*.parquet")} for kind in ("lives", "dies")
    )
    assert lived
    assert died == lived
