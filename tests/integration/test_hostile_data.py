"""Hostile data does no harm: to the report, the pages, the terminal or the file system."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pages import Page
from sample_runs import ANSI, EVIL

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import RecipeError, TamisError
from tamis.pipeline import Pipeline
from tamis.pipeline.recipe import load_recipe
from tamis.runs.pages.drop_query import DropFilter, DropLedgerReader
from tamis.runs.pages.run_view import load_view
from tamis.runs.report import load_summary, summary_table
from tamis.runs.result import RunResult
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter

TRAVERSALS = [
    "../../escaped",
    "/escaped",
    "..",
    ".",
    "a/../../escaped",
    "..\\..\\escaped",
    "%2e%2e%2fescaped",
    "a\x00b",
]
NAMES = [f"{EVIL}".replace("/", "_"), f"{ANSI}red", "new\nline", "; rm -rf $HOME `id`", "-rf", "a'b\"c", "日本語"]


def run(folder: Path, stages: list[Any], name: str = "hostile") -> RunResult:
    return Pipeline(name, stages=stages).run(LocalExecutor(workers=0), run_dir=folder / "run", progress="off")


def every_file(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("value", [*TRAVERSALS, *NAMES])
def test_partition_values_name_no_directory_outside_the_output(tmp_path: Path, value: str) -> None:
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    (inside / "in.jsonl").write_text(json.dumps({"text": "x", "lang": value}) + "\n")
    before = every_file(tmp_path)
    stages = [JsonlReader(str(inside / "in.jsonl")), JsonlWriter(str(inside / "out"), partition_by="lang")]
    with contextlib.suppress(TamisError):  # to refuse such a value is as good
        run(inside, stages)
    new = every_file(tmp_path) - before
    assert all(name.startswith(("a/b/c/out/", "a/b/c/run/")) for name in new), new
    assert not Path("/escaped").exists()


@pytest.mark.parametrize("name", NAMES)
def test_file_names_are_shown_as_text_and_their_rows_are_found(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / f"{name}.jsonl").write_text('{"text": "too short"}\n')
    result = run(tmp_path, [JsonlReader(str(tmp_path / "data")), ScoreFilter(WordCountFilter(min_words=5))])
    source = (tmp_path / "run" / "report.html").read_text()
    page = Page(source)
    assert (page.tags.count("script"), page.tags.count("img")) == (1, 0)
    assert not {"\x1b", "\x07", "\u202e"} & set(source)
    assert "too short" in page.text  # the example was read from that file
    view = load_view(result.run_dir)
    (dropped,) = DropLedgerReader(result.run_dir).after(DropFilter())
    assert view.read_texts([dropped])[0].values == {"text": "too short"}
    main(["report", result.run_dir])
    assert not {"\x1b", "\x07", "\u202e"} & set(capsys.readouterr().out)


@pytest.mark.parametrize("name", [*TRAVERSALS, *NAMES, "x" * 5000])
def test_the_name_of_a_pipeline_or_stage_is_no_path(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    Path("in.jsonl").write_text('{"text": "one"}\n{"text": \n')
    stages = [
        JsonlReader("in.jsonl", on_error="quarantine"),
        ScoreFilter(WordCountFilter(min_words=5)).with_(name=name),
    ]
    result = Pipeline(name, stages=stages).run(LocalExecutor(workers=0), progress="off")
    assert all(file.startswith("a/b/") for file in every_file(tmp_path))
    assert Path(result.run_dir).parent == folder / ".tamis" / "runs"
    assert "\x1b" not in summary_table(load_summary(result.run_dir))


@pytest.mark.parametrize(
    "text",
    [
        "stages: !!python/object/apply:os.system ['touch escaped']",
        "stages: [{JsonlReader: !!python/name:os.system {}}]",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nstages: *c",
        "stages: &loop [*loop]",
        "stages: [{os.system: {command: 'touch escaped'}}]",
        "<<: {stages: []}",
        f"stages: {'[' * 5000}",
        "stages: [{JsonlReader: {file_paths: 1" + "0" * 5000 + "}}]",
    ],
)
def test_yaml_tricks_are_refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(text)
    with pytest.raises((RecipeError, TamisError)):
        load_recipe("recipe.yaml").to_pipeline()
    assert os.listdir() == ["recipe.yaml"]


def test_a_run_directory_of_somebody_else_makes_no_page_read_files(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text('{"text": "the secret"}\n')
    os.utime(tmp_path / "secret.jsonl", (1000, 1000))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "x"}\n')
    result = run(tmp_path, [JsonlReader(str(tmp_path / "data")), ScoreFilter(WordCountFilter(min_words=5))])
    os.chmod(result.run_dir, 0o777)
    (dropped,) = DropLedgerReader(result.run_dir).after(DropFilter())
    (row,) = load_view(result.run_dir).read_texts([dropped])
    assert row.values == {}
    assert "not yours alone" in row.problem
