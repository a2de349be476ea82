"""Folders and Parquet files of images, the reader that tells them apart, and broken images in a run."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_images import broken_images
from PIL import Image

from tamis import LocalExecutor, Pipeline, ProcessingStage
from tamis.errors import ColumnError, DataError, PlanError, StageError
from tamis.stages.image.io import ImageFolderReader, ImageReader, ImageWriterStage, UnpackImages, WebDatasetReader
from tamis.stages.io import JsonlReader, ParquetReader
from tamis.tasks import DocumentBatch, ImageBatch


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run directories are made in a directory of their own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def picture(number: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20 + number, 16), (number * 20, 9, 90)).save(file, kind)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    for number, name in enumerate(["a.png", "b.PNG", "deep/a.png", "deep/er/c.JPG"]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number, "JPEG" if name.endswith("JPG") else "PNG"))
    (root / "a.txt").write_text("the first", encoding="utf-8")
    (root / "notes.md").write_text("not an image", encoding="utf-8")
    return root


def read(*stages: Any, executor: Any = None, **options: Any) -> Any:
    return Pipeline("p", stages=list(stages)).run(executor or LocalExecutor(workers=0), progress="off", **options)


def images_of(result: Any) -> list[dict[str, Any]]:
    return [row for task in result for row in task.data.to_pylist()]


class Measures(ProcessingStage[ImageBatch, ImageBatch]):
    """Adds the width of each image."""

    def process(self, images: ImageBatch) -> ImageBatch:
        return images.with_column("side", [p.shape[1] for p in images.pixels(threads=2)])


def test_folders_are_read_to_their_depths(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = read(ImageFolderReader(str(folder), caption_extension=".txt"), Measures())
    rows = images_of(result)
    assert [row["image_id"] for row in rows] == ["a.png", "b.PNG", "deep/a.png", "deep/er/c.JPG"]
    assert [row["side"] for row in rows] == [20, 21, 22, 23]
    assert [row["caption"] for row in rows] == ["the first", None, None, None]
    assert next(iter(result)).names.to_texts()[0] == f"{folder}/a.png:0"
    assert "1 ending in .txt" in caplog.text
    assert "1 ending in .md" in caplog.text


def test_without_bytes_rows_say_where_images_are(folder: Path) -> None:
    result = read(ImageFolderReader(f"{folder}/**/*.png", fields=["image_id", "image_path"]), Measures())
    assert [(row["image_id"], row["side"]) for row in images_of(result)] == [("a.png", 20), ("deep/a.png", 22)]


def test_a_store_is_read_like_a_disk() -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/pictures/x/1.png", picture(1))
    assert images_of(read(ImageReader("memory://pictures"), Measures()))[0]["side"] == 21


def test_images_that_are_too_large_or_gone_are_set_aside(folder: Path, tmp_path: Path) -> None:
    (folder / "huge.png").write_bytes(bytes(5000))
    reader = ImageFolderReader(str(folder), on_error="quarantine", max_row_bytes=4000)
    result = read(reader, run_dir=str(tmp_path / "run"))
    assert len(images_of(result)) == 4
    assert [Path(each.source).name for each in result.failures] == ["huge.png"]
    with pytest.raises((StageError, DataError), match="larger than"):
        read(ImageFolderReader(str(folder), max_row_bytes=4000))


def test_data_sets_of_hugging_face_have_structs(tmp_path: Path) -> None:
    outside = tmp_path / "outside.png"
    outside.write_bytes(picture(5))
    images = [{"bytes": picture(1), "path": "1.png"}, {"bytes": None, "path": str(outside)}]
    pq.write_table(pa.table({"image": images, "label": [1, 0]}), tmp_path / "train.parquet")
    for stages in ([ImageReader(str(tmp_path / "train.parquet"))], [ParquetReader(str(tmp_path)), UnpackImages()]):
        rows = images_of(read(*stages, Measures()))
        assert [(row["label"], row["side"]) for row in rows] == [(1, 21), (0, 25)]
        assert [row["image_id"] for row in rows] == [f"{tmp_path}/train.parquet:{n}" for n in (0, 1)]


def test_columns_of_bytes_and_of_paths_are_images_too(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(picture(1))
    (tmp_path / "list.jsonl").write_text(f'{{"image": "{tmp_path}/1.png", "image_id": "x"}}\n')
    (row,) = images_of(read(JsonlReader(str(tmp_path)), UnpackImages(), Measures()))
    assert (row["image_id"], row["side"]) == ("x", 21)
    made = UnpackImages(column="png").process(DocumentBatch(pa.table({"png": [picture(2)]})))
    assert next(made.pixels()).shape == (16, 22, 3)
    shared = DocumentBatch(pa.table({"image": pa.array(["1.png", "1.png"]).dictionary_encode()}))
    assert UnpackImages().process(shared)["image_path"].to_pylist() == ["1.png", "1.png"]
    with pytest.raises(ColumnError, match=r"no column 'image', only text"):
        UnpackImages().process(DocumentBatch({"text": ["a"]}))
    with pytest.raises(DataError, match="must hold structs of bytes and path"):
        UnpackImages().process(DocumentBatch({"image": [1]}))


def test_what_is_not_there_is_refused_when_the_pipeline_is_planned(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no such file"):
        Pipeline("p", stages=[ImageReader(str(tmp_path / "none"))]).plan()
    with pytest.raises(PlanError, match="batch_images=0"):
        ImageFolderReader(str(tmp_path), batch_images=0)
    with pytest.raises(PlanError, match="Did you mean 'quarantine'"):
        WebDatasetReader(str(tmp_path), on_error="quarantin")


@pytest.mark.parametrize("substrate", ["threads", "processes"])
def test_broken_images_are_set_aside_and_the_rest_of_the_shard_goes_on(tmp_path: Path, substrate: Any) -> None:
    broken = dict(broken_images())
    assert len(broken) >= 20
    rows = [{"image_id": f"good {n}", "image_bytes": picture(n)} for n in range(10)]
    for number, (kind, data) in enumerate(broken.items()):
        rows.insert(1 + number * 3 // 2, {"image_id": kind, "image_bytes": data})
    read(ImageWriterStage(str(tmp_path / "shards")), initial_tasks=[ImageBatch(pa.Table.from_pylist(rows))])
    executor = LocalExecutor(workers=2, substrate=substrate)
    reader = WebDatasetReader(str(tmp_path / "shards"))
    result = read(reader, Measures(), executor=executor, run_dir=str(tmp_path / "run"))
    kept = images_of(result)
    assert [row["image_id"] for row in kept] == [f"good {n}" for n in range(10)]
    assert [row["side"] for row in kept] == [20 + n for n in range(10)]
    assert len(result.failures) == len(broken)
    assert {each.kind for each in result.failures} == {"row"}
    assert all(f"{each.name} cannot be decoded: " in each.message for each in result.failures)
    assert all(each.source.endswith(".tar") for each in result.failures)
    positions = [each.position for each in result.failures]
    assert len({*positions}) == len(broken)
    assert np.all(np.array(positions) % 512 == 0)


def test_tars_or_images_are_read_whichever_there_are_more_of(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(folder / "one.tar", "w"):
        pass
    kinds = [type(stage).__name__ for stage in ImageReader(str(folder)).decompose()]
    assert kinds == ["FilePartitioningStage", "ImageFolderReaderStage"]
