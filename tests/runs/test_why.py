"""Every row of a run can be explained: where it comes from, what happened to it, and where it is now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis.backends.local import LocalExecutor
from tamis.cli import main
from tamis.errors import DataError
from tamis.quickstart import sample_images
from tamis.runs.result import RunResult
from tamis.runs.why import why
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.image.filters import ImageSizeFilter
from tamis.stages.image.io import ImageReader, ImageWriterStage
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.segments import DocumentSplitter
from tests.support.row_runs import FailsOn, OddOnes, position_of, rows_of, run_stages, write_rows


def words(least: int, **settings: str) -> ScoreFilter:
    return ScoreFilter(WordCountFilter(min_words=least), **settings)


@pytest.fixture
def plain(tmp_path: Path) -> RunResult:
    write_rows(tmp_path / "in" / "a.jsonl", rows_of(20))
    write_rows(tmp_path / "in" / "b.jsonl", rows_of(20, 20))
    stages = [JsonlReader(str(tmp_path / "in"), blocksize="600B"), words(4, score_field="words")]
    return run_stages(tmp_path, [*stages, Modify(str.upper), OddOnes(), JsonlWriter(str(tmp_path / "out"))])


def test_every_row_is_kept_or_dropped_as_the_output_has_it(plain: RunResult, tmp_path: Path) -> None:
    for number in range(40):
        name = "ab"[number // 20]
        story = plain.why(f"{name}.jsonl:{number % 20 + 1}", line=True)
        assert story.values["id"] == number
        assert story.line == number % 20 + 1
        [end] = story.ends
        if number % 10 < 3:
            assert (end.fate, end.stage, end.score, end.low) == ("dropped", "word_count", number % 10 + 1, 4)
        elif number % 2 == 0:
            assert (end.fate, end.stage, end.reason) == ("dropped", "odd ones", "dropped by odd ones")
        else:
            assert (end.fate, end.stage) == ("kept", "JsonlWriter")
            assert end.scores == {"words": number % 10 + 1}
            [path] = end.files
            assert end.line is not None
            assert json.loads(Path(path).read_text().splitlines()[end.line - 1])["id"] == number


def test_the_stages_say_how_far_the_row_came(plain: RunResult) -> None:
    steps = {step.stage: step.events for step in plain.why("a.jsonl:5", line=True).stages}
    assert steps == {
        "JsonlReader": ("passed",),
        "word_count": ("passed",),
        "upper": ("passed",),
        "odd ones": ("dropped",),
        "JsonlWriter": ("not reached",),
    }


def test_a_row_is_found_by_its_name_and_by_a_value(plain: RunResult, tmp_path: Path) -> None:
    position = position_of(tmp_path / "in" / "b.jsonl", 5)
    by_name = plain.why(f"{tmp_path}/in/b.jsonl:{position}")
    assert by_name.values["id"] == 25
    assert plain.why(where=("id", "25")) == by_name


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet"])
def test_compressed_and_parquet_input(name: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / name, rows_of(20))
    reader = ParquetReader(str(path)) if name.endswith("parquet") else JsonlReader(str(path))
    result = run_stages(tmp_path, [reader, words(4), ParquetWriter(str(tmp_path / "out"))])
    for number in (0, 7, 19):
        story = result.why(f"{name}:{number + 1}", line=True)
        assert story.values["id"] == number
        assert story.fate == ("dropped" if number % 10 < 3 else "kept")
        if story.fate == "kept":
            assert story.ends[0].files == (str(tmp_path / "out" / "part-000000.parquet"),)
        assert result.why(where=("id", str(number))).row == story.row


def test_a_row_that_went_into_a_branch(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", rows_of(20))
    branch = [words(6), JsonlWriter(str(tmp_path / "de"))]
    result = run_stages(
        tmp_path,
        [
            JsonlReader(str(path)),
            words(2),
            Dropped(words(3), [JsonlWriter(str(tmp_path / "short"))]),
            Route("lang", {"de": branch}, otherwise=[]),
            JsonlWriter(str(tmp_path / "rest")),
        ],
    )
    english = result.why("a.jsonl:10", line=True)  # 10 words
    assert english.ends[0].files == (str(tmp_path / "rest" / "part-000000-0000-0001.jsonl"),)
    events = {step.stage: step.events for step in english.stages}
    assert events["Route[de] / word_count"] == ("not reached",)
    assert events["JsonlWriter"] == ("written",)
    german = result.why("a.jsonl:5", line=True)
    assert (german.fate, german.ends[0].stage) == ("dropped", "Route[de] / word_count")
    short = result.why("a.jsonl:2", line=True)
    assert (short.fate, short.ends[0].stage) == ("dropped", "word_count #2")
    assert short.ends[0].files == (str(tmp_path / "short" / "part-000000-0001.jsonl"),)
    shorter = result.why("a.jsonl:1", line=True)
    assert (shorter.ends[0].stage, shorter.ends[0].files) == ("word_count", ())


def test_the_copies_of_a_tee_have_ends_of_their_own(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", rows_of(10))
    copy = [words(6), JsonlWriter(str(tmp_path / "copy"))]
    result = run_stages(
        tmp_path, [JsonlReader(str(path)), words(2), Tee(copy), words(4), JsonlWriter(str(tmp_path / "out"))]
    )
    ends = {line: result.why(f"a.jsonl:{line}", line=True) for line in (1, 3, 5, 8)}
    assert {line: [(end.copy, end.fate) for end in story.ends] for line, story in ends.items()} == {
        1: [("", "dropped")],
        3: [("", "dropped"), ("Tee", "dropped")],
        5: [("", "kept"), ("Tee", "dropped")],
        8: [("", "kept"), ("Tee", "kept")],
    }
    assert [story.fate for story in ends.values()] == ["dropped", "dropped", "kept", "kept"]
    assert [Path(end.files[0]).parent.name for end in ends[8].ends] == ["out", "copy"]
    assert [step.events for step in ends[5].stages[2:]] == [
        ("passed",),
        ("dropped",),
        ("not reached",),
        ("passed",),
        ("written",),
    ]


def test_a_copy_in_a_branch_is_told_of_where_the_row_went_there(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", rows_of(10))
    tee = Tee([JsonlWriter(str(tmp_path / "copy"))])
    branches = Route("lang", {"de": [tee, words(3), JsonlWriter(str(tmp_path / "de"))]}, otherwise=[])
    result = run_stages(tmp_path, [JsonlReader(str(path)), branches, JsonlWriter(str(tmp_path / "rest"))])
    ends = {line: result.why(f"a.jsonl:{line}", line=True).ends for line in (1, 2, 3)}
    assert {line: [(end.copy, end.fate) for end in of_row] for line, of_row in ends.items()} == {
        1: [("", "kept")],
        2: [("", "dropped"), ("Route[de] / Tee", "kept")],
        3: [("", "kept"), ("Route[de] / Tee", "kept")],
    }


def test_a_duplicate_names_the_row_that_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", [{"text": "the same"}, {"text": "the same"}])
    out = str(tmp_path / "out")
    result = run_stages(tmp_path, [JsonlReader(str(path)), ExactDeduplication(), JsonlWriter(out)])
    assert result.why("a.jsonl:2", line=True).ends[0].original == f"{path}:0"
    for arguments in (["why", result.run_dir, "a.jsonl:2", "--line"], ["drops", result.run_dir, "--sample", "1"]):
        assert main(arguments) == 0
        shown = "".join(capsys.readouterr().out.split())
        assert f"exactduplicate,keptinitsplace:{''.join(f'{path}:0'.split())}" in shown


def test_images_in_a_tar_have_no_lines(tmp_path: Path) -> None:
    source = sample_images()[0]
    result = run_stages(
        tmp_path,
        [ImageReader([source]), ScoreFilter(ImageSizeFilter(min_side=10_000)), ImageWriterStage(str(tmp_path / "out"))],
    )
    story = result.why(f"{Path(source).name}:{result.drops()['position'][0]}")
    assert (story.fate, story.line) == ("dropped", None)
    with pytest.raises(DataError, match="the file has no lines"):
        result.why(f"{Path(source).name}:1", line=True)


def test_rows_that_earlier_filters_dropped_do_not_go_to_the_branch_of_a_later_one(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", rows_of(10))
    short = tmp_path / "short"
    stages = [JsonlReader(str(path)), words(2), Dropped(words(3), [JsonlWriter(str(short))])]
    run_stages(tmp_path, [*stages, JsonlWriter(str(tmp_path / "out"))])
    assert [json.loads(line)["id"] for f in short.glob("*.jsonl") for line in f.read_text().splitlines()] == [1]


def test_the_pieces_of_a_row_have_ends_of_their_own(tmp_path: Path) -> None:
    rows = [{"id": 7, "text": "one two three|four|five six seven"}, {"id": 8, "text": "one|two"}]
    path = write_rows(tmp_path / "in" / "a.jsonl", rows)
    out = tmp_path / "out"
    result = run_stages(tmp_path, [JsonlReader(str(path)), DocumentSplitter("|"), words(2), JsonlWriter(str(out))])
    story = result.why("a.jsonl:0")
    assert [(end.row.rpartition(":")[2], end.fate) for end in story.ends] == [("0/1", "dropped"), ("0", "kept")]
    assert story.fate == "split"
    assert story.ends[1].files == (str(out / "part-000000.jsonl"),)
    assert [end.fate for end in result.why("a.jsonl:0/1").ends] == ["dropped"]
    assert [end.fate for end in result.why("a.jsonl:2", line=True).ends] == ["dropped", "dropped", "unknown"]


def test_a_row_that_was_set_aside(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", rows_of(20))
    result = run_stages(tmp_path, [JsonlReader(str(path)), FailsOn([11]), JsonlWriter(str(tmp_path / "out"))])
    story = result.why("a.jsonl:12", line=True)
    [end] = story.ends
    assert (end.fate, end.stage, end.reason) == ("set aside", "fails", "RuntimeError: cannot do 11")
    assert [step.events for step in story.stages] == [("passed",), ("set aside",), ("not reached",)]
    assert [f.name for f in result.failures] == [story.row]
    assert result.why("a.jsonl:13", line=True).fate == "kept"


def test_behind_a_stage_that_looks_at_all_rows(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", [*rows_of(10), {**rows_of(10)[4], "id": 99}])
    out = tmp_path / "out"
    result = run_stages(tmp_path, [JsonlReader(str(path)), ExactDeduplication(), JsonlWriter(str(out))])
    kept = result.why("a.jsonl:3", line=True)
    assert kept.fate == "kept"
    assert kept.ends[0].line is not None
    fates = {result.why(f"a.jsonl:{line}", line=True).fate for line in (5, 11)}
    assert fates == {"kept", "dropped"}


def test_rows_that_are_not_there(plain: RunResult, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)no row at byte 7\n  Rows near it: .*a\.jsonl:0, .*a\.jsonl:\d+\."):
        plain.why("a.jsonl:7")
    with pytest.raises(DataError, match=r"Did you mean 'a\.jsonl'"):
        plain.why("aa.jsonl:0")
    with pytest.raises(DataError, match="only 20 lines"):
        plain.why("a.jsonl:99", line=True)
    with pytest.raises(DataError, match="no row of the input has id=4711"):
        plain.why(where=("id", "4711"))
    with pytest.raises(DataError, match="several rows have lang=en"):
        plain.why(where=("lang", "en"))
    with pytest.raises(DataError, match="is not the name of a row"):
        plain.why("a.jsonl")
    with pytest.raises(DataError, match="not a run directory"):
        why(str(tmp_path / "in"), "a.jsonl:0")


def test_a_source_that_has_changed_is_not_shown_as_the_row(plain: RunResult, tmp_path: Path) -> None:
    (tmp_path / "in" / "a.jsonl").unlink()
    story = plain.why("a.jsonl:0")
    assert (story.fate, story.values) == ("dropped", {})
    assert "gone" in story.problem


def test_a_file_that_a_later_start_did_not_find(plain: RunResult, tmp_path: Path) -> None:
    (tmp_path / "in" / "a.jsonl").unlink()
    stages = [JsonlReader(str(tmp_path / "in"), blocksize="600B"), words(4, score_field="words")]
    later = run_stages(tmp_path, [*stages, Modify(str.upper), OddOnes(), JsonlWriter(str(tmp_path / "out"))])
    [end] = later.why("a.jsonl:0").ends
    assert end.fate == "not processed"
    assert end.reason.startswith("its file was removed from the input")
    assert later.why("b.jsonl:6", line=True).fate == "kept"


def test_rows_of_a_run_on_processes(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "in" / "a.jsonl", rows_of(40))
    stages = [JsonlReader(str(path), blocksize="500B"), words(4), OddOnes(), JsonlWriter(str(tmp_path / "out"))]
    result = run_stages(tmp_path, stages, executor=LocalExecutor(workers=2, substrate="processes"))
    fates = [result.why(f"a.jsonl:{line}", line=True).fate for line in range(1, 41)]
    assert fates == ["kept" if n % 10 >= 3 and n % 2 else "dropped" for n in range(40)]


def test_the_command(plain: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", plain.run_dir, "a.jsonl:6", "--line"]) == 0
    shown = capsys.readouterr().out
    assert "kept, written by JsonlWriter" in shown
    assert "words: 6" in shown
    assert main(["why", plain.run_dir, "--id", "id=0", "--json"]) == 0
    story = json.loads(capsys.readouterr().out)
    assert (story["fate"], story["ends"][0]["score"]) == ("dropped", 1.0)
    assert main(["why", plain.run_dir]) == 2
    assert main(["why", plain.run_dir, "a.jsonl:5"]) == 1


def test_escape_sequences_do_no_harm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J[red]bold[/red]\u202e"
    path = write_rows(tmp_path / "in" / "a.jsonl", [{"text": evil, evil: evil}])
    result = run_stages(tmp_path, [JsonlReader(str(path)), words(4), JsonlWriter(str(tmp_path / "out"))])
    for arguments in (["why", result.run_dir, "a.jsonl:0"], ["drops", result.run_dir, "--sample", "1"]):
        for more in ([], ["--json"]):
            assert main([*arguments, *more]) == 0
            shown = capsys.readouterr().out
            assert "\x1b" not in shown
            assert "\u202e" not in shown
            assert "[red]bold[/red]" in shown.replace("\n", "")
