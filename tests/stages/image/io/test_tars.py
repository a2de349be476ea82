"""Tars of images: samples and companions, parts of large ones, damage, and back into tars."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tamis import LocalExecutor, Pipeline, ProcessingStage
from tamis.errors import DataError, PlanError, StageError
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.image.io import (
    ConvertImageBatchToDocumentBatchStage,
    ImageReader,
    ImageReaderStage,
    ImageWriterStage,
    WebDatasetReader,
)
from tamis.stages.image.io.tar_members import Member, TarSource, key_of, members
from tamis.stages.io import ParquetWriter
from tamis.tasks import FileSlice, ImageBatch, ImageObject


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run directories are made in a directory of their own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def picture(number: int, kind: str = "JPEG", size: tuple[int, int] = (40, 30)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (number * 7 % 256, number % 256, 90)).save(file, kind)
    return file.getvalue()


def write_tar(path: Path, files: Sequence[tuple[str, bytes]], **options: Any) -> Path:
    with tarfile.open(path, **({"mode": "w"} | options)) as tar:
        for name, data in files:
            head = tarfile.TarInfo(name)
            head.size = len(data)
            tar.addfile(head, io.BytesIO(data))
    return path


def sample(number: int) -> list[tuple[str, bytes]]:
    fields = {"width": 40, "license": None if number % 2 else "cc0", "tags": [number]}
    return [
        (f"{number:04d}.jpg", picture(number)),
        (f"{number:04d}.txt", f"picture é {number}".encode()),
        (f"{number:04d}.json", json.dumps(fields).encode()),
    ]


def samples(count: int, first: int = 0) -> list[tuple[str, bytes]]:
    return [file for number in range(first, first + count) for file in sample(number)]


def images_of(result: Any) -> pa.Table:
    return pa.concat_tables([task.data for task in result], promote_options="permissive")


def read(*stages: Any, executor: Any = None, **options: Any) -> Any:
    return Pipeline("p", stages=list(stages)).run(executor or LocalExecutor(workers=0), progress="off", **options)


def test_samples_become_rows_with_captions_and_metadata(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", samples(5))
    result = read(WebDatasetReader(str(tmp_path / "a.tar"), batch_images=2))
    assert [task.num_items for task in result] == [2, 2, 1]
    assert {type(task) for task in result} == {ImageBatch}
    rows = images_of(result).to_pylist()
    assert [row["image_id"] for row in rows] == [f"{n:04d}" for n in range(5)]
    assert [row["image_bytes"] for row in rows] == [picture(n) for n in range(5)]
    assert [row["caption"] for row in rows] == [f"picture é {n}" for n in range(5)]
    assert [(row["width"], row["license"], row["tags"]) for row in rows[:2]] == [(40, "cc0", [0]), (40, None, [1])]
    first = next(iter(result))
    assert first.names.to_texts()[1].startswith(f"{tmp_path}/a.tar:")
    # Where the bytes are is known, so they can be fetched again.
    again = ImageBatch(first.columns(["image_path", "byte_offset", "byte_size"]))
    assert list(again.payloads()) == [picture(0), picture(1)]
    assert [p.shape for p in first.pixels()] == [(30, 40, 3)] * 2


def test_all_kinds_of_images_in_upper_and_lower_case_are_found(tmp_path: Path) -> None:
    kinds = {"jpg": "JPEG", "JPEG": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "BMP": "BMP", "tif": "TIFF"}
    files = [(f"x/{n}.{ending}", picture(n, kind)) for n, (ending, kind) in enumerate(kinds.items())]
    others = [("README", b"no dot"), ("x/.hidden.jpg", picture(1)), ("7.mp3", b"sound"), ("8.txt", b"alone")]
    write_tar(tmp_path / "a.tar", [*files, *others])
    result = read(WebDatasetReader(str(tmp_path)))
    rows = images_of(result).to_pylist()
    assert [row["image_id"] for row in rows] == [*(f"x/{n}" for n in range(7)), "a_000007"]
    assert rows[0]["caption"] is None


def test_several_images_of_one_sample_and_odd_companions(tmp_path: Path) -> None:
    files = [
        ("1.left.jpg", picture(1)),
        ("1.right.jpg", picture(2)),
        ("1.right.png", picture(3, "PNG")),
        ("1.cls", b"4\n"),
        ("1.json", b'{\n "caption": "from json",\n "image_path": "elsewhere", "image_id": 3}'),
        ("2.jpg", picture(4)),
        ("2.txt", b"from text"),
        ("2.json", b'{"caption": "from json"}'),
    ]
    write_tar(tmp_path / "a.tar", files)
    rows = images_of(read(WebDatasetReader(str(tmp_path)))).to_pylist()
    assert [row["image_id"] for row in rows] == ["1.left", "1.right.jpg", "1.right.png", "2"]
    assert [row["caption"] for row in rows] == ["from json"] * 3 + ["from text"]
    assert [row["json_caption"] for row in rows] == [None] * 3 + ["from json"]
    assert [row["cls"] for row in rows] == [4, 4, 4, None]
    assert (rows[0]["json_image_path"], rows[0]["json_image_id"]) == ("elsewhere", 3)


def test_numbers_as_ids_and_declared_types(tmp_path: Path) -> None:
    write_tar(tmp_path / "shard-7.x.tar", samples(4))
    reader = WebDatasetReader(str(tmp_path), image_ids="number", types={"width": "int16"}, fields=["image_id", "width"])
    table = images_of(read(reader))
    assert table["image_id"].to_pylist() == [f"shard-7.x_{n:06d}" for n in range(4)]
    assert table.schema.field("width").type == pa.int16()
    assert table.column_names == ["image_id", "width"]


@pytest.mark.parametrize("image_ids", ["key", "number"])
def test_a_large_tar_in_parts_equals_the_whole(tmp_path: Path, image_ids: str) -> None:
    write_tar(tmp_path / "big.tar", samples(60))
    whole = images_of(read(WebDatasetReader(str(tmp_path), image_ids=image_ids)))
    result = read(
        WebDatasetReader(str(tmp_path), blocksize=9000, image_ids=image_ids),
        executor=LocalExecutor(workers=2, substrate="threads"),
    )
    tasks = list(result)
    assert len(tasks) > 8
    assert images_of(result).equals(whole.combine_chunks()) or images_of(result).to_pylist() == whole.to_pylist()
    names = [name for task in tasks for name in task.names.to_texts()]
    assert len(set(names)) == 60


@pytest.mark.parametrize("ending", ["gz", "zst", "xz"])
def test_compressed_tars_are_read_as_a_whole(tmp_path: Path, ending: str) -> None:
    plain = write_tar(tmp_path / "a.tar", samples(6)).read_bytes()
    if ending == "zst":
        data = pa.Codec("zstd").compress(plain, asbytes=True)
    else:
        module = __import__({"gz": "gzip", "xz": "lzma"}[ending])
        data = module.compress(plain)
    (tmp_path / "a.tar").unlink()
    (tmp_path / f"a.tar.{ending}").write_bytes(data)
    result = read(WebDatasetReader(str(tmp_path), blocksize=1000))
    rows = images_of(result).to_pylist()
    assert [row["image_bytes"] for row in rows] == [picture(n) for n in range(6)]
    assert {row["image_path"] for row in rows} == {None}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_and_all_forms_of_tars(tmp_path: Path, form: int) -> None:
    long = "/".join(["directory" * 6] * 4) if form != tarfile.USTAR_FORMAT else "directory" * 6 + "/" + "name" * 20
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=form) as tar:
        tar.add(tmp_path, "folder", recursive=False)
        for name in (f"{long}/é.jpg", "short.jpg"):
            head = tarfile.TarInfo(name)
            data = picture(1)
            head.size = len(data)
            tar.addfile(head, io.BytesIO(data))
    with tarfile.open(path) as tar:
        wanted = [(m.name, m.offset_data, m.size) for m in tar if m.isfile()]
    with TarSource(FileSlice(str(path)), {}) as source:
        found = [m for m in members(source) if isinstance(m, Member)]
    assert [(m.name, m.data, m.size) for m in found] == wanted
    assert images_of(read(WebDatasetReader(str(tmp_path))))["image_bytes"].to_pylist() == [picture(1)] * 2


def test_tars_one_after_the_other_in_one_file_are_read_to_the_end(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "1", samples(2)).read_bytes()
    two = write_tar(tmp_path / "2", samples(2, 2)).read_bytes()
    (tmp_path / "both.tar").write_bytes(one + two)
    assert images_of(read(WebDatasetReader(str(tmp_path))))["image_id"].to_pylist() == ["0000", "0001", "0002", "0003"]


def damaged(kind: str, whole: bytes, starts: list[int]) -> bytes:
    if kind == "cut in a file":
        return whole[: starts[9] + 700]
    if kind == "cut in a header":
        return whole[: starts[9] + 100]
    if kind == "without its end":
        return whole[: starts[-1] + 1024]
    return whole[: starts[9]] + b"?" * 512 + whole[starts[9] + 512 :]  # a header in the middle


@pytest.mark.parametrize("blocksize", [None, 4000])
@pytest.mark.parametrize("kind", ["cut in a file", "cut in a header", "without its end", "damaged header"])
def test_what_is_damaged_is_set_aside_and_the_rest_kept(tmp_path: Path, kind: str, blocksize: int | None) -> None:
    path = write_tar(tmp_path / "a.tar", samples(6))
    with tarfile.open(path) as tar:
        starts = [member.offset for member in tar]
    path.write_bytes(damaged(kind, path.read_bytes(), starts))
    with pytest.raises((StageError, DataError), match=r"a\.tar, byte \d+"):
        read(WebDatasetReader(str(path), blocksize=blocksize))
    result = read(
        WebDatasetReader(str(path), blocksize=blocksize, on_error="quarantine"), run_dir=str(tmp_path / "run")
    )
    kept = images_of(result)["image_id"].to_pylist()
    wanted = {
        "damaged header": ["0000", "0001", "0002", "0004", "0005"],
        "without its end": [f"000{n}" for n in range(6)],
    }
    assert kept == wanted.get(kind, ["0000", "0001", "0002"])
    problems = [each.problem for each in result.failures]
    assert len(problems) == 1, problems
    assert "bytes" in problems[0]


def test_companions_that_cannot_be_read_are_set_aside(tmp_path: Path) -> None:
    odd = [
        ("a.jpg", picture(1)),
        ("a.json", b"{"),
        ("b.jpg", picture(2)),
        ("b.txt", b"\xff\xfe"),
        ("c.jpg", picture(3)),
    ]
    path = str(write_tar(tmp_path / "a.tar", [*odd, ("c.json", b"[1]"), ("d.jpg", picture(4))]))
    result = read(WebDatasetReader(path, on_error="quarantine"), run_dir=str(tmp_path / "run"))
    assert images_of(result)["image_id"].to_pylist() == ["d"]
    assert len(result.failures) == 3
    with pytest.raises((StageError, DataError), match=r"a\.json"):
        read(WebDatasetReader(path))


def test_json_that_no_table_can_hold_is_set_aside_with_its_image_alone(tmp_path: Path) -> None:
    odd = [
        ("a.jpg", picture(1)),
        ("a.json", b'{"n": 1e999}'),
        ("b.jpg", picture(2)),
        ("b.json", b'\xef\xbb\xbf{"n": 3}'),
    ]
    path = str(write_tar(tmp_path / "a.tar", odd))
    result = read(WebDatasetReader(path, on_error="quarantine"), run_dir=str(tmp_path / "run"))
    assert images_of(result).select(["image_id", "n"]).to_pylist() == [{"image_id": "b", "n": 3}]
    assert "too large for a 64-bit float" in result.failures[0].problem


def test_two_samples_with_the_same_key_stay_apart(tmp_path: Path) -> None:
    files = [(name, data) for n in (1, 2) for name, data in (("a.jpg", picture(n)), ("a.txt", b"text %d" % n))]
    table = images_of(read(WebDatasetReader(str(write_tar(tmp_path / "a.tar", files)))))
    assert table["caption"].to_pylist() == ["text 1", "text 2"]


def test_names_that_are_not_utf8_stay_different(tmp_path: Path) -> None:
    files = [(name, data) for n in "éè" for name, data in ((f"{n}.jpg", picture(1)), (f"{n}.txt", n.encode()))]
    options = {"format": tarfile.GNU_FORMAT, "encoding": "latin-1"}
    table = images_of(read(WebDatasetReader(str(write_tar(tmp_path / "a.tar", files, **options)))))
    assert table["image_id"].to_pylist() == ["\\xe9", "\\xe8"]
    assert table["caption"].to_pylist() == ["é", "è"]


def test_links_and_sparse_files_are_set_aside_with_the_reason(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("a.jpg", picture(1))])
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        for name, kind in (("b.jpg", tarfile.LNKTYPE), ("c.jpg", tarfile.SYMTYPE)):
            head = tarfile.TarInfo(name)
            head.type, head.linkname = kind, "a.jpg"
            tar.addfile(head)
        head = tarfile.TarInfo("GNUSparseFile.0/d.jpg")
        head.size, head.pax_headers = 512, {"GNU.sparse.major": "1", "GNU.sparse.name": "d.jpg"}
        tar.addfile(head, io.BytesIO(bytes(512)))
    result = read(WebDatasetReader(str(tmp_path / "a.tar"), on_error="quarantine"), run_dir=str(tmp_path / "run"))
    assert images_of(result)["image_id"].to_pylist() == ["a"]
    said = " ".join(sorted(each.problem for each in result.failures))
    assert [name in said for name in ("'b.jpg'", "'c.jpg'", "'d.jpg'")] == [True] * 3
    assert (said.count("a link to 'a.jpg'"), said.count("sparse")) == (2, 1)


@pytest.mark.parametrize("blocksize", [None, 1])
def test_numbers_of_images_count_those_that_cannot_be_read(tmp_path: Path, blocksize: int | None) -> None:
    path = str(write_tar(tmp_path / "a.tar", [("x.jpg", picture(1)), ("x.json", b"["), *samples(2)]))
    reader = WebDatasetReader(path, blocksize=blocksize, on_error="quarantine", image_ids="number")
    found = images_of(read(reader, run_dir=str(tmp_path / "run")))
    assert found["image_id"].to_pylist() == ["a_000001", "a_000002"]


def test_a_name_is_cut_at_its_first_dot_as_webdataset_does() -> None:
    assert key_of("a.b/c.d.e") == ("a.b/c", "d.e")
    assert key_of("noending") is None


class Measures(ProcessingStage[ImageBatch, ImageBatch]):
    def process(self, images: ImageBatch) -> ImageBatch:
        return images.with_column("side", [max(p.shape) for p in images.pixels()])


def test_the_stage_of_nemo_curator_reads_what_partitioning_lists(tmp_path: Path) -> None:
    for shard in range(3):
        write_tar(tmp_path / f"{shard}.tar", samples(3, 3 * shard))
    listing = FilePartitioningStage(str(tmp_path), files_per_partition=2, file_extensions=[".tar"])
    result = read(listing, ImageReaderStage(dali_batch_size=100, num_threads=8, num_gpus_per_worker=0.25), Measures())
    assert images_of(result)["side"].to_pylist() == [40] * 9
    alone = read(ImageReaderStage(task_batch_size=2, file_paths=str(tmp_path)))
    assert [task.num_items for task in alone] == [2, 1] * 3 or [task.num_items for task in alone] == [2, 2, 2, 2, 1]
    with pytest.raises(PlanError, match="takes FileGroup, but the start of the pipeline gives EmptyTask"):
        read(ImageReaderStage())


# -- writing


@pytest.mark.parametrize("batch_images", [4, 25])
def test_what_is_written_is_read_back_equal(tmp_path: Path, batch_images: int) -> None:
    write_tar(tmp_path / "a.tar", samples(25))
    reader = WebDatasetReader(str(tmp_path / "a.tar"), batch_images=batch_images)
    stages = (reader, ImageWriterStage(str(tmp_path / "out"), 10))
    result = read(*stages, executor=LocalExecutor(workers=2, substrate="threads"))
    assert Path(result.run_dir, "finished.json").exists()
    tars = sorted((tmp_path / "out").glob("*.tar"))
    assert len(tars) == 3
    columns = ["image_id", "image_bytes", "caption", "width", "license", "tags"]
    before = images_of(read(WebDatasetReader(str(tmp_path / "a.tar")))).select(columns)
    after = images_of(read(WebDatasetReader(str(tmp_path / "out")))).select(columns)
    assert after.to_pylist() == before.to_pylist()
    index = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet"))])
    assert index.column_names == ["image_id", "tar_file", "member_name", "original_path", "metadata"]
    assert index["image_id"].to_pylist() == before["image_id"].to_pylist()
    assert index["member_name"][3].as_py() == "0003.jpg"
    assert json.loads(index["metadata"][0].as_py()) == {"width": 40, "license": "cc0", "tags": [0]}
    with tarfile.open(tars[0]) as tar:
        heads = {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in tar}
        assert heads == {(0, 0, 0, "", 0o644)}
        assert len(tar.getnames()) == (24 if batch_images == 4 else 30)
    card = json.loads((tmp_path / "out" / "RUN.json").read_text())
    assert (card["output"]["files"], card["output"]["rows"]) == (3, 25)


def test_the_same_input_gives_the_same_bytes_whatever_the_workers_and_parts(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", samples(40))
    written = []
    for number, executor in enumerate((LocalExecutor(workers=0), LocalExecutor(workers=2, substrate="processes"))):
        out = tmp_path / f"out{number}"
        read(
            WebDatasetReader(str(tmp_path / "a.tar"), blocksize=20_000),
            ImageWriterStage(str(out), 15),
            executor=executor,
        )
        written.append({path.name: path.read_bytes() for path in out.glob("images-*")})
    assert len(written[0]) == 8
    assert written[0] == written[1]


@pytest.mark.parametrize("images_per_tar", [1, 4, 10])
def test_a_batch_larger_than_a_tar_goes_into_several(tmp_path: Path, images_per_tar: int) -> None:
    write_tar(tmp_path / "a.tar", samples(10))
    read(WebDatasetReader(str(tmp_path / "a.tar")), ImageWriterStage(str(tmp_path / "out"), images_per_tar))
    tars = sorted((tmp_path / "out").glob("*.tar"))
    assert len(tars) == -(-10 // images_per_tar)
    after = images_of(read(ImageReader(str(tmp_path / "out"))))  # the tars: what else is there is their index
    assert after["image_id"].to_pylist() == [f"{number:04d}" for number in range(10)]


def test_pixels_become_jpeg_and_odd_ids_survive(tmp_path: Path) -> None:
    pixels = np.asarray(Image.linear_gradient("L").convert("RGB"))
    odd = ["cats/1.jpg", "cats/1.jpg", "../up", "a.b.c", "x\ny", "é"]
    objects = [ImageObject(image_id=name, image_data=pixels, embedding=np.ones(3)) for name in odd]
    read(ImageWriterStage(str(tmp_path / "out")), initial_tasks=[ImageBatch(objects)])
    back = images_of(read(WebDatasetReader(str(tmp_path / "out"))))
    assert back["image_id"].to_pylist() == odd
    found = next(ImageBatch(back).pixels())
    assert np.abs(found.astype(int) - pixels).mean() < 2
    (index,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(index)["image_embedding"].to_pylist() == [[1.0] * 3] * 6
    with tarfile.open(next((tmp_path / "out").glob("*.tar"))) as tar:
        assert all(".." not in name and not name.startswith("/") for name in tar.getnames())


def test_rows_without_an_image_and_bytes_as_metadata_are_errors(tmp_path: Path) -> None:
    with pytest.raises((StageError, DataError), match="neither image_bytes, image_path nor image_data"):
        read(
            ImageWriterStage(str(tmp_path / "1")),
            initial_tasks=[ImageBatch({"image_bytes": [None], "image_id": ["a"]})],
        )
    binary = ImageBatch({"image_bytes": [picture(1)], "raw": [b"x"]})
    with pytest.raises((StageError, DataError), match="raw"):
        read(ImageWriterStage(str(tmp_path / "2")), initial_tasks=[binary])
    read(ImageWriterStage(str(tmp_path / "3"), fields=["image_bytes"]), initial_tasks=[binary])


def test_a_row_without_an_image_is_set_aside_and_the_others_are_written(tmp_path: Path) -> None:
    stored = pa.array([None if number == 4 else picture(number) for number in range(10)], pa.large_binary())
    batch = ImageBatch(pa.table({"image_id": [str(number) for number in range(10)], "image_bytes": stored}))
    result = read(ImageWriterStage(str(tmp_path / "out"), 3), initial_tasks=[batch], run_dir=str(tmp_path / "run"))
    assert len(result.failures) == 1
    index = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet"))])
    assert index["image_id"].to_pylist() == [str(number) for number in range(10) if number != 4]


def test_images_go_into_parquet_and_documents(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", samples(3))
    read(WebDatasetReader(str(tmp_path)), ParquetWriter(str(tmp_path / "out")))
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["image_bytes"].to_pylist() == [picture(n) for n in range(3)]
    documents = read(WebDatasetReader(str(tmp_path / "a.tar")), ConvertImageBatchToDocumentBatchStage())
    assert images_of(documents).to_pylist() == [{"image_id": f"{n:04d}"} for n in range(3)]
