"""``tamis models``: lists, fetches, bundles and checks models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")
safetensors = pytest.importorskip("safetensors.numpy")

import numpy as np  # noqa: E402

from tamis.cli import main  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("TAMIS_MODELS_DIR", raising=False)
    folder = tmp_path / "mine"
    folder.mkdir()
    safetensors.save_file({"weight": np.arange(10, dtype=np.float32)}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder_is_bundled_checked_and_listed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = tmp_path / "bundles"
    assert main(["models", "bundle", str(folder), str(bundles)]) == 0
    assert f"TAMIS_MODELS_DIR={bundles}" in capsys.readouterr().out
    monkeypatch.setenv("TAMIS_MODELS_DIR", str(bundles))
    assert main(["models", "check", "mine"]) == 0
    assert capsys.readouterr().out.strip() == str(bundles / "mine")
    assert main(["models", "--json"]) == 0
    here = {row["name"]: row["is_here"] for row in json.loads(capsys.readouterr().out)}
    assert here.pop("mine") is True
    assert here["nvidia/domain-classifier"] is False
    assert main(["models"]) == 0
    assert "nvidia/domain-classifier" in capsys.readouterr().out


def test_a_damaged_file_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "check", str(folder)]) == 0
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    assert main(["models", "check", str(folder)]) == 1
    assert "model.safetensors is damaged or cut off" in capsys.readouterr().err


def test_a_hub_that_cannot_be_reached_says_what_to_do(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "fetch", "org/name", "--cache-dir", str(tmp_path)]) == 1
    assert "tamis models bundle org/name FOLDER" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["fetch"], ["bundle", "org/name"], ["check", "org/name", "folder"]])
def test_wrong_arguments_are_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", *given]) == 2
    assert f"expected tamis models {given[0]} NAME" in capsys.readouterr().err
