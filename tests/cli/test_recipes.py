"""The recipes that come with tamis: listed, printed, and run on the sample data set."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tamis.cli import main
from tamis.pipeline.recipe import load_recipe, shipped_recipes
from tamis.quickstart import sample_files
from tamis.stages.text import sets

SAMPLE = os.path.dirname(sample_files()[0])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("name", shipped_recipes())
def test_recipe_runs_on_the_sample(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # The sample has broken lines, as real data has.
    settings = ["--set", "JsonlReader.on_error=quarantine", "--workers", "0", "--progress", "off", "--json"]
    status, out, _ = run(capsys, "run", name, "--input", SAMPLE, "--output", "kept", *settings)
    summary = json.loads(out)
    written = sum(path.read_bytes().count(b"\n") for path in Path("kept").rglob("*.jsonl"))
    assert (status, summary["state"]) == (3, "done with failures")
    assert 0 < written == summary["output_rows"] < 3717


def test_every_set_is_in_a_recipe() -> None:
    written = "".join(path.read_text() for path in shipped_recipes().values())
    assert [name for name in sets.__all__ if name not in written] == []


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "recipes", "--json")
    assert status == 0
    listed = {entry["name"]: entry["description"] for entry in json.loads(out)}
    assert listed == {name: load_recipe(name).description for name in shipped_recipes()}
    status, out, _ = run(capsys, "recipes")
    assert (status, [name for name in listed if name not in out]) == (0, [])


def test_recipe_is_printed_to_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = run(capsys, "recipes", "gopher")
    Path("my.yaml").write_text(out.replace("GopherQuality", "GopherQuality: {language: fr}"))
    quality = load_recipe("my.yaml").to_pipeline().stages[2]
    assert quality.parameters()["language"] == "fr"


def test_file_of_that_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c4").write_text("name: mine\nstages:\n  - JsonlReader: {file_paths: data}\n")
    assert load_recipe("c4").name == "mine"


@pytest.mark.parametrize("command", ["recipes", "plan"])
def test_unknown_recipe_says_what_may_be_meant(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, error = run(capsys, command, "goper")
    assert (status > 0, out) == (True, "")
    assert "Did you mean 'gopher'?" in error


def test_paths_of_a_recipe_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"text": "one two"}\n{"text": "one"}\n')
    Path("my.yaml").write_text(
        "stages:\n  - JsonlReader: {file_paths: nowhere}\n"
        "  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 2}}}\n  - JsonlWriter: {path: nowhere}\n"
    )
    assert run(capsys, "run", "my.yaml", "--input", "in.jsonl", "--output", "out", "--quiet", "--workers", "0")[0] == 0
    assert [path.read_text() for path in Path("out").rglob("*.jsonl")] == ['{"text":"one two"}\n']
    assert not Path("nowhere").exists()


def test_a_shipped_recipe_reads_what_it_is_given(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["The cat and the dog have to be with us."] * 3}), tmp_path / "in" / "a.parquet")
    for given in (tmp_path / "in", tmp_path / "in" / "a.parquet"):
        pipeline = load_recipe("gopher").with_paths(str(given), str(tmp_path / "out")).to_pipeline()
        assert type(pipeline.stages[0]).__name__ == "ParquetReader"
    own = load_recipe("stages:\n  - JsonlReader: {file_paths: x, fields: [text]}\n  - JsonlWriter: {path: y}\n")
    assert type(own.with_paths("a.parquet").to_pipeline().stages[0]).__name__ == "JsonlReader"
