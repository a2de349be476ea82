"""Fetching files: each as a whole or not at all, and never twice."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest

from tamis.errors import DataError, PlanError
from tamis.stages.text.download import DocumentDownloader
from tamis.stages.text.download.base import DocumentDownloadStage
from tamis.tasks import FileGroup
from tamis.testing import run_stage

if TYPE_CHECKING:
    from tests.stages.text.download.conftest import Server

DATA = bytes(range(256)) * 20_000  # more than one chunk


def downloader(folder: Path, retries: int = 2) -> DocumentDownloader:
    return DocumentDownloader(str(folder / "raw"), retries=retries, backoff_s=0.0, timeout_s=5.0)


def left_behind(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.is_file()]


def test_file_from_the_web(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = DATA
    path = downloader(tmp_path).download(server.address("a.txt"))
    assert Path(path).read_bytes() == DATA
    assert Path(path).parent == tmp_path / "raw"


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_local_file(form: str, tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_bytes(DATA)
    path = downloader(tmp_path).download(form.format(tmp_path / "a b.txt"))
    assert Path(path).read_bytes() == DATA


def test_any_fsspec_address(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/download/a.txt", DATA)
    assert Path(downloader(tmp_path).download("memory://download/a.txt")).read_bytes() == DATA


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = DATA
    first = downloader(tmp_path).download(server.address("a.txt"))
    assert downloader(tmp_path).download(server.address("a.txt")) == first
    assert server.asked["a.txt"] == 1


def test_empty_file_is_no_proof_that_it_was_fetched(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = DATA
    path = Path(downloader(tmp_path).download(server.address("a.txt")))
    path.write_bytes(b"")
    downloader(tmp_path).download(server.address("a.txt"))
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("trouble", ["busy", "breaks off", "hangs up"])
def test_broken_downloads_are_tried_again(trouble: str, server: Server, tmp_path: Path) -> None:
    server.files["a.txt"], server.troubles["a.txt"] = DATA, (trouble, 2)
    path = downloader(tmp_path).download(server.address("a.txt"))
    assert Path(path).read_bytes() == DATA
    assert server.asked["a.txt"] == 3
    assert left_behind(tmp_path) == [Path(path).name]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("busy", "the server says 503"), ("breaks off", "of 5120000 bytes"), ("hangs up", "RemoteDisconnected")],
)
def test_part_of_a_file_never_counts_as_the_file(trouble: str, words: str, server: Server, tmp_path: Path) -> None:
    server.files["a.txt"], server.troubles["a.txt"] = DATA, (trouble, 99)
    with pytest.raises(DataError, match=r"\(tried 3 times\)") as caught:
        downloader(tmp_path).download(server.address("a.txt"))
    assert words in str(caught.value)
    assert left_behind(tmp_path) == []


def test_what_is_not_there_is_asked_for_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the server says 404"):
        downloader(tmp_path).download(server.address("none.txt"))
    assert server.asked["none.txt"] == 1
    with pytest.raises(DataError, match="no such file"):
        downloader(tmp_path).download(str(tmp_path / "none.txt"))
    assert left_behind(tmp_path) == []


def test_no_server_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no connection"):
        downloader(tmp_path, retries=0).download("http://127.0.0.1:9/a.txt")


def test_addresses_that_end_alike_are_different_files(server: Server, tmp_path: Path) -> None:
    server.files |= {"x/a.txt": b"x", "y/a.txt": b"y", "a%20%C3%A9.txt": b"e"}
    urls = [server.address(name) for name in ("x/a.txt", "y/a.txt", "x/a.txt?v=2", "a é.txt")]
    paths = [Path(downloader(tmp_path).download(url)) for url in urls]
    assert [p.read_bytes() for p in paths] == [b"x", b"y", b"x", b"e"]
    assert {p.suffix for p in paths} == {".txt"}


@pytest.mark.parametrize(
    ("url", "stem", "ending"),
    [
        ("https://a.org/CC-MAIN-2020.10.warc.gz", "CC-MAIN-2020.10", ".warc.gz"),
        ("https://a.org/list/", "list", ""),
        ("https://a.org/x" + "y" * 300 + ".bz2", "y" * 116, ".bz2"),
        ("/data/.hidden", "file", ".hidden"),
    ],
)
def test_names_of_files(url: str, stem: str, ending: str) -> None:
    name = DocumentDownloader("raw")._get_output_filename(url)
    assert name.startswith(f"{stem}-")
    assert name.removesuffix(ending).removeprefix(f"{stem}-").isalnum()


def test_a_long_name_in_any_script_can_be_had(tmp_path: Path) -> None:
    (tmp_path / f"{'日' * 80}.txt").write_bytes(DATA)
    assert Path(downloader(tmp_path).download(str(tmp_path / f"{'日' * 80}.txt"))).read_bytes() == DATA
    assert len(DocumentDownloader("raw")._get_output_filename(f"https://a.org/{'日' * 200}.txt").encode()) < 150


def test_a_name_of_ones_own_cannot_lead_out_of_the_directory(server: Server, tmp_path: Path) -> None:
    class Climbs(DocumentDownloader):
        def _get_output_filename(self, url: str) -> str:
            return "sub/../../a.txt"

    server.files["a.txt"] = DATA
    with pytest.raises(DataError, match="leads out of"):
        Climbs(str(tmp_path / "raw")).download(server.address("a.txt"))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("url", ["http://[::1/a", "http://a:b/c", "http://a\nb/c"])
def test_what_is_no_address_is_a_clear_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a web address"):
        downloader(tmp_path).download(url)


def test_source_of_ones_own_as_in_nemo_curator(tmp_path: Path) -> None:
    class FromNowhere(DocumentDownloader):
        def __init__(self, download_dir: str, verbose: bool = False) -> None:
            super().__init__(download_dir, verbose)
            self.backoff_s = 0.0

        def _get_output_filename(self, url: str) -> str:
            return f"{url}.txt"

        def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
            if url == "bad":
                return False, "it is bad"
            Path(path).write_text(f"{url} in {self._download_dir}", encoding="utf-8")
            return True, None

    assert Path(FromNowhere(str(tmp_path)).download("good")).read_text() == f"good in {tmp_path}"
    with pytest.raises(DataError, match=r"bad: it is bad \(tried 4 times\)"):
        FromNowhere(str(tmp_path)).download("bad")


def test_verbose_says_what_it_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc")
    caplog.set_level(logging.INFO, logger="tamis")
    loud = DocumentDownloader(str(tmp_path / "raw"), verbose=True)
    for _ in range(2):
        loud.download(str(tmp_path / "a.txt"))
    assert "3 bytes" in caplog.messages[0]
    assert "there already" in caplog.messages[1]


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(PlanError, match="retries=-1"):
        DocumentDownloader("raw", retries=-1)


def test_stage_sets_aside_what_cannot_be_had(server: Server, tmp_path: Path) -> None:
    server.files["a.txt"] = b"abc"
    urls = [server.address("a.txt"), server.address("none.txt")]
    run = run_stage(DocumentDownloadStage(downloader(tmp_path)), [FileGroup(urls)])
    (task,) = run.tasks
    assert [Path(p).read_bytes() for p in task.data] == [b"abc"]
    assert task._metadata["source_files"] == task.data
    (bad,) = run.quarantined
    assert bad["source"] == urls[1]
    assert bad["problem"] == "the server says 404 Not Found"


def test_stage_stops_if_told_to(server: Server, tmp_path: Path) -> None:
    stage = DocumentDownloadStage(downloader(tmp_path), on_error="raise")
    with pytest.raises(DataError, match=r"none\.txt: the server says 404"):
        list(stage.process(FileGroup([server.address("none.txt")])))
    with pytest.raises(PlanError, match="on_error"):
        DocumentDownloadStage(downloader(tmp_path), on_error="ignore")


def test_stage_asks_the_downloader_how_many_at_once(tmp_path: Path) -> None:
    @dataclass
    class Shy(DocumentDownloader):
        def num_workers_per_node(self) -> int | None:
            return 1

    stage = DocumentDownloadStage(Shy(str(tmp_path)))
    assert stage.num_workers() == 1
    assert stage.with_(num_workers=3).num_workers() == 3
