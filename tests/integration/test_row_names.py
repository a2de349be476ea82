"""A row has one name from the file to the ledger, whatever happens on the way and wherever it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import LocalExecutor, Pipeline
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.flow import Dropped, Route
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import CsvReader, JsonlReader, JsonlWriter, ParquetReader, TextReader
from tamis.stages.mixing import GlobalShuffle
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify
from tamis.tasks import DocumentBatch

EXECUTORS = {
    "inline": LocalExecutor(workers=0),
    "threads": LocalExecutor(workers=2, substrate="threads"),
    "processes": LocalExecutor(workers=2, substrate="processes", fuse=False),
    "batch mode": LocalExecutor(workers=2, execution_mode="batch"),
}


@processing_stage(name="pandas_filter")
def pandas_filter(task: DocumentBatch) -> DocumentBatch:
    frame = task.to_pandas()
    frame["text"] = frame["text"].str.lower()
    return DocumentBatch(frame[frame["id"] % 5 != 0].reset_index(drop=True))


def write_lines(folder: Path) -> None:
    """Files with blank lines, of very different sizes, so that blocks hold several files and files several blocks."""
    folder.mkdir()
    number = 0
    for file, rows in enumerate((3, 400, 1, 40)):
        lines = []
        for _ in range(rows):
            lines.append(
                json.dumps({"id": number, "text": "Word " * (number % 11), "lang": "en" if number % 2 else "de"})
            )
            lines += [" "] * (number % 7 == 0)
            number += 1
        (folder / f"part-{file}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(tmp_path: Path, stages: list[ProcessingStage[Any, Any]], executor: LocalExecutor) -> RunResult:
    return Pipeline("names", stages=stages).run(executor, run_dir=str(tmp_path / "run"), progress="off")


def row_at(source: str, position: int) -> dict[str, Any]:
    """The row that a name leads to."""
    with Path(source).open("rb") as file:
        file.seek(position)
        row: dict[str, Any] = json.loads(file.readline())
        return row


@pytest.mark.parametrize("blocksize", [300, "1MiB"])
@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_every_dropped_row_is_found_in_its_file(tmp_path: Path, executor: LocalExecutor, blocksize: int | str) -> None:
    write_lines(tmp_path / "in")
    stages = [
        JsonlReader(str(tmp_path / "in"), blocksize=blocksize),
        pandas_filter,
        Modify(str.upper),
        ScoreFilter(WordCountFilter(min_words=4), score_field="words"),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = run(tmp_path, stages, executor)
    dropped = result.drops().to_pylist()
    rows = [row_at(drop["source"], drop["position"]) for drop in dropped]
    by_stage = {
        s: sorted(r["id"] for r, d in zip(rows, dropped, strict=True) if d["stage"] == s)
        for s in ("pandas_filter", "word_count")
    }
    assert by_stage["pandas_filter"] == [n for n in range(444) if n % 5 == 0]
    assert by_stage["word_count"] == [n for n in range(444) if n % 5 and n % 11 < 4]
    assert {d["reason"] for d in dropped if d["stage"] == "pandas_filter"} == {"dropped by pandas_filter"}


def test_rows_that_vanish_are_found_although_others_come_twice(tmp_path: Path) -> None:
    class FirstHalfTwice(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
            yield task.select([0, 1])
            yield task.select([0, 1])

    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(4)))
    stages = [JsonlReader(str(tmp_path / "a.jsonl")), FirstHalfTwice(), JsonlWriter(str(tmp_path / "out"))]
    run(tmp_path, stages, LocalExecutor(workers=0))
    dropped = pq.read_table(tmp_path / "run" / "drops").to_pylist()
    assert [(d["stage"], d["position"]) for d in dropped] == [("FirstHalfTwice", 18), ("FirstHalfTwice", 27)]


def test_a_side_branch_catches_what_vanishes_in_a_users_stage(tmp_path: Path) -> None:
    write_lines(tmp_path / "in")
    caught = JsonlWriter(str(tmp_path / "caught"))
    stages = [JsonlReader(str(tmp_path / "in")), Dropped(pandas_filter, [caught]), JsonlWriter(str(tmp_path / "out"))]
    run(tmp_path, stages, LocalExecutor(workers=0))
    lines = [
        json.loads(line) for file in (tmp_path / "caught").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert sorted(line["id"] for line in lines) == [n for n in range(444) if n % 5 == 0]
    assert {line["dropped_by"] for line in lines} == {"pandas_filter"}


def test_names_survive_branches_and_shuffles(tmp_path: Path) -> None:
    write_lines(tmp_path / "in")
    route = Route("lang", {"en": [Modify(str.upper)], "de": []})
    stages = [JsonlReader(str(tmp_path / "in")), route, GlobalShuffle(seed=1)]
    result = run(tmp_path, stages, LocalExecutor(workers=2))
    seen = 0
    for batch in result:
        assert isinstance(batch, DocumentBatch)
        assert batch.names is not None
        codes = batch.names.codes if batch.names.codes is not None else [0] * batch.num_items
        for code, position, row in zip(codes, batch.names.positions, batch.data.to_pylist(), strict=True):
            assert row_at(batch.names.sources[code], int(position))["id"] == row["id"]
            seen += 1
    assert seen == 444


# -- each format -----------------------------------------------------------------------------------------------------


def names_of(reader: Any) -> dict[str, Any]:
    stages = reader.decompose()
    found = {}
    for group in stages[0].splits(""):
        for batch in stages[1].process(group):
            for name, row in zip(batch.names.to_texts(), batch.data.to_pylist(), strict=True):
                found[name.rpartition("/")[2]] = row
    return found


def test_parquet_rows_are_numbered_in_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": list(range(10))}), tmp_path / "a.parquet", row_group_size=3)
    found = names_of(ParquetReader(str(tmp_path), blocksize=1))
    assert found == {f"a.parquet:{n}": {"n": n} for n in range(10)}


@pytest.mark.parametrize("newlines", [True, False])
def test_csv_rows_are_named_by_number_or_by_byte(tmp_path: Path, newlines: bool) -> None:
    (tmp_path / "a.csv").write_text("n,t\n1,x\n\n22,y\n3,z\n")
    found = names_of(CsvReader(str(tmp_path), newlines_in_values=newlines))
    positions = [0, 1, 2] if newlines else [4, 9, 14]
    assert found == {f"a.csv:{p}": {"n": n, "t": t} for p, n, t in zip(positions, ["1", "22", "3"], "xyz", strict=True)}


@pytest.mark.parametrize(("unit", "positions"), [("file", [0]), ("line", [0, 4, 9, 10, 12]), ("paragraph", [0, 12])])
def test_text_rows_are_named_by_the_byte_they_start_at(tmp_path: Path, unit: str, positions: list[int]) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\r\n\n \nthree\n")
    assert list(names_of(TextReader(str(tmp_path), unit=unit))) == [f"a.txt:{p}" for p in positions]
