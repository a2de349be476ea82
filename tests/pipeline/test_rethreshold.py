"""The output with other thresholds is the one of a full run with them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.quickstart import sample_images
from tamis.runs.compare import compare_runs
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Dropped, Route
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from tamis.stages.text.filters import Filter, NonAlphaNumericFilter, ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify
from tests.support.row_runs import FailsOn, OddOnes, write_rows


def corpus(folder: Path, ending: str = ".jsonl", rows: int = 300) -> Path:
    chance = random.Random(5)
    for number in range(3):
        made: list[dict[str, Any]] = []
        for row in range(rows // 3):
            words = chance.choices(["one", "two", "!!", "three,", "- -"], k=chance.randint(1, 30))
            # numbers that are whole in some rows, which must stay floats, and keys that some rows lack
            value = chance.choice([1, 2.5, 3])
            made.append(
                {
                    "id": number * 1000 + row,
                    "text": " ".join(words),
                    "value": float(value) if ending == ".parquet" else value,
                }
            )
        write_rows(folder / f"{number}{ending}", made)
    return folder


def pipeline(
    data: Path, out: Path, words: tuple[int, int], signs: float, ending: str = ".jsonl", columns: bool = True
) -> Pipeline:
    reader = ParquetReader(str(data)) if ending == ".parquet" else JsonlReader(str(data), blocksize="3KiB")
    writer = (
        ParquetWriter(str(out))
        if ending == ".parquet"
        else JsonlWriter(str(out), compression="gz" if ending.endswith("gz") else None)
    )
    return Pipeline(
        "rows",
        stages=[
            reader,
            ScoreFilter(
                WordCountFilter(min_words=words[0], max_words=words[1]), score_field="words" if columns else None
            ),
            Modify(str.upper),
            OddOnes(),
            ScoreFilter(
                NonAlphaNumericFilter(max_non_alpha_numeric_to_text_ratio=signs),
                score_field="signs" if columns else None,
            ),
            writer,
        ],
    )


def run(made: Pipeline, run_dir: Path, **settings: Any) -> str:
    return made.run(LocalExecutor(workers=0), run_dir=run_dir, progress="off", **settings).run_dir


def files_in(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.glob("part-*"))}


SETTINGS = [
    ((5, 20), 0.3),
    ((1, 20), 0.3),
    ((8, 20), 0.3),
    ((5, 30), 0.2),
    ((9, 12), 0.9),
    ((1, 30), 1.0),
    ((30, 30), 0.0),
]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_the_same_bytes_as_a_full_run_with_generated_thresholds(tmp_path: Path, ending: str) -> None:
    data = corpus(tmp_path / "in", ending)
    first = pipeline(data, tmp_path / "out", (5, 20), 0.3, ending)
    run_dir = run(first, tmp_path / "run")
    before = files_in(tmp_path / "out")
    chance = random.Random(ending)
    drawn = [
        ((low, low + chance.randint(0, 20)), chance.random() / 2) for low in (chance.randint(1, 20) for _ in range(6))
    ]
    for number, (words, signs) in enumerate([*SETTINGS[1:], *drawn]):
        whole, made = tmp_path / f"whole-{number}", tmp_path / f"made-{number}"
        run(pipeline(data, whole, words, signs, ending), tmp_path / f"run-{number}")
        result = first.rethreshold(run_dir, pipeline(data, made, words, signs, ending))
        assert (files_in(made) if made.exists() else {}) == files_in(whole), (words, signs)
        assert result.files == len(files_in(whole))
        assert result.rescored < 300
    assert files_in(tmp_path / "out") == before


def test_scores_that_the_run_kept_beside_the_output(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in")
    first = pipeline(data, tmp_path / "out", (5, 20), 0.3, columns=False)
    run_dir = run(first, tmp_path / "run", keep_scores=True)
    assert "words" not in json.loads(next((tmp_path / "out").glob("*.jsonl")).read_text().splitlines()[0])
    for number, (words, signs) in enumerate(SETTINGS[1:]):
        whole, made = tmp_path / f"whole-{number}", tmp_path / f"made-{number}"
        run(pipeline(data, whole, words, signs, columns=False), tmp_path / f"run-{number}")
        first.rethreshold(run_dir, pipeline(data, made, words, signs, columns=False))
        assert (files_in(made) if made.exists() else {}) == files_in(whole), (words, signs)


def test_kept_scores_have_every_row_and_stay_when_the_run_is_started_again(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in")
    first = pipeline(data, tmp_path / "out", (5, 20), 0.3, columns=False)
    run(first, tmp_path / "run", keep_scores=True)
    scores = pq.read_table(tmp_path / "run" / "scores")
    words = scores.filter(pc.equal(scores["stage"].cast(pa.string()), "word_count"))
    assert words.num_rows == 300
    assert pc.sum(words["kept"]).as_py() == sum(1 for score in words["score"].to_pylist() if 5 <= score <= 20)
    write_rows(data / "9.jsonl", [{"id": 1, "text": "one two three four five six"}])
    more = first.run(LocalExecutor(workers=0), run_dir=tmp_path / "run", progress="off", keep_scores=True)
    assert pq.read_table(tmp_path / "run" / "scores").num_rows > scores.num_rows
    assert more.summary.output_files == len(files_in(tmp_path / "out"))


def test_parquet_has_the_same_rows_and_schema(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in", ".parquet")
    first = pipeline(data, tmp_path / "out", (5, 20), 0.3, ".parquet")
    run_dir = run(first, tmp_path / "run")
    for number, (words, signs) in enumerate(SETTINGS[1:6]):
        whole, made = tmp_path / f"whole-{number}", tmp_path / f"made-{number}"
        run(pipeline(data, whole, words, signs, ".parquet"), tmp_path / f"run-{number}")
        first.rethreshold(run_dir, pipeline(data, made, words, signs, ".parquet"))
        assert list(files_in(made)) == list(files_in(whole))
        for name in files_in(whole):
            assert pq.read_table(made / name).equals(pq.read_table(whole / name))


def test_what_changed_is_counted(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in")
    first = pipeline(data, tmp_path / "out", (5, 20), 0.3)
    run_dir = run(first, tmp_path / "run")
    result = first.rethreshold(run_dir, pipeline(data, tmp_path / "new", (3, 15), 0.3))
    rows = [
        {json.loads(line)["id"] for file in (tmp_path / name).glob("*.jsonl") for line in file.read_text().splitlines()}
        for name in ("out", "new")
    ]
    assert result.kept_by_both == len(rows[0] & rows[1])
    assert (result.newly_kept, result.newly_dropped) == (len(rows[1] - rows[0]), len(rows[0] - rows[1]))
    assert result.examples_kept
    assert result.examples_dropped


def test_a_column_of_scores_that_came_with_the_data(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in")

    def made(least: int, name: str) -> Pipeline:
        stage = Filter(WordCountFilter(min_words=least), "value")
        return Pipeline("rows", stages=[JsonlReader(str(data)), stage, JsonlWriter(str(tmp_path / name))])

    run_dir = run(made(2, "out"), tmp_path / "run")
    run(made(3, "whole"), tmp_path / "other")
    made(2, "out").rethreshold(run_dir, made(3, "new"))
    assert files_in(tmp_path / "new") == files_in(tmp_path / "whole")


def refused(tmp_path: Path, *stages: Any, after: Any, match: str) -> None:
    data = corpus(tmp_path / "in", rows=30)

    def made(name: str, *inner: Any) -> Pipeline:
        return Pipeline("rows", stages=[JsonlReader(str(data)), *inner, JsonlWriter(str(tmp_path / name))])

    run_dir = run(made("out", *stages), tmp_path / "run")
    with pytest.raises(PlanError, match=match):
        made("out", *stages).rethreshold(run_dir, made("new", *after))


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    few, more = (ScoreFilter(WordCountFilter(min_words=n)) for n in (3, 5))
    german = ScoreFilter(WordCountFilter(min_words=3, lang="zh"))
    dropped = [Dropped(few, [JsonlWriter(str(tmp_path / "dropped"))])]
    cases: list[tuple[list[Any], list[Any], str]] = [
        ([few], [more], "is stricter now, but the scores .* are not in the output"),
        ([few], [german], "differs in more than the thresholds"),
        ([few], [few, more], "has other stages"),
        ([few], [few], "nothing to change"),
        (dropped, dropped, "has written to this directory"),
        ([few, Modify(str.upper)], [few, Modify(str.lower)], "has other stages|differs in more"),
    ]
    for number, (before, after, match) in enumerate(cases):
        refused(tmp_path / str(number), *before, after=after, match=match)


def branches(data: Path, out: Path, words: int) -> Pipeline:
    short = [JsonlWriter(str(out / "short"), shard_bytes="2KiB")]
    return Pipeline(
        "rows",
        stages=[
            JsonlReader(str(data), blocksize="3KiB"),
            ScoreFilter(WordCountFilter(min_words=words)),
            ExactDeduplication(),
            Route("value >= 2", {"false": short, "true": [ParquetWriter(str(out / "long"), partition_by="value")]}),
        ],
    )


def all_files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("part-*"))}


def test_branches_shards_partitions_and_duplicates_are_done_by_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = corpus(tmp_path / "in")
    first = branches(data, tmp_path / "out", 8)
    run_dir = run(first, tmp_path / "run")
    before = all_files_in(tmp_path / "out")
    executor = LocalExecutor(workers=0)
    result = first.rethreshold(
        run_dir, branches(data, tmp_path / "out", 5), output=str(tmp_path / "new"), executor=executor
    )
    run(branches(data, tmp_path / "whole", 5), tmp_path / "run-whole")
    assert len(before) > 5
    assert all_files_in(tmp_path / "new") == all_files_in(tmp_path / "whole")
    assert all_files_in(tmp_path / "out") == before
    whole = compare_runs(run_dir, str(tmp_path / "run-whole"))
    assert result.newly_kept == whole.only_b.rows > 0
    assert (result.kept_by_both, result.newly_dropped) == (whole.kept_by_both, whole.only_a.rows)
    assert result.examples_kept[0]["text"]
    assert "all rows together" in result.reason
    with pytest.raises(PlanError, match="the run has written to this directory"):
        first.rethreshold(run_dir, branches(data, tmp_path / "out", 6), executor=executor)
    with pytest.raises(PlanError, match="nothing to change"):
        first.rethreshold(run_dir, first, output=str(tmp_path / "same"), executor=executor)


def test_a_run_that_has_set_rows_aside(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in")

    def made(out: Path, words: int) -> Pipeline:
        kept = ScoreFilter(WordCountFilter(min_words=words), score_field="words")
        return Pipeline("rows", stages=[JsonlReader(str(data)), kept, FailsOn([7, 1020]), JsonlWriter(str(out))])

    first = made(tmp_path / "out", 5)
    run_dir = run(first, tmp_path / "run", failure_budget=None)
    for words in (3, 9):
        result = first.rethreshold(run_dir, made(tmp_path / f"new{words}", words))
        run(made(tmp_path / f"whole{words}", words), tmp_path / f"run{words}", failure_budget=None)
        assert files_in(tmp_path / f"new{words}") == files_in(tmp_path / f"whole{words}")
        assert result.run_dir == ""


def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = """
name: images
stages:
  - ImageReader: {file_paths: [SOURCE], on_error: quarantine}
  - ScoreFilter: {filter_obj: {ImageSizeFilter: {min_side: 100}}}
  - ImageWriterStage: {output_dir: out}
run: {workers: 0, run_dir: run}
"""
    Path("recipe.yaml").write_text(recipe.replace("SOURCE", str(sample_images()[0])))
    assert main(["run", "recipe.yaml", "-q"]) in (0, 3)
    assert main(["rethreshold", "run", "--set", "ScoreFilter.filter_obj.min_side=300", "--output", "new"]) == 0
    assert len(list(Path("new").glob("*.tar"))) == 1
    [made] = Path(".tamis/runs").iterdir()
    found = compare_runs("run", str(made))
    assert found.kept_by_both is not None
    assert found.kept_by_both + found.only_a.rows == sum(
        pq.read_metadata(p).num_rows for p in Path("out").glob("*.parquet")
    )


def test_a_directory_with_files_and_a_changed_input_are_refused(tmp_path: Path) -> None:
    data = corpus(tmp_path / "in")
    first = pipeline(data, tmp_path / "out", (5, 20), 0.3)
    run_dir = run(first, tmp_path / "run")
    with pytest.raises(PlanError, match="is not empty"):
        first.rethreshold(run_dir, pipeline(data, tmp_path / "out", (3, 20), 0.3))
    write_rows(data / "9.jsonl", [{"id": 1, "text": "more"}])
    with pytest.raises(PlanError, match="input has changed"):
        first.rethreshold(run_dir, pipeline(data, tmp_path / "new", (3, 20), 0.3))


RECIPE = """
name: words
stages:
  - JsonlReader: {file_paths: in}
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 5}}, score_field: words}
  - JsonlWriter: {path: out}
run: {workers: 0, run_dir: run}
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpus(tmp_path / "in")
    Path("recipe.yaml").write_text(RECIPE)
    assert main(["run", "recipe.yaml", "-q"]) == 0
    setting = "ScoreFilter.filter_obj.min_words=9"
    assert main(["rethreshold", "run", "--set", setting, "--output", "new"]) == 0
    assert "newly dropped:" in capsys.readouterr().out
    assert main(["run", "recipe.yaml", "-q", "--set", setting, "--output", "whole", "--run-dir", "other"]) == 0
    assert files_in(tmp_path / "new") == files_in(tmp_path / "whole")
    assert (
        main(["rethreshold", "run", "--set", "ScoreFilter.filter_obj.min_words=2", "--output", "less", "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["newly_dropped"], told["newly_kept"]) == (0, told["rescored"])
    assert main(["rethreshold", "run", "--set", "ScoreFilter.min_wrods=2", "--output", "x"]) == 1
