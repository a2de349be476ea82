"""Readers and writers in whole runs, on the real executor."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.io import CsvWriter, JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from tamis.stages.io.card_files import CARD_FILES
from tamis.stages.io.output_directory import MARKER

WAYS = [("inline", 0), ("threads", 4), ("processes", 2)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Small files, and one that is cut into ranges."""
    root = tmp_path / "in"
    root.mkdir()
    for name, rows in (("a", 3), ("b", 400), ("c", 5)):
        lines = [json.dumps({"text": f"{name} {i} é", "n": i, "lang": "en" if i % 3 else "de"}) for i in range(rows)]
        (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return root


def run(tmp_path: Path, stages: list[Any], way: tuple[str, int] = ("threads", 2)) -> RunResult:
    executor = LocalExecutor(workers=way[1], substrate=way[0])  # type: ignore[arg-type]  # from a table
    name = f"run-{len(list(tmp_path.iterdir()))}"
    return Pipeline("test", stages=stages).run(executor, run_dir=str(tmp_path / name), progress="off")


def contents(root: Path) -> dict[str, bytes]:
    files = [p for p in root.rglob("*") if p.is_file() and p.name not in (MARKER, *CARD_FILES)]
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


@pytest.mark.parametrize("settings", [{}, {"shard_bytes": "9kB"}, {"partition_by": "lang", "compression": "gz"}])
def test_output_is_the_same_on_every_substrate(tmp_path: Path, corpus: Path, settings: dict[str, Any]) -> None:
    outputs = []
    for way in WAYS:
        target = tmp_path / f"out-{way[0]}"
        run(tmp_path, [JsonlReader(str(corpus), blocksize="5kB"), JsonlWriter(str(target), **settings)], way)
        outputs.append(contents(target))
    assert len(outputs[0]) > 1
    assert outputs[0] == outputs[1] == outputs[2]


def test_rows_go_through_every_format_unchanged(tmp_path: Path, corpus: Path) -> None:
    run(tmp_path, [JsonlReader(str(corpus), blocksize="5kB"), ParquetWriter(str(tmp_path / "p"), shard_bytes="8kB")])
    run(tmp_path, [ParquetReader(str(tmp_path / "p")), JsonlWriter(str(tmp_path / "j"), shard_bytes="1GB")])
    [output] = contents(tmp_path / "j").values()
    expected = [json.loads(line) for p in sorted(corpus.iterdir()) for line in p.read_text().splitlines()]
    assert [json.loads(line) for line in output.splitlines()] == expected


def test_the_run_counts_files_and_rows(tmp_path: Path, corpus: Path) -> None:
    result = run(tmp_path, [JsonlReader(str(corpus)), CsvWriter(str(tmp_path / "out"))])
    assert result.summary.output_rows == 408
    assert result.summary.output_files == len(contents(tmp_path / "out"))


def test_broken_lines_are_in_the_quarantine(tmp_path: Path, corpus: Path) -> None:
    with (corpus / "c.jsonl").open("a") as file:
        file.write("oops\n")
    stages = [JsonlReader(str(corpus), on_error="quarantine"), JsonlWriter(str(tmp_path / "out"))]
    result = run(tmp_path, stages)
    assert result.summary.output_rows == 408
    [bad] = result.summary.quarantine
    assert (os.path.basename(bad["source"]), bad["line"]) == ("c.jsonl", 6)


def test_a_broken_line_ends_the_run_with_its_place(tmp_path: Path, corpus: Path) -> None:
    with (corpus / "c.jsonl").open("a") as file:
        file.write("oops\n")
    with pytest.raises(DataError, match=r"c\.jsonl, line 6, byte \d+: Expecting value"):
        run(tmp_path, [JsonlReader(str(corpus)), JsonlWriter(str(tmp_path / "out"))])


def test_a_field_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(ColumnError, match="txt"):
        run(tmp_path, [JsonlReader(str(corpus)), JsonlWriter(str(tmp_path / "out"), fields=["txt"])])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fields", [["txt"], ["text", "lnag"]])
def test_a_misspelt_field_is_refused_before_anything_is_read(tmp_path: Path, corpus: Path, fields: list[str]) -> None:
    reader = JsonlReader(str(corpus), fields=fields)
    with pytest.raises(
        ColumnError, match=r"a.jsonl have no '(txt|lnag)', only text, n, lang. Did you mean '(text|lang)'"
    ):
        Pipeline("p", stages=[reader, JsonlWriter(str(tmp_path / "out"))]).plan()


def test_a_file_where_the_output_directory_should_be_is_refused(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(PlanError, match=r"output needs a directory, and .*out is a file"):
        run(tmp_path, [JsonlReader(str(corpus)), JsonlWriter(str(tmp_path / "out"))])


@pytest.mark.parametrize("files_per_partition", [1, 2])
@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"text": [1]}, r"b.parquet: another schema: column 'text' is int64, but string in .*a.parquet"),
        ({"x": [1], "y": [2]}, r"b.parquet: another schema: its columns are x, y, those of .*a.parquet are text, n"),
    ],
)
def test_a_parquet_file_with_another_schema_is_refused_or_set_aside(
    tmp_path: Path, files_per_partition: int, other: dict[str, list[Any]], problem: str
) -> None:
    (tmp_path / "p").mkdir()
    for name, columns in (("a", {"text": ["x"], "n": [1]}), ("b", other), ("c", {"text": ["z"], "n": [1.5]})):
        pq.write_table(pa.table(columns), tmp_path / "p" / f"{name}.parquet")

    def read(on_error: str) -> RunResult:
        reader = ParquetReader(str(tmp_path / "p"), files_per_partition=files_per_partition, on_error=on_error)
        return run(tmp_path, [reader])

    with pytest.raises(DataError, match=problem):
        read("raise")
    result = read("quarantine")
    assert [t for task in result for t in task.data["text"].to_pylist()] == ["x", "z"]
    assert "another schema" in result.summary.quarantine[0]["problem"]
