"""``tamis analyze`` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis.cli import main


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"text": "the word and " * n}) + "\n" for n in range(100)), encoding="utf-8")
    return path


def test_a_table_and_files(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(data), "--keep-rate", "0.8"]) == 0
    shown = capsys.readouterr().out
    for part in ("100 documents", "without a word: 1.0%", "word_count", "50 to 100,000", "80.0% was requested"):
        assert part in shown
    for name in ("index.html", "scores.parquet", "sample.parquet", "recipe.yaml"):
        assert f"tamis-analysis/{name}" in shown
        assert Path("tamis-analysis", name).exists()
    assert main(["plan", "tamis-analysis/recipe.yaml"]) == 0


def test_figures_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(data), "--all", "--json", "--no-languages", "--filters", "word_count,urls_ratio"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["is_whole"], found["filters"]["word_count"]["default"]) == (
        100,
        True,
        [50, 100000],
    )
    assert found["filters"]["numbers_ratio"]["proposed_together"] is None


def test_mistakes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "dat.jsonl"]) == 1
    assert "Did you mean 'data.jsonl'?" in capsys.readouterr().err
    assert main(["analyze", str(data), "--text-field", "txt"]) == 1
    assert "Did you mean 'text'?" in capsys.readouterr().err
    assert main(["analyze", str(data), "--filters", "word_counts"]) == 1
    assert "Did you mean 'word_count'?" in capsys.readouterr().err
    for wrong in (["--keep-rate", "90"], ["--sample", "5", "--all"], ["--fraction", "0"]):
        with pytest.raises(SystemExit) as stopped:
            main(["analyze", str(data), *wrong])
        assert stopped.value.code == 2
