"""Contact sheets on pages: kept, dropped and duplicate images, and hostile ones, which do no harm."""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from image_runs import image_run
from pages import CHROMIUM, Page, in_browser

from tamis.runs.figures import steps
from tamis.runs.pages.image_section import images_sections
from tamis.runs.pages.known_runs import KnownRuns
from tamis.runs.pages.run_view import load_view
from tamis.runs.pages.ui_pages import Site
from tamis.runs.report import write_report
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tests.support.row_runs import rows_of, run_stages, write_rows


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    image_run(folder, folder / "run", evil=True)
    return folder / "run"


def part(source: str, heading: str) -> str:
    """What stands below a heading."""
    return source[source.index(heading) :].partition("<h2>")[0]


def test_the_report_shows_images_that_were_kept_and_dropped_and_duplicates(run_dir: Path) -> None:
    source = write_report(run_dir).read_text()
    dropped, kept = part(source, "Images that were dropped"), part(source, "Images that were kept")
    assert "file_bytes &lt; 3000" in dropped
    assert "score 1,4" in dropped
    assert dropped.count("data:image/jpeg;base64,") >= 2
    assert kept.count("data:image/jpeg;base64,") == 24
    groups = part(source, "Duplicates: ExactDeduplication")
    assert groups.count("data:image/jpeg;base64,") == 6  # three pairs, side by side
    assert groups.count("exact duplicate") == 3
    assert len(source) < 1_500_000


def test_hostile_images_and_names_add_no_tag_and_no_address(run_dir: Path) -> None:
    source = write_report(run_dir).read_text()
    page = Page(source)
    assert page.tags.count("script") == 1
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(
        value.startswith("data:image/jpeg;base64,") for name, value in page.attributes if name == "src" and value
    )
    assert "it is not an image that can be shown" in page.text
    assert "img-src data:" in source
    assert "svg+xml" not in source


def test_the_pages_of_ui_show_the_same_images(run_dir: Path) -> None:
    site = Site(KnownRuns(str(run_dir)), "nonce")
    assert "Images that were kept" in site.page([], {})
    rows = site.page(["runs", run_dir.name, "drops"], {})
    assert rows.count("data:image/jpeg;base64,") >= 10
    place = re.findall(r'drops/([^"?]+)"', rows)[-1]
    assert site.page(["runs", run_dir.name, "drops", place], {}).count("data:image/jpeg;base64,") == 1


def test_texts_are_not_read_to_look_for_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "in" / "a.parquet", rows_of(20))
    words = ScoreFilter(WordCountFilter(min_words=4))
    result = run_stages(tmp_path, [ParquetReader(str(path)), words, ParquetWriter(str(tmp_path / "out"))])
    read: list[Any] = []
    read_group = pq.ParquetFile.read_row_group

    def noting(file: Any, *given: Any, **named: Any) -> Any:
        read.append(given)
        return read_group(file, *given, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noting)
    view = load_view(result.run_dir)
    assert images_sections(view, steps(view.summary.stages)) == []
    assert read == []


def test_where_the_files_are_gone_the_page_says_so(tmp_path: Path) -> None:
    image_run(tmp_path, tmp_path / "run")
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    for file in (tmp_path / "out").iterdir():
        if file.is_file():
            file.unlink()
    source = write_report(tmp_path / "run").read_text()
    assert "data:image" not in source
    assert "the source is gone" in source


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_the_pictures_and_runs_nothing_of_theirs(run_dir: Path, tmp_path: Path) -> None:
    shown = in_browser(write_report(run_dir), tmp_path / "profile")
    assert "<title>images" in shown
    assert shown.count("<img") > 30
