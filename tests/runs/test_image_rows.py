"""Images are read back by their names: members of tar archives, files, and paths in rows."""

import io
import os
import tarfile
from pathlib import Path

from image_runs import samples

from tamis.quickstart import sample_images
from tamis.runs.image_rows import image_at_path, tar_images
from tamis.runs.source_rows import ReadLimits, read_rows

LIMITS = ReadLimits(media_bytes=2**20)


def shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_every_image_of_a_tar_is_read_back_by_the_byte_of_its_header() -> None:
    expected = samples()
    found = {}
    for path in sample_images():
        with open(path, "rb") as handle:  # noqa: PTH123 - the names of the sample are text
            starts = [at for at, _ in tar_images(handle, 1000)]
        for row in read_rows(path, starts, limits=LIMITS):
            found[row.values["image_id"]] = row.values["image_bytes"]
    assert found == expected


def test_the_companions_of_an_image_are_read_with_it(tmp_path: Path) -> None:
    long = "folder/" + "x" * 150
    path = shard(
        tmp_path / "a.tar",
        {f"{long}.jpg": b"1", f"{long}.json": b'{"license": "CC0-1.0"}', f"{long}.txt": b"a cat\n", "b.jpg": b"2"},
    )
    with path.open("rb") as handle:
        places = [at for at, _ in tar_images(handle, 100)]
    first, second = read_rows(str(path), places, limits=LIMITS)
    assert first.values["caption"] == "a cat"
    assert first.values["license"] == "CC0-1.0"
    assert first.values["image_id"] == "x" * 150
    assert second.values == {"image_id": "b", "member": "b.jpg", "image_bytes": b"2"}


def test_without_images_only_words_are_read(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"a.jpg": b"1", "a.txt": b"a cat"})
    (row,) = read_rows(str(path), [0])
    assert row.values == {"image_id": "a", "member": "a.jpg", "caption": "a cat"}


def test_a_position_that_is_no_member_says_so(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"a.jpg": b"1" * 5000})
    for position in (7, 1024, 10**9):
        (row,) = read_rows(str(path), [position], limits=LIMITS)
        assert "the source has changed" in row.problem
    (row,) = read_rows(str(path), [0], limits=ReadLimits(media_bytes=10))
    assert row.problem == "the image is too large to be shown"


def test_an_image_in_a_folder_is_read_with_the_text_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    (tmp_path / "a.txt").write_text("a cat\n")
    (row,) = read_rows(str(tmp_path / "a.jpg"), [0], limits=LIMITS)
    assert row.values == {"image_id": "a", "member": "a.jpg", "image_bytes": b"1", "caption": "a cat"}


def test_only_files_are_read_for_a_path_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"0123456789")
    os.mkfifo(tmp_path / "pipe.jpg")
    assert image_at_path(str(tmp_path / "a.jpg"), 2, 3, most=100) == b"234"
    assert image_at_path(str(tmp_path / "pipe.jpg"), most=100) == "the image is not a file"
    assert image_at_path(str(tmp_path / "gone.jpg"), most=100) == "the image is gone: there is no such file any more"
    assert image_at_path("s3://bucket/a.jpg", most=100) == "the image is not on this machine"
