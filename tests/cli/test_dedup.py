"""``tamis dedup`` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.analysis.deduplication import THRESHOLDS, estimate_deduplication
from tamis.cli import main
from tamis.cli.arguments import parser
from tamis.cli.completion import command_words
from tamis.stages.io import JsonlReader, ParquetReader
from tests.support.duplicate_runs import planted, texts_of
from tests.support.row_runs import write_rows, written


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, rows in planted().items():
        write_rows(tmp_path / "in" / f"{name}.jsonl", rows)
    return tmp_path / "in"


def dedup(*arguments: str) -> int:
    return main(["dedup", *arguments, "--workers", "0"])


def rows_in(folder: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))


def test_similar_documents_are_removed_and_the_last_lines_say_so(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dedup("fuzzy", "in", "out", "--run-dir", "run") == 0
    shown = capsys.readouterr()
    removed, output, report = shown.out.splitlines()[-3:]
    assert removed.startswith("removed  25 of 65 rows (38.5%) in ")
    assert removed.endswith("; 15 groups, the largest of 4 rows")
    assert output.startswith("output   out: 40 rows in 1 file, ")
    assert report == f"report   {Path('run').resolve()}/report.html"
    assert "done | 65 rows read" in shown.err
    assert len(written(Path("out"))) == 40
    assert "Duplicates: FuzzyDeduplication" in Path("run", "report.html").read_text()


def test_the_options_reach_the_stage(data: Path) -> None:
    settings = ["--bands", "10", "--rows-per-band", "6", "--word-ngrams", "3", "--normalize", "lower,whitespace"]
    more = ["--verify", "0.7", "--pairs-path", "pairs", "--memory-budget", "1GB", "--keep", "longest", "--64-bit"]
    assert dedup("fuzzy", "in", "out", "--run-dir", "run", "--quiet", *settings, *more, "--partitions", "3") == 0
    vertices = {v["name"]: v["parameters"] for v in json.loads(Path("run/plan.json").read_text())["vertices"]}
    hashing, compare = vertices["FuzzyDeduplication (hash)"], vertices["FuzzyDeduplication (compare)"]
    assert (hashing["num_bands"], hashing["partitions"], hashing["keep"]) == (
        "10",
        "3",
        "Keep(rule='longest', column='')",
    )
    for part in ("num_hashes=60", "ngram=3", "unit='word'", "bits=64", "normalize=('lower', 'whitespace')"):
        assert part in hashing["minhash"]
    assert (compare["threshold"], Path(compare["pairs_path"].strip("'")).name) == ("0.7", "pairs")
    assert vertices["FuzzyDeduplication (buckets)"]["memory_bytes"] == str(10**9)
    assert list(Path("pairs").glob("*.parquet"))


def test_parquet_becomes_parquet_and_json_lines_what_is_asked_for(data: Path, tmp_path: Path) -> None:
    rows = [row for some in planted().values() for row in some]
    write_rows(tmp_path / "rows.parquet", [*rows, *rows])
    assert dedup("exact", "rows.parquet", "out", "--quiet") == 0
    assert rows_in("out") == len(rows)
    assert dedup("exact", "in/web", "in/books", "other", "--format", "parquet", "--quiet") == 0
    assert rows_in("other") == len(rows)
    assert dedup("exact", "rows.parquet", "lines", "--format", "jsonl", "--quiet") == 0
    assert len(written(Path("lines"))) == len(rows)


def test_figures_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dedup("fuzzy", "in", "out", "--json", "--progress", "off") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["removed"], found["groups"], found["sizes"]) == (65, 25, 15, {"2": 10, "4": 5})
    assert found["output"] == "out"
    assert Path(found["run_dir"], "report.html").exists()


def test_an_index_of_earlier_files(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dedup("fuzzy", "in/web/a.jsonl", "first", "--index", "index") == 0
    assert dedup("fuzzy", "in/web/b.jsonl", "second", "--index", "index", "--only-index", "--no-update-index") == 0
    assert "removed  10 of 30 rows" in capsys.readouterr().out


def test_mistakes_are_told_with_what_to_do(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"text": ["a"]}), "other.parquet")
    for wrong, message in (
        (["fuzzy", "inn", "out"], "Did you mean 'in'?"),
        (["fuzzy", "in", "out", "--text-field", "txt"], "Did you mean 'text'?"),
        (["fuzzy", "in", "out", "--keep", "longst"], "Did you mean 'longest'?"),
        (["fuzzy", "in", "out", "--pairs-path", "pairs"], "set verify, too"),
        (["fuzzy", "in", "out", "--memory-budget", "1MB"], "must be at least 64"),
        (["fuzzy", "in", "out", "--keep", "highest:quality"], "quality"),
    ):
        assert dedup(*wrong) == 1
        assert message in capsys.readouterr().err
    for misused in (["fuzzy", "in"], ["fuzzy", "in", "out", "--bands", "0"], ["near", "in", "out"], []):
        with pytest.raises(SystemExit) as stopped:
            dedup(*misused)
        assert stopped.value.code == 2
    assert not Path("out").exists()


def test_an_earlier_output_is_replaced_only_when_asked(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dedup("exact", "in", "out", "--quiet") == 0
    assert dedup("fuzzy", "in", "out", "--quiet") == 1
    assert "already" in capsys.readouterr().err
    assert dedup("fuzzy", "in", "out", "--quiet", "--overwrite") == 0
    assert len(written(Path("out"))) == 40


def test_lines_that_occur_again_are_removed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tamis.stages.deduplication.lines")
    write_rows(Path("lines.jsonl"), [{"text": f"Home\nabout {n}"} for n in range(4)])
    assert dedup("lines", "lines.jsonl", "out", "--max-occurrences", "2", "--unit", "line") == 0
    assert "removed lines 2" in capsys.readouterr().out
    assert [row["text"].count("Home") for row in written(Path("out"))] == [1, 1, 0, 0]


def test_the_order_of_the_inputs_does_not_matter(data: Path) -> None:
    files = sorted(str(path) for path in data.rglob("*.jsonl"))
    assert dedup("lines", *files, "forward", "--quiet") == 0
    assert dedup("lines", *files[::-1], "backward", "--quiet") == 0
    assert written(Path("forward")) == written(Path("backward"))
    assert len(files) > 1


def test_passages_that_occur_again_are_cut_out(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tamis.stages.deduplication.substrings")
    passage = texts_of(1)[0]
    write_rows(Path("texts.jsonl"), [{"text": f"{n} {passage} {n}"} for n in range(3)])
    assert dedup("substrings", "texts.jsonl", "out", "--min-bytes", "100") == 0
    assert "spans removed 2" in capsys.readouterr().out
    assert [passage in row["text"] for row in written(Path("out"))] == [True, False, False]


def test_rows_with_similar_embeddings(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": n, "embeddings": [float(n % 3 == k) for k in range(3)]} for n in range(9)]
    write_rows(Path("vectors.parquet"), rows)
    given = ["--eps", "0.1", "--keep", "first", "--clusters", "2", "--pairs-path", "pairs", "--no-borders"]
    assert dedup("semantic", "vectors.parquet", "out", *given, "--run-dir", "run") == 0
    assert capsys.readouterr().out.splitlines()[-3].endswith("; 3 groups, the largest of 3 rows")
    assert rows_in("out") == 3
    assert dedup("semantic", "in", "unique", "--model", "hashed", "--eps", "0.05", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["rows"], shown["removed"], shown["groups"]) == (65, 25, 15)
    assert all(row.keys() == {"id", "text"} for row in written(Path("unique")))
    assert dedup("semantic", "in", "other", "--embedding-field", "vector") == 1
    shown = capsys.readouterr().err
    assert "there is no column 'vector', only id, text" in shown
    assert "--embedding-field. Or embed the texts first: --model hashed" in shown


def test_completion_knows_the_ways_to_deduplicate() -> None:
    (words,) = [command for command in command_words(parser()) if command.name == "dedup"]
    assert words.words == ["exact", "fuzzy", "semantic", "lines", "substrings", "estimate"]
    assert {"--bands", "--min-bytes", "--cores", "--run-dir"} <= words.options.keys()
    assert words.values["--index"] is None
    assert words.paths


# --- estimates ------------------------------------------------------------------------------------------------------


ESTIMATE = ["dedup", "estimate", "--workers", "1"]


@pytest.fixture(autouse=True)
def in_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are measured once, not for seconds."""
    monkeypatch.setattr("tamis.analysis.deduplication._MEASURED_S", 0.0)


def test_an_estimate_of_everything_is_exact(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ESTIMATE, "in", "--all", "--json", "--partitions", "1", "--cores", "1,2", "--gpus", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["is_whole"]) == (65, True)
    assert [one["threshold"] for one in found["thresholds"]] == list(THRESHOLDS)
    removed = [one["removed"] for one in found["thresholds"]]
    assert removed[0] == 25
    assert removed == sorted(removed, reverse=True)
    assert all(one["whole_share"] == pytest.approx(one["share"]) for one in found["thresholds"])
    assert [(one["cores"], one["gpus"]) for one in found["times"]] == [(1, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert found["cost"]["seconds"] > 0
    assert not Path("out").exists()
    assert not Path(".tamis").exists()


def test_the_estimate_is_shown_as_tables(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ESTIMATE, "in", "--partitions", "1", "--bands", "10", "--cores", "64"]) == 0
    shown = capsys.readouterr().out
    for part in ("65 documents", "(all of it)", "0.50       25", "on 64 cores", "at most 2.0 GiB", "scratch disk"):
        assert part in shown
    assert "more cores than that have nothing to do" in shown


def test_a_sample_tells_of_the_duplicates_of_the_whole(tmp_path: Path) -> None:
    texts = texts_of(1500, words=60)
    rows: list[Any] = [{"text": text} for n in range(2) for text in texts]
    rows = [rows[place * 1009 % len(rows)] for place in range(len(rows))]  # every document twice, anywhere
    for number in range(3):
        write_rows(tmp_path / f"{number}.jsonl", rows[number::3])
    found = estimate_deduplication(JsonlReader(str(tmp_path)), sample="600KB", workers=0, settings={"partitions": 1})
    assert not found.is_whole
    at = found.thresholds[-1]
    assert at.share < 0.35
    assert at.whole_share == pytest.approx(0.5, abs=0.1)


def test_two_parts_are_looked_at_if_there_are_two(tmp_path: Path) -> None:
    texts = texts_of(200)
    for number in range(2):
        write_rows(tmp_path / f"{number}.parquet", [{"text": text} for text in texts])
    reader = ParquetReader(str(tmp_path), files_per_partition=1)
    found = estimate_deduplication(reader, sample="1KB", workers=0, settings={"partitions": 1})
    assert (found.thresholds[0].removed, found.is_whole) == (200, True)
