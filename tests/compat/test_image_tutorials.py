"""Scripts in the style of NeMo Curator's image tutorials run as they are: ``python -m tamis.compat script.py``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from image_runs import samples, save_image_models
from PIL import Image

from tamis.quickstart import sample_images

pytest.importorskip("torch")
pytest.importorskip("transformers")

SCRIPTS = Path(__file__).parent / "tutorials"
DEFECTS = json.loads(Path(sample_images()[0]).with_name("defects.json").read_text())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample images in ``shards`` and small models in ``models``."""
    folder = tmp_path_factory.mktemp("tutorials")
    (folder / "shards").mkdir()
    for path in sample_images():
        shutil.copy(path, folder / "shards")
    save_image_models(folder / "models")
    return folder


def run(place: Path, script: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "tamis.compat", str(SCRIPTS / script), *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def members(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            found += [name for name in tar.getnames() if not name.endswith((".json", ".txt"))]
    return found


def test_images_are_embedded_filtered_and_written(place: Path) -> None:
    shown = run(
        place,
        "image_curation.py",
        *("--input-dir", "shards", "--output-dir", "curated", "--model-dir", "models"),
        *("--aesthetic-threshold", "0", "--nsfw-threshold", "0.6"),
    )
    assert "tasks in" in shown
    kept = members(place / "curated")
    assert 0 < len(kept) < 69
    tars = sorted((place / "curated").glob("*.tar"))
    index = pq.read_table(tars[0].with_suffix(".parquet"))
    assert {"image_id", "tar_file", "member_name", "original_path"} <= {*index.column_names}
    assert max(pq.read_metadata(path.with_suffix(".parquet")).num_rows for path in tars) <= 10


def test_duplicates_are_found_by_a_workflow_and_left_out(place: Path) -> None:
    run(
        place,
        "image_dedup.py",
        *("--input-dir", "shards", "--embeddings-dir", "vectors", "--removal-dir", "found", "--output-dir", "unique"),
        *("--model-dir", "models", "--eps", "0.0001"),
    )
    vectors = pq.read_table(sorted((place / "vectors").glob("*.parquet")), columns=["image_id", "embedding"])
    assert vectors.num_rows == 69
    removed = {*pq.read_table(sorted((place / "found" / "duplicates").glob("*.parquet")))["id"].to_pylist()}
    for copy, of in DEFECTS["exact_duplicate"].items():
        assert len(removed & {copy, of}) == 1
    assert len(members(place / "unique")) == len(samples()) - len(removed)


def test_scripts_see_images_as_objects_with_pixels(place: Path) -> None:
    shown = run(place, "image_helper.py", "shards", "by_hand")
    assert "(4, 6, 3) 1" in shown
    facts = json.loads((place / "by_hand" / "owl.json").read_text())
    assert facts["seen"]
    assert facts["aesthetic_score"] >= 60
    with Image.open(place / "by_hand" / "owl.png") as image:
        red, green, blue = image.split()
        assert red.tobytes() == green.tobytes() == blue.tobytes()
    assert not (place / "by_hand" / "dogs-at-night.json").exists()
