"""Text in images is found and read, by the models in rapidocr's own package."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tamis.stages.image.filters import TextInImageFilter
from tamis.stages.text.filters import ScoreFilter
from tamis.tasks import ImageBatch

LINES = ("SALE TODAY ONLY", "Everything half price")


def picture(lines: tuple[str, ...]) -> bytes:
    rng = np.random.default_rng(4)
    image = Image.fromarray(rng.integers(90, 120, (6, 8, 3)).astype(np.uint8)).resize((480, 320))
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((30, 60 + 90 * number), line, "white", ImageFont.load_default(40))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


@pytest.fixture(scope="module")
def stage() -> ScoreFilter:
    made = ScoreFilter(TextInImageFilter(characters_field="characters", ocr_field="says"), score_field="share")
    made.setup()
    return made


def test_pictures_full_of_text_are_dropped(stage: ScoreFilter) -> None:
    kept = stage.process(ImageBatch({"image_bytes": [picture(()), picture(LINES)]}))
    assert kept.columns(["characters", "says", "share"]).to_pylist() == [{"characters": 0, "says": "", "share": 0}]
    (drop,) = kept.dropped
    assert drop.reason == "text_share > 0.1"
    assert 0.15 < drop.scores[0].as_py() < 0.6


def test_what_was_read_is_written(stage: ScoreFilter) -> None:
    lenient = ScoreFilter(TextInImageFilter(None, characters_field="characters", ocr_field="says"))
    read = lenient.process(ImageBatch({"image_bytes": [picture(LINES)]}))
    assert read["says"].to_pylist() == ["\n".join(LINES)]
    assert read["characters"].to_pylist() == [sum(len(line.replace(" ", "")) for line in LINES)]


def test_a_filter_that_has_loaded_its_models_can_be_sent_to_another_process(stage: ScoreFilter) -> None:
    assert pickle.loads(pickle.dumps(stage)).filter_obj == stage.filter_obj


def test_nothing_is_downloaded() -> None:
    """In a network namespace of its own, which has no way out."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a process without a network cannot be made here")
    code = "from tamis.stages.image.filters import TextInImageFilter as T; T().load_model()"
    subprocess.run([unshare, "-rn", sys.executable, "-c", code], check=True, env={**os.environ})
