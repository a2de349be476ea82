"""Runs with filters of images have histograms, recipes, and thresholds that can be changed afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tamis import LocalExecutor, Pipeline
from tamis.pipeline.recipe import load_recipe
from tamis.stages.image.filters import BrightnessFilter, ImageSizeFilter, SharpnessFilter
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter
from tests.support.row_runs import write_rows

COUNT = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Paths of pictures, from dark to bright and from even to noisy."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        pixels = rng.normal(10 * number, number % 5, (60 + number, 80, 3)).clip(0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    rows = [{"image_path": str(folder / f"{number}.png"), "number": number} for number in range(COUNT)]
    write_rows(folder / "list.jsonl", rows)
    return folder / "list.jsonl"


def pipeline(data: Path, out: Path, brightest: float, sharpness: float) -> Pipeline:
    stages = [
        JsonlReader(str(data)),
        ScoreFilter(ImageSizeFilter(min_side=62)),
        ScoreFilter(BrightnessFilter(max_brightness=brightest), score_field="brightness"),
        ScoreFilter(SharpnessFilter(min_sharpness=sharpness), score_field="sharpness"),
        JsonlWriter(str(out)),
    ]
    return Pipeline("pictures", stages=stages)


def run(made: Pipeline, run_dir: Path) -> Any:
    return made.run(LocalExecutor(workers=0), run_dir=run_dir, progress="off")


def rows_in(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.jsonl"))]


@pytest.mark.parametrize(("brightest", "sharpness"), [(230.0, 5.0), (120.0, 30.0), (250.0, 60.0)])
def test_new_thresholds_give_the_output_of_a_whole_run(
    data: Path, tmp_path: Path, brightest: float, sharpness: float
) -> None:
    first = pipeline(data, tmp_path / "out", 180.0, 20.0)
    run(first, tmp_path / "run")
    run(pipeline(data, tmp_path / "whole", brightest, sharpness), tmp_path / "whole-run")
    changed = first.rethreshold(str(tmp_path / "run"), pipeline(data, tmp_path / "made", brightest, sharpness))
    assert rows_in(tmp_path / "made") == rows_in(tmp_path / "whole") != rows_in(tmp_path / "out")
    assert changed.newly_kept + changed.newly_dropped > 0


def test_a_run_has_histograms_of_the_scores(data: Path, tmp_path: Path) -> None:
    result = run(pipeline(data, tmp_path / "out", 180.0, 20.0), tmp_path / "run")
    counted = {name: scores for stage in result.summary.stages for name, scores in stage.scores.items()}
    assert set(counted) == {"shorter_side", "brightness", "sharpness"}
    numbers = {name: (histogram.rows_kept, histogram.rows_dropped) for name, histogram in counted.items()}
    assert numbers["shorter_side"] == (COUNT - 2, 2)
    assert sum(numbers["brightness"]) == COUNT - 2
    assert sum(numbers["sharpness"]) == numbers["brightness"][0]


def test_a_recipe_names_filters_of_images(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "pictures.yaml"
    recipe.write_text(
        f"""stages:
  - JsonlReader: {{file_paths: {data}}}
  - ScoreFilter: {{filter_obj: {{ImageSizeFilter: {{min_side: 62}}}}}}
  - ScoreFilter: {{filter_obj: {{BrightnessFilter: {{max_brightness: 180}}}}, score_field: brightness}}
  - ScoreFilter: {{filter_obj: {{SharpnessFilter: {{min_sharpness: 20}}}}, score_field: sharpness}}
  - JsonlWriter: {{path: {tmp_path / "recipe"}}}
""",
        encoding="utf-8",
    )
    run(load_recipe(str(recipe)).to_pipeline(), tmp_path / "recipe-run")
    run(pipeline(data, tmp_path / "out", 180.0, 20.0), tmp_path / "run")
    assert rows_in(tmp_path / "recipe") == rows_in(tmp_path / "out")
