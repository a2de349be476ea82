"""`tamis analyze` of images: what it finds in the sample images, the page, the tables, the recipe."""

import json
from pathlib import Path

import polars as pl
import pytest
from image_runs import EVIL, parquet_of_images, samples
from pages import Page

from tamis.analysis.images import ImageAnalysis, analyze_images
from tamis.analysis.images.inputs import count_images, image_reader, is_for_images
from tamis.cli import main
from tamis.errors import PlanError
from tamis.pipeline.recipe import load_recipe
from tamis.quickstart import sample_images

SAMPLE = str(Path(sample_images()[0]).parent)
DEFECTS = json.loads(Path(SAMPLE, "defects.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ImageAnalysis:
    return analyze_images(SAMPLE, output=str(tmp_path_factory.mktemp("look")), workers=2, progress="off")


def ids(found: ImageAnalysis, rows: list[int]) -> set[str]:
    return {found.table.row(row, named=True)["image_id"] for row in rows}


def test_every_image_has_its_figures_and_broken_ones_say_why(found: ImageAnalysis) -> None:
    assert found.images == len(samples()) == 73
    assert set(found.broken["image_id"]) == set(DEFECTS["broken"])
    assert all(found.broken["problem"].str.starts_with("cannot be "))
    assert dict(found.counts("image_format"))["JPEG"] > 40
    assert found.to_dict()["with_caption"] == 71


def test_planted_duplicates_are_found(found: ImageAnalysis) -> None:
    exact = [ids(found, list(group)) for group in found.exact.groups]
    assert sorted(map(sorted, exact)) == sorted(sorted(pair) for pair in DEFECTS["exact_duplicate"].items())
    assert found.pixels.removed == 4
    near = [ids(found, list(group)) for group in found.near.groups]
    for copy, of in DEFECTS["near_duplicate"].items():
        assert {copy, of} in near


def test_planted_defects_are_at_the_ends_of_their_measures(found: ImageAnalysis) -> None:
    def lowest(measure: str, count: int) -> set[str]:
        return set(found.whole.sort(measure)["image_id"].head(count))

    assert "grey" in lowest("sharpness", 4)
    assert {"petals-blurred"} <= lowest("sharpness", 12)
    assert "dogs-at-night" in lowest("brightness", 6)
    assert "sea-in-fog" in lowest("contrast", 6)
    assert {"pixel", "kite-thumbnail"} == lowest("pixels", 2)
    assert found.whole.sort("aspect_ratio")["image_id"][-1] == "temple-banner"
    assert "settings" in set(found.whole.sort("flatness")["image_id"].tail(8))


def test_proposed_thresholds_keep_the_share_that_was_asked_for(found: ImageAnalysis) -> None:
    assert 0.9 <= found.proposed_share() <= 0.95
    for proposal in found.alone.values():
        assert proposal.kept >= 0.9


def test_the_page_shows_pictures_of_the_extremes_and_of_duplicates(found: ImageAnalysis) -> None:
    page = Page(Path(found.output, "index.html").read_text())
    assert page.tags.count("img") > 100
    assert page.tags.count("svg") > 16
    for text in ("chelsea-truncated", "Nearly the same", "IMG_2041.JPG", "dogs-at-night"):
        assert text in page.text
    assert Path(found.output, "index.html").stat().st_size < 2_000_000


def test_tables_have_every_image_and_every_distribution(found: ImageAnalysis) -> None:
    sample = pl.read_parquet(Path(found.output, "sample.parquet"))
    assert sample.height == 73
    assert {"image_id", "phash", "sharpness", "problem"} <= set(sample.columns)
    scores = pl.read_parquet(Path(found.output, "scores.parquet"))
    bins = scores.filter((pl.col("measure") == "brightness") & (pl.col("kind") == "bin"))
    assert bins["images"].sum() == 69
    assert set(scores["kind"]) >= {"percentile", "bin", "default", "proposed alone", "proposed together"}


def test_the_recipe_runs_and_keeps_what_was_proposed(
    found: ImageAnalysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(Path(found.output, "recipe.yaml").read_text())
    result = load_recipe("recipe.yaml").to_pipeline().run(progress="off")
    kept = sum(output["rows"] for output in result.summary.outputs)
    assert kept == round(found.proposed_share() * 69)
    assert result.summary.rows_set_aside == 4  # the broken ones


def test_a_sample_and_any_number_of_workers_give_the_same(tmp_path: Path) -> None:
    one = analyze_images(SAMPLE, output=str(tmp_path / "a"), fraction=0.3, workers=0, progress="off")
    other = analyze_images(SAMPLE, output=str(tmp_path / "b"), fraction=0.3, workers=3, progress="off")
    assert 5 < one.images < 40
    assert one.table.equals(other.table)


def test_folders_and_parquet_are_analyzed_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for key in ("owl", "parrot", "apple"):
        (folder / f"{key}.img.jpg").write_bytes(samples()[key])
    (folder / "owl.img.txt").write_text("an owl")
    found = analyze_images(str(folder), output=str(tmp_path / "a"), progress="off")
    assert found.images == 3
    assert found.table["caption"].drop_nulls().to_list() == ["an owl"]
    assert "data:image/jpeg" in Path(tmp_path, "a", "index.html").read_text()
    parquet_of_images(tmp_path / "p" / "images.parquet", evil=True)
    found = analyze_images(str(tmp_path / "p"), output=str(tmp_path / "b"), format_name="parquet", progress="off")
    assert found.images == len(samples()) - 1 + 4
    source = Path(tmp_path, "b", "index.html").read_text()
    assert EVIL not in source
    assert "data:image/jpeg" in source


def test_about_how_many_images_there_are_is_told_without_reading_them() -> None:
    assert 60 < (count_images(image_reader([SAMPLE], None)) or 0) < 90


def test_what_is_no_image_is_left_to_the_other_analysis(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    assert not is_for_images([str(tmp_path)])
    assert is_for_images([SAMPLE])
    assert not is_for_images([str(tmp_path / "nothing")])
    with pytest.raises(PlanError, match="must be one of tar, folder, parquet"):
        image_reader([SAMPLE], "tars")


def test_the_command_tells_images_by_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", sample_images()[0], "--output", str(tmp_path / "look"), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "sharpness" in shown
    assert "with the same pixels" in shown
    assert (tmp_path / "look" / "index.html").is_file()
