"""The code of NeMo Curator's own guides runs on tamis: as it is written, and with its imports renamed."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import compat
from tamis.quickstart import sample_images

SEEDS = Path(__file__).parent / "seeds"

Namespace = dict[str, Any]
Run = Callable[..., Namespace]


@pytest.fixture(params=["as written", "renamed"])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a script in an empty directory and gives back its names."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *edits: tuple[str, str]) -> Namespace:
        source = (SEEDS / name).read_text(encoding="utf-8")
        for old, new in edits:
            assert old in source
            source = source.replace(old, new)
        if request.param == "renamed":
            source = source.replace("nemo_curator", "tamis")
        else:
            compat.activate()
        script = tmp_path / name
        script.write_text(source, encoding="utf-8")
        return runpy.run_path(str(script), run_name="__main__")

    yield run
    compat.deactivate()


def texts(results: Any) -> list[list[str]]:
    return [task.to_pyarrow()["text"].to_pylist() for task in results]


def test_basic_usage(run: Run) -> None:
    assert texts(run("basic_usage.py")["results"]) == [["some words"]]


def test_stages_declare_what_they_need(run: Run) -> None:
    made = run("resource_allocation.py")
    assert made["TokenizerStage"]().resources.cpus == 1.0
    assert not made["tokenizer_stage"].resources.requires_gpu
    assert made["custom_filter_stage"].name == "custom_filter"
    assert made["whole_gpu"].resources.gpus == 1
    assert made["quarter_gpu"].resources.gpus == 0.25
    assert made["model_stage"].resources.gpu_memory_gb == 10


def test_batch_size_is_how_many_tasks_come_at_once(run: Run) -> None:
    made = run("batch_size.py")
    assert made["word_count_stage"].batch_size == 128
    rows = [row for task in made["results"] for row in task.to_pyarrow().to_pylist()]
    assert [(row["words"], row["at_once"]) for row in rows] == [(2, 3), (4, 3), (6, 3)]


def test_a_pipeline_of_ones_own_stages(run: Run, tmp_path: Path) -> None:
    (written,) = run("modular_pipeline.py")["results"]
    assert written.data == ["output.jsonl"]
    assert (tmp_path / "output.jsonl").read_text() == '{"text":"some words"}\n'


def test_text_curation(run: Run, tmp_path: Path) -> None:
    run("text_curation.py")
    (written,) = tmp_path.glob("curated/*.jsonl")
    (line,) = written.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["text"].startswith('Once upon a time a "small" cat sat')


def test_fuzzy_deduplication(run: Run, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    words = [f"word{n}" for n in range(60)]
    near = [*words[:50], "other", *words[51:]]
    texts = [" ".join(some) for some in (words, near, words[::-1])]
    pq.write_table(pa.table({"text": texts}), tmp_path / "documents" / "a.parquet")
    paths = [(f'"/data/{name}"', repr(str(tmp_path / name))) for name in ("documents", "cache", "output")]
    results = run("fuzzy_deduplication.py", *paths)["results"]
    assert results.get_metadata("num_duplicates") == 1
    (written,) = tmp_path.glob("output/deduplicated/*.parquet")
    assert pq.read_table(written).to_pydict() == {"text": [texts[0], texts[2]]}


@pytest.mark.ray
@pytest.mark.parametrize("run", ["as written", pytest.param("renamed", marks=pytest.mark.exhaustive)], indirect=True)
def test_a_ray_cluster_is_started_and_stopped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    client = run("ray_client.py", ("ray_client.start()", "ray_client.start()\naddress = ray_client.address"))
    assert client["address"].endswith(f":{client['ray_client'].ray_port}")
    assert client["ray_client"].address is None


def test_image_curation(run: Run) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from image_runs import save_image_models

    save_image_models(Path("models"))
    Path("shards").mkdir()
    for path in sample_images():
        shutil.copy(path, "shards")
    results = run("image_curation.py")["results"]
    kept = [image_id for task in results for image_id in task.to_pyarrow()["image_id"].to_pylist()]
    assert 0 < len(kept) < 69
    assert len({"hot-dog", "hot-dog-2"} & {*kept}) == 1


def test_every_script_is_run() -> None:
    source = "".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.glob("test_seeds*.py"))
    assert [s.name for s in SEEDS.glob("*.py") if f'"{s.name}"' not in source] == []
