"""Exact deduplication of images, by their files and by their pixels; removal by ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, PlanError
from tamis.stages.flow import Dropped
from tamis.stages.image.deduplication import (
    ImageDuplicatesRemovalStage,
    ImageExactDeduplication,
    PerceptualDeduplication,
)
from tamis.stages.io import ParquetWriter
from tamis.tasks import DocumentBatch, ImageBatch, ImageObject
from tamis.testing import run_stage
from tests.support.pictures import encoded, picture


def files_of(folder: Path) -> dict[str, bytes]:
    """The same picture as two formats and twice as the same file; another one; and the first one in another size."""
    one, other = picture(1), picture(2)
    contents = {
        "a.png": encoded(one),
        "b.bmp": encoded(one, "BMP"),
        "c.png": encoded(one),
        "d.png": encoded(other),
        "e.png": encoded(one.resize((80, 60))),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return contents


def names(run: list[dict[str, object]]) -> list[str]:
    return [Path(str(row["image_path"])).name for row in run]


def test_files_are_compared_where_they_are(tmp_path: Path) -> None:
    """References stay references: no column of bytes is made, and none is carried."""
    rows = [{"image_path": str(tmp_path / name), "image_id": name} for name in files_of(tmp_path)]
    run = run_stage(ImageExactDeduplication(), rows)
    assert names(run) == ["a.png", "b.bmp", "d.png", "e.png"]
    assert list(run[0]) == ["image_path", "image_id"]
    assert [dropped.reason for dropped in run.dropped] == ["exact duplicate"]


def test_members_of_an_archive_are_compared(tmp_path: Path) -> None:
    contents = files_of(tmp_path)
    (tmp_path / "all.tar").write_bytes(b"".join(contents.values()))
    ends = np.cumsum([len(content) for content in contents.values()]).tolist()
    rows = [
        {
            "image_path": str(tmp_path / "all.tar"),
            "byte_offset": end - len(content),
            "byte_size": len(content),
            "id": name,
        }
        for end, (name, content) in zip(ends, contents.items(), strict=True)
    ]
    assert [row["id"] for row in run_stage(ImageExactDeduplication(), rows)] == ["a.png", "b.bmp", "d.png", "e.png"]


def test_pixels_are_compared_whatever_the_format(tmp_path: Path) -> None:
    contents = files_of(tmp_path)
    rows = [{"image_id": name, "image_bytes": content} for name, content in contents.items()]
    run = run_stage(ImageExactDeduplication("pixels", keep="highest:image_bytes_length"), sized(rows))
    assert [row["image_id"] for row in run] == ["b.bmp", "d.png", "e.png"]
    assert [row["image_id"] for row in run_stage(ImageExactDeduplication("pixels"), rows)] == [
        "a.png",
        "d.png",
        "e.png",
    ]


def sized(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{**row, "image_bytes_length": len(bytes(row["image_bytes"]))} for row in rows]  # type: ignore[call-overload]  # bytes


def test_pictures_of_the_same_bytes_and_another_shape_differ() -> None:
    pixels = np.zeros((4, 6, 3), np.uint8)
    batch = ImageBatch([ImageObject(image_data=pixels), ImageObject(image_data=pixels.reshape(6, 4, 3))])
    assert len(run_stage(ImageExactDeduplication("pixels"), batch)) == 2


def test_batches_stay_batches_of_images(tmp_path: Path) -> None:
    rows = [{"image_id": name, "image_bytes": content} for name, content in files_of(tmp_path).items()]
    run = run_stage(ImageExactDeduplication(), [ImageBatch(rows[:2]), ImageBatch(rows[2:])], workers=2)
    kept = [(type(task).__name__, task.data["image_id"].to_pylist()) for task in run.tasks]
    assert kept == [("ImageBatch", ["a.png", "b.bmp"]), ("ImageBatch", ["d.png", "e.png"])]


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(PlanError, match="Did you mean 'pixels'"):
        ImageExactDeduplication("pixel")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(PlanError, match="highest:COLUMN"):
        ImageExactDeduplication(keep="longest")


def write_ids(folder: Path, column: str, *files: list[str]) -> str:
    folder.mkdir()
    for number, ids in enumerate(files):
        pq.write_table(pa.table({column: ids, "other": [0] * len(ids)}), folder / f"{number}.parquet")
    return str(folder)


def test_images_whose_ids_are_listed_are_removed(tmp_path: Path) -> None:
    folder = write_ids(tmp_path / "ids", "id", ["b", "x"], ["d"])
    batch = ImageBatch([ImageObject(f"{name}.jpg", name) for name in "abcd"])
    run = run_stage(ImageDuplicatesRemovalStage(folder), batch)
    assert [row["image_id"] for row in run] == ["a", "c"]
    assert isinstance(run.tasks[0], ImageBatch)
    assert {dropped.reason for dropped in run.dropped} == {"duplicate"}


def test_the_column_of_the_ids_can_be_named_and_must_be_there(tmp_path: Path) -> None:
    folder = write_ids(tmp_path / "ids", "image", ["b"])
    stage = ImageDuplicatesRemovalStage(folder, duplicate_id_field="image", verbose=True)
    assert [row["image_id"] for row in run_stage(stage, DocumentBatch({"image_id": ["a", "b"]}))] == ["a"]
    with pytest.raises(ColumnError, match="duplicate_id_field"):
        run_stage(ImageDuplicatesRemovalStage(folder), [{"image_id": "a"}])


def test_a_folder_without_files_removes_nothing(tmp_path: Path) -> None:
    run = run_stage(ImageDuplicatesRemovalStage(write_ids(tmp_path / "ids", "id")), [{"image_id": "a"}])
    assert list(run) == [{"image_id": "a"}]


def test_ids_of_perceptual_duplicates_can_be_removed_elsewhere(tmp_path: Path) -> None:
    """What one run dropped, another removes: ids travel in Parquet files."""
    rows = [{"image_id": str(number), "h": number // 2 * 0x0F0F0F0F0F0F} for number in range(10)]
    finding = Dropped(PerceptualDeduplication(hash_field="h"), to=[ParquetWriter(str(tmp_path / "ids"))])
    Pipeline("find", [finding]).run(LocalExecutor(0), [DocumentBatch(rows)], run_dir=tmp_path / "run", progress="off")
    run = run_stage(ImageDuplicatesRemovalStage(str(tmp_path / "ids"), "image_id"), rows)
    assert [row["image_id"] for row in run] == ["0", "2", "4", "6", "8"]
