"""The benchmark of reading and embedding runs, with few images and a small model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")


def test_it_measures_the_pipeline_and_its_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    monkeypatch.setenv("IMAGES_GPU_LOG", "")
    import images_gpu

    arguments = argparse.Namespace(
        distinct=8, workers=1, gpus=0.25, batch=4, ways="scaled,exact", quick=True, tiny=True, out=None
    )
    found = images_gpu.report(arguments, 8)
    sys.modules.pop("images_gpu")
    assert found["cosine_exact"] > 0.9999
    assert found["cosine_scaled"] > 0.99
    assert found["pipeline_exact"]["model_workers"] >= 1
    assert "plain loop of transformers" in capsys.readouterr().out
