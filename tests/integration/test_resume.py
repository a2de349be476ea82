"""A run that is started again goes on: what is finished is not done again, unless its input or a stage has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis import DocumentBatch, LocalExecutor, Pipeline, ProcessingStage, processing_stage
from tamis.errors import PlanError, StageError
from tamis.pipeline.preview import preview_run
from tamis.runs.histograms import read_scores
from tamis.runs.manifest import read_manifest
from tamis.runs.result import RunResult
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.flow import Route
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.io.card_files import CARD_FILES

Stage = ProcessingStage[Any, Any]


class Counts(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Leaves short texts out, notes which rows it has seen, and raises where it is told to."""

    name = "counts"

    def __init__(self, log: Path, shortest: int = 0) -> None:
        self.log, self.shortest = log, shortest

    def process(self, task: DocumentBatch) -> DocumentBatch:
        broken = Path(f"{self.log}.broken")
        numbers = task["n"].to_pylist()
        if broken.exists() and int(broken.read_text()) in numbers:
            raise RuntimeError("broken")
        with self.log.open("a") as file:
            file.writelines(f"{n}\n" for n in numbers)
        lengths = [len(t) for t in task["text"].to_pylist()]
        return task.keep([n >= self.shortest for n in lengths], "too short", score=lengths)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(8):
        write(folder / f"{number}.jsonl", range(10 * number, 10 * number + 10))
    return folder


def write(path: Path, numbers: range) -> None:
    path.write_text("".join(json.dumps({"n": n, "text": "x" * (n % 10)}) + "\n" for n in numbers))


class Runs:
    """Starts the same run again and again."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder, self.log = data, folder, folder / "seen"
        self.out, self.run_dir = folder / "out", folder / "run"

    def pipeline(self, shortest: int = 2, end: Callable[[Path], list[Stage]] | None = None, **reader: Any) -> Pipeline:
        writers = end(self.out) if end else [JsonlWriter(str(self.out))]
        files = JsonlReader(str(self.data), **{"files_per_partition": 1, **reader})
        return Pipeline("resumed", stages=[files, Counts(self.log, shortest), *writers])

    def start(self, pipeline: Pipeline | None = None, **settings: Any) -> tuple[RunResult, list[int]]:
        """The result, and the rows that were processed."""
        self.log.unlink(missing_ok=True)
        executor = settings.pop("executor", LocalExecutor(2, "threads"))
        result = (pipeline or self.pipeline()).run(
            executor, run_dir=self.run_dir, progress="off", failure_budget=0, **settings
        )
        return result, self.seen()

    def seen(self) -> list[int]:
        return sorted(map(int, self.log.read_text().split())) if self.log.exists() else []

    def files(self) -> dict[str, bytes]:
        return {
            str(p.relative_to(self.out)): p.read_bytes()
            for p in sorted(self.out.rglob("*"))
            if p.is_file() and p.name[0] != "." and p.name not in CARD_FILES
        }

    def break_at(self, number: int) -> None:
        Path(f"{self.log}.broken").write_text(str(number))

    def mend(self) -> None:
        Path(f"{self.log}.broken").unlink()


@pytest.fixture
def runs(data: Path, tmp_path: Path) -> Runs:
    return Runs(data, tmp_path)


def test_a_finished_run_has_nothing_to_do(runs: Runs) -> None:
    first, seen = runs.start()
    assert seen == list(range(80))
    before, ledger = runs.files(), sorted((runs.run_dir / "ledger").iterdir())
    second, seen = runs.start()
    assert seen == []
    assert runs.files() == before
    assert second.summary.to_dict() == first.summary.to_dict()
    assert sorted((runs.run_dir / "ledger").iterdir()) == ledger
    assert [t.data for t in second] == [t.data for t in first]


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_a_run_that_failed_goes_on_where_it_stopped(runs: Runs, substrate: str) -> None:
    executor = LocalExecutor(0 if substrate == "inline" else 2, substrate)  # type: ignore[arg-type]  # from a list
    runs.break_at(55)
    with pytest.raises(StageError, match="broken"):
        runs.start(executor=executor)
    done = runs.seen()
    assert 0 < len(done) < 80
    runs.mend()
    result, seen = runs.start(executor=executor)
    assert sorted({*done, *seen}) == list(range(80))
    assert len(seen) <= 80 - 10 * result.summary.tasks_before
    assert result.summary.tasks_before > 0
    assert result.stage("counts").rows_in == 80  # what was counted before is included
    assert result.stage("counts").dropped == {"too short": 16}
    assert result.drops().num_rows == 16
    (scores,) = read_scores(str(runs.run_dir))["counts"].values()
    assert (scores.rows_kept, scores.rows_dropped) == (64, 16)
    assert [(b.low, b.kept, b.dropped) for b in scores.bins()][:3] == [(0, 0, 8), (1, 0, 8), (2, 8, 0)]
    assert sorted(json.loads(line)["n"] for c in runs.files().values() for line in c.splitlines()) == [
        n for n in range(80) if n % 10 >= 2
    ]


def test_the_ledger_counts_whatever_directory_the_command_is_in(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a run directory, the newest run of the same pipeline that did not end is continued."""
    monkeypatch.chdir(tmp_path)
    runs.break_at(55)
    with pytest.raises(StageError):
        runs.pipeline().run(LocalExecutor(2, "threads"), progress="off", failure_budget=0)
    runs.mend()
    runs.log.unlink()
    result = runs.pipeline().run(LocalExecutor(2, "threads"), progress="off", failure_budget=0)
    assert result.summary.tasks_before > 0
    assert len(list((tmp_path / ".tamis" / "runs").iterdir())) == 1
    assert len(read_manifest(result.run_dir)["starts"]) == 2
    another = runs.pipeline().run(LocalExecutor(2, "threads"), progress="off")
    assert another.run_dir != result.run_dir  # that one had come to its end


def test_new_changed_and_removed_files_are_all_that_is_processed(runs: Runs, data: Path) -> None:
    runs.start()
    before = runs.files()
    write(data / "00.jsonl", range(100, 110))  # new, and sorted before all others
    write(data / "3.jsonl", range(30, 45))  # changed
    (data / "5.jsonl").unlink()
    runs.log.unlink()  # a file that a parameter names, and that changes, is a change of the stage
    left = preview_run(runs.pipeline().plan(LocalExecutor(2)), str(runs.run_dir))
    assert [(g.finished, g.to_do) for g in left] == [(6, 2)]
    result, seen = runs.start()
    assert seen == [*range(30, 45), *range(100, 110)]
    after = runs.files()
    kept = {name: content for name, content in before.items() if name not in ("part-000003.jsonl", "part-000005.jsonl")}
    assert kept.items() <= after.items()
    assert "part-000003.jsonl" not in after
    assert "part-000005.jsonl" not in after
    assert result.stage("counts").rows_in == 85
    expected = [*range(30), *range(30, 45), 40, *range(41, 50), *range(60, 80), *range(100, 110)]
    numbers = [json.loads(line)["n"] for c in after.values() for line in c.splitlines()]
    assert sorted(numbers) == sorted(n for n in expected if n % 10 >= 2)
    dropped = result.drops()
    assert dropped.num_rows == sum(n % 10 < 2 for n in expected)
    assert str(data / "5.jsonl") not in dropped["source"].cast("string").to_pylist()


def test_small_files_that_share_a_task_keep_it_when_others_come(runs: Runs, data: Path) -> None:
    together = runs.pipeline(files_per_partition=None, blocksize="32KiB")
    _, seen = runs.start(together)
    assert len(seen) == 80
    write(data / "0a.jsonl", range(100, 110))
    _, seen = runs.start(runs.pipeline(files_per_partition=None, blocksize="32KiB"))
    assert seen == list(range(100, 110))


def test_a_changed_parameter_repeats_what_depends_on_it(runs: Runs) -> None:
    def end(out: Path) -> list[Stage]:
        writer = JsonlWriter(str(out / "b"))
        return [Route("n < 40", {"true": [JsonlWriter(str(out / "a"))], "false": [writer]})]

    runs.start(runs.pipeline(2, end))
    before = runs.files()
    _, seen = runs.start(runs.pipeline(5, end))
    assert seen == list(range(80))
    after = runs.files()
    assert after.keys() == before.keys()
    assert after != before
    result, seen = runs.start(runs.pipeline(2, end))  # back again: the files of the first start are gone
    assert seen == list(range(80))
    assert runs.files() == before
    assert result.drops().num_rows == 16


def test_changed_code_of_a_stage_repeats_it(tmp_path: Path, data: Path) -> None:
    script = tmp_path / "script.py"

    def start(code: str) -> tuple[str, set[str]]:
        script.write_text(
            "import sys\n"
            "from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage\n"
            "from tamis.stages.io import JsonlReader, JsonlWriter\n"
            f"def helper(n):\n    return {code}\n"
            "@processing_stage(name='mark')\n"
            "def mark(task: DocumentBatch) -> DocumentBatch:\n"
            "    return task.with_column('marked', [helper(n) for n in task['n'].to_pylist()])\n"
            f"stages = [JsonlReader({str(data)!r}), mark, JsonlWriter({str(tmp_path / 'out')!r})]\n"
            f"run = Pipeline('p', stages=stages).run(LocalExecutor(0), run_dir={str(tmp_path / 'r')!r})\n"
            "print(run.summary.tasks_before)\n"
        )
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
        lines = [line for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
        return done.stderr, {str(json.loads(line)["marked"]) for line in lines}

    assert start("n % 2")[1] == {"0", "1"}
    assert "nothing to do" in start("n % 2")[0]
    assert start("n % 3")[1] == {"0", "1", "2"}


def test_output_that_is_gone_or_cut_off_is_made_again(runs: Runs) -> None:
    runs.start()
    before = runs.files()
    (runs.out / "part-000002.jsonl").unlink()
    (runs.out / "part-000004.jsonl").write_bytes(before["part-000004.jsonl"][:5])
    _, seen = runs.start()
    assert seen == [*range(20, 30), *range(40, 50)]
    assert runs.files() == before


def test_files_that_were_recorded_and_did_not_get_their_names_get_them(runs: Runs) -> None:
    """The driver died between the ledger and the renames."""
    runs.start()
    before = runs.files()
    lines = (runs.run_dir / "ledger" / "000001.jsonl").read_text().splitlines()
    file = next(
        f for line in lines for f in json.loads(line).get("files", ()) if f["path"].endswith("part-000003.jsonl")
    )
    os.rename(file["path"], runs.out / file["temporary"])
    result, seen = runs.start()
    assert (seen, result.summary.tasks_before) == ([], 8)
    assert runs.files() == before


def test_what_a_crash_cut_off_at_the_end_of_the_ledger_is_done_again(runs: Runs) -> None:
    runs.start()
    before = runs.files()
    segment = runs.run_dir / "ledger" / "000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    first_commit = next(n for n, line in enumerate(lines) if line.startswith(b'{"commit"'))
    segment.write_bytes(b"".join(lines[: first_commit + 1]) + lines[first_commit + 1][:30])
    result, seen = runs.start()
    assert len(seen) == 80 - 10 * result.summary.tasks_before
    assert not [note for note in result.summary.notes if "damaged" in note]
    assert runs.files() == before


def test_a_damaged_ledger_is_named_and_its_tasks_are_done_again(runs: Runs) -> None:
    runs.start()
    before = runs.files()
    segment = runs.run_dir / "ledger" / "000001.jsonl"
    content = bytearray(segment.read_bytes())
    at = content.index(b'"rows_in":') + 10
    content[at] = ord("7") if content[at] != ord("7") else ord("6")
    segment.write_bytes(content)
    result, seen = runs.start()
    assert seen
    assert any("damaged" in note and "000001.jsonl" in note for note in result.summary.notes)
    assert result.stage("counts").rows_in == 80
    assert result.drops().num_rows == 16
    assert runs.files() == before


def test_a_driver_that_was_killed_before_it_wrote_what_it_knows_writes_it_later(runs: Runs) -> None:
    whole, _ = runs.start()
    before = runs.files()
    for name in ("run.json", "report.html", "scores.json", "finished.json"):
        (runs.run_dir / name).unlink()
    for name in CARD_FILES:
        (runs.out / name).unlink()
    result, seen = runs.start()
    assert (seen, runs.files()) == ([], before)
    assert [(s.name, s.rows_in, s.rows_out, s.dropped) for s in result.stages] == [
        (s.name, s.rows_in, s.rows_out, s.dropped) for s in whole.stages
    ]
    assert (runs.run_dir / "report.html").exists()
    assert json.loads((runs.out / "RUN.json").read_text())["output"]["rows"] == result.summary.output_rows


def test_a_driver_that_was_killed_before_it_wrote_data_cards_writes_them_later(runs: Runs) -> None:
    runs.start()
    (runs.run_dir / "finished.json").unlink()
    (runs.out / "README.md").unlink()
    (runs.out / ".tamis.lock").touch()
    _, seen = runs.start()
    assert seen == []
    assert "64 rows in 8 files" in (runs.out / "README.md").read_text()
    assert not (runs.out / ".tamis.lock").exists()


def test_a_shuffle_goes_on_after_its_map_side(runs: Runs, tmp_path: Path) -> None:
    writer_is_broken = tmp_path / "writer-is-broken"

    @processing_stage(name="after")
    def after(task: DocumentBatch) -> DocumentBatch:
        if writer_is_broken.exists():
            raise RuntimeError("broken")
        return task

    def end(out: Path) -> list[Stage]:
        return [ExactDeduplication(text_field="text"), after, ParquetWriter(str(out))]

    writer_is_broken.touch()
    with pytest.raises(StageError, match="broken"):
        runs.start(runs.pipeline(2, end))
    assert runs.seen() == list(range(80))
    writer_is_broken.unlink()
    result, seen = runs.start(runs.pipeline(2, end))
    assert seen == []
    rows = [row for p in sorted(runs.out.glob("*.parquet")) for row in pq.read_table(p).to_pylist()]
    assert sorted(row["n"] for row in rows) == list(range(2, 10))
    assert result.stage("ExactDeduplication").rows_in == 64
    assert not (runs.run_dir / "scratch").exists()
    left = preview_run(runs.pipeline(2, end).plan(LocalExecutor(2)), str(runs.run_dir))
    assert [(one.to_do, one.again, one.after) for one in left] == [(0, 0, False)] * len(left)
    assert left[0].finished == 8


def test_after_a_power_failure_data_between_stages_is_not_trusted(runs: Runs, tmp_path: Path) -> None:
    """The ledger is forced to disk; files between stages are not."""

    def end(out: Path) -> list[Stage]:
        return [ExactDeduplication(text_field="text"), JsonlWriter(str(out))]

    runs.start(runs.pipeline(2, end))
    expected = runs.files()
    segment = runs.run_dir / "ledger" / "000001.jsonl"  # as if the power had failed before the end
    lines = segment.read_bytes().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if line.startswith(b'{"commit"'))
    segment.write_bytes(b"".join(lines[: first + 1]))
    (runs.run_dir / "scratch" / "left").mkdir(parents=True)
    manifest = json.loads((runs.run_dir / "manifest.json").read_text())
    manifest["starts"][-1]["boot"] = "another"
    (runs.run_dir / "manifest.json").write_text(json.dumps(manifest))
    _, seen = runs.start(runs.pipeline(2, end))
    assert seen == list(range(80))
    assert runs.files() == expected


def test_a_batch_with_rows_that_failed_is_made_again_without_them(runs: Runs, tmp_path: Path) -> None:
    """What it made was in memory only, and is needed: the rows fail again, and are counted once."""
    is_broken = tmp_path / "is-broken"

    @processing_stage(name="refuses")
    def refuses(task: DocumentBatch) -> DocumentBatch:
        if 13 in task["n"].to_pylist():
            raise ValueError("13 is refused")
        return task

    @processing_stage(name="after")
    def after(task: DocumentBatch) -> DocumentBatch:
        if is_broken.exists() and 17 in task["n"].to_pylist():
            raise PlanError("broken")
        return task

    def start() -> RunResult:
        stages = [JsonlReader(str(runs.data), files_per_partition=1), refuses, after, JsonlWriter(str(runs.out))]
        executor = LocalExecutor(2, "threads", fuse=False)
        return Pipeline("two", stages=stages).run(executor, run_dir=runs.run_dir, progress="off")

    is_broken.touch()
    with pytest.raises(PlanError, match="broken"):
        start()
    is_broken.unlink()
    result = start()
    assert result.summary.tasks_before > 0
    assert (result.summary.output_rows, result.summary.rows_set_aside) == (79, 1)
    assert len(list((runs.run_dir / "quarantine").iterdir())) == 1


def test_tasks_that_a_run_starts_with_are_known_by_what_they_hold(tmp_path: Path) -> None:
    seen: list[str] = []

    @processing_stage(name="note")
    def note(task: DocumentBatch) -> DocumentBatch:
        seen.extend(task["text"].to_pylist())
        return task

    def start(texts: list[str]) -> list[list[str]]:
        seen.clear()
        tasks = [DocumentBatch({"text": [t]}) for t in texts]
        result = Pipeline("p", stages=[note]).run(LocalExecutor(0), tasks, run_dir=tmp_path / "run", progress="off")
        return [task.data["text"].to_pylist() for task in result]

    assert (start(["a", "b"]), seen) == ([["a"], ["b"]], ["a", "b"])
    assert (start(["a", "b"]), seen) == ([["a"], ["b"]], [])
    assert (start(["a", "c"]), seen) == ([["a"], ["c"]], ["c"])


def test_output_that_was_written_elsewhere_before_stays_there(runs: Runs, tmp_path: Path) -> None:
    runs.start()
    before = runs.files()
    _, seen = runs.start(runs.pipeline(end=lambda _: [JsonlWriter(str(tmp_path / "elsewhere"))]))
    assert seen == list(range(80))
    assert runs.files() == before
    assert len(list((tmp_path / "elsewhere").glob("part-*"))) == 8


def test_a_run_of_another_pipeline_is_not_continued(runs: Runs, tmp_path: Path) -> None:
    runs.start()
    other = Pipeline("other", stages=[JsonlReader(str(runs.data)), JsonlWriter(str(tmp_path / "other"))])
    with pytest.raises(PlanError, match="holds a run of another pipeline, 'resumed'"):
        runs.start(other)
    assert len(runs.files()) == 8


def test_starting_over_replaces_the_output_also_after_a_change(runs: Runs) -> None:
    runs.start()
    result, seen = runs.start(runs.pipeline(5), fresh=True)
    assert (seen, result.summary.tasks_before) == (list(range(80)), 0)
    assert len(read_manifest(str(runs.run_dir))["starts"]) == 1
    assert sum(len(c.splitlines()) for c in runs.files().values()) == 40


def test_starting_over_that_is_refused_keeps_the_earlier_run(runs: Runs) -> None:
    runs.start()
    (runs.folder / "other").mkdir()
    (runs.folder / "other" / "mine.txt").write_text("mine")
    elsewhere = runs.pipeline(end=lambda _: [JsonlWriter(str(runs.folder / "other"))])
    with pytest.raises(PlanError, match="already holds files"):
        runs.start(elsewhere, fresh=True)
    _, seen = runs.start()
    assert seen == []


def test_output_of_another_run_is_not_taken_for_ones_own(runs: Runs, tmp_path: Path) -> None:
    runs.start()
    other = runs.pipeline(end=lambda out: [JsonlWriter(str(out), mode="overwrite")])
    other.run(LocalExecutor(0), run_dir=tmp_path / "another", progress="off")
    runs.data.joinpath("9.jsonl").write_text('{"n": 99, "text": "xxxxxxxxx"}\n')
    with pytest.raises(PlanError, match="already holds files"):
        runs.start()


def test_appending_goes_on_under_the_same_names(runs: Runs) -> None:
    def end(out: Path) -> list[Stage]:
        return [JsonlWriter(str(out), mode="append")]

    runs.break_at(55)
    with pytest.raises(StageError):
        runs.start(runs.pipeline(2, end))
    runs.mend()
    first = runs.files()
    runs.start(runs.pipeline(2, end))
    assert first.items() <= runs.files().items()
    assert len(runs.files()) == 8


def test_one_schema_also_for_files_of_an_earlier_start(runs: Runs, data: Path) -> None:
    def end(out: Path) -> list[Stage]:
        return [ParquetWriter(str(out))]

    runs.start(runs.pipeline(0, end))
    (data / "9.jsonl").write_text('{"n": 90, "text": "xxxxxxxxx", "more": 1.5}\n')
    runs.start(runs.pipeline(0, end))
    assert len({str(pq.read_schema(p)) for p in runs.out.glob("*.parquet")}) == 1
    _, seen = runs.start(runs.pipeline(0, end))  # files that were written again for the schema count
    assert seen == []


def test_a_second_start_is_refused_while_the_first_runs(runs: Runs, tmp_path: Path) -> None:
    refused: list[str] = []

    @processing_stage(name="starts it again")
    def again(task: DocumentBatch) -> DocumentBatch:
        if not refused:
            with pytest.raises(PlanError) as error:
                runs.pipeline().run(LocalExecutor(0), run_dir=runs.run_dir, progress="off")
            refused.append(str(error.value))
        return task

    runs.start(runs.pipeline(end=lambda out: [again, JsonlWriter(str(out))]), executor=LocalExecutor(0))
    assert f"process {os.getpid()}" in refused[0]
    assert os.uname().nodename in refused[0]
