"""Models in folders and on the hub: found, checked, bundled, and refused with a reason."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tamis.errors import ModelError
from tamis.models.model import LOCK, Model

safetensors = pytest.importorskip("safetensors.numpy")
numpy = pytest.importorskip("numpy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    safetensors.save_file({"weight": numpy.arange(1000, dtype=numpy.float32)}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text("{}")
    (folder / "modeling_own.py").write_text("raise SystemExit")
    return folder


def test_a_folder_is_a_model(folder: Path) -> None:
    model = Model(str(folder))
    assert model.fetch() == model.folder() == str(folder)
    model.check()


def test_weights_that_are_cut_off_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged or cut off"):
        Model(str(folder)).check()
    path.write_bytes(b"\x01")
    with pytest.raises(ModelError, match="damaged or cut off"):
        Model(str(folder)).check()


def test_pickled_weights_are_refused_unless_allowed(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="a pickled file"):
        Model(str(folder)).check()
    Model(str(folder), allow_pickle=True).check()


def test_a_bundle_is_found_by_name_and_held_to_its_hashes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = Path(Model(str(folder)).bundle(str(tmp_path / "bundles")))
    assert sorted(json.loads((bundled / LOCK).read_text())["files"]) == ["config.json", "model.safetensors"]
    bundled.rename(bundled.with_name("org--name"))
    monkeypatch.setenv("TAMIS_MODELS_DIR", str(tmp_path / "bundles"))
    model = Model("org/name")
    model.check()
    changed = Path(model.folder()) / "config.json"
    changed.write_text('{"a": 1}')
    with pytest.raises(ModelError, match=r"config\.json is not the file that was bundled"):
        model.check()
    changed.unlink()
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        model.check()


def test_a_hub_that_cannot_be_reached_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="tamis models bundle org/name FOLDER"):
        Model("org/name", cache_dir=str(tmp_path)).fetch()
    with pytest.raises(ModelError, match="there is no model folder"):
        Model(str(tmp_path / "none")).fetch()


def test_a_part_of_the_weights_that_is_missing_is_named(folder: Path) -> None:
    index = {"weight_map": {"weight": "model.safetensors", "more": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not Model(str(folder)).has_weights()
    with pytest.raises(ModelError, match=r"model-2\.safetensors is missing"):
        Model(str(folder)).check()


def test_an_index_of_pickled_files_beside_safetensors_does_not_count(folder: Path) -> None:
    """Many models have their weights in both forms on the hub, and the pickled ones are not fetched."""
    index = {"weight_map": {"weight": "pytorch_model-00001-of-00002.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    model = Model(str(folder))
    assert model.has_weights()
    model.check()


def test_a_folder_without_weights_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no weights in"):
        Model(str(folder)).check()


def in_cache(cache: Path, files: dict[str, bytes]) -> None:
    """Put files where the hub's cache has those of ``org/name``."""
    home = cache / "models--org--name"
    snapshot = home / "snapshots" / ("0" * 40)
    for directory in (home / "blobs", home / "refs", snapshot):
        directory.mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    for name, data in files.items():
        blob = home / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / name).symlink_to(blob)


def test_weights_in_the_cache_of_the_hub_are_held_to_their_hash(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    weights = (folder / "model.safetensors").read_bytes()
    in_cache(tmp_path / "cache", {"model.safetensors": weights, "config.json": b"{}"})
    model = Model("org/name", cache_dir=str(tmp_path / "cache"))
    model.check()
    stored = Path(model.folder(), "model.safetensors").resolve()
    stored.write_bytes(weights[:-1] + b"\x01")
    with pytest.raises(ModelError, match="is not the file that was fetched"):
        model.check()


def test_a_snapshot_without_weights_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage that tokenises fetches the small files only."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    in_cache(tmp_path, {"config.json": b"{}", "tokenizer.json": b"{}"})
    model = Model("org/name", cache_dir=str(tmp_path))
    assert Path(model.fetch(weights=False), "tokenizer.json").exists()
    with pytest.raises(ModelError, match="org/name"):
        model.fetch()
