"""Every example runs, in an empty directory, without a network."""

from __future__ import annotations

import functools
import http.server
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tamis import LocalExecutor
from tamis.quickstart import sample_images

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

PRINTS = {
    "batch_mode.py": "the same rows in the same order: True",
    "branches.py": "dropped: 1 rows",
    "custom_stage.py": "'sentences': 2",
    "first_pipeline.py": "word_count outside",
    "images.py": "semantic duplicate",
    "language_to_unique.py": "documents in English: 2286",
    "resources.py": "0.25 gpu",
    "shuffle.py": "the longest text of each site",
    "tinystories.py": "the same with a modifier and a filter of one's own: True",
    "tokens_for_training.py": "tokens of books: 20",
}
"""A part of what each example prints."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PRINTS[example.name] in done.stdout


def test_images_are_embedded_and_scored_by_models_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from image_runs import save_image_models

    save_image_models(tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    (example,) = [e for e in EXAMPLES if e.name == "images.py"]
    build = runpy.run_path(str(example))["image_pipeline"]
    pipeline = build(sample_images(), "curated", "models", aesthetic_threshold=0.0, nsfw_threshold=0.6)
    result = pipeline.run(LocalExecutor(workers=0), progress="off")
    stages = {stage.name: stage for stage in result.stages}
    assert stages["image_aesthetic_filter"].dropped["aesthetic_score < 0"] > 0
    assert stages["image_nsfw_filter"].dropped["nsfw_score >= 0.6"] > 0
    assert stages["SemanticDeduplicationStage"].rows_in > 0
    assert result.summary.output_rows > 0
    assert result.summary.rows_set_aside == 4  # the broken ones


def test_stories_come_over_the_web_as_well(tmp_path: Path) -> None:
    (example,) = [e for e in EXAMPLES if e.name == "tinystories.py"]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(example.parent / "data"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [sys.executable, str(example), "--source", f"http://127.0.0.1:{server.server_address[1]}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert "30 stories" in done.stdout
