"""The journal: what is recorded becomes durable in groups, then gets its names; what goes wrong is not lost."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.payload import enclose
from tamis.errors import DataError, PublishError
from tamis.runs.directory import RunDirectory
from tamis.runs.finished_work import FinishedBatch
from tamis.runs.journal import RunJournal
from tamis.runs.ledger import Ledger
from tamis.stages.emit import Publish
from tamis.tasks import FileGroup

NEVER_S = 3600.0


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create("test", str(tmp_path / "run"))


def finished(folder: Path, number: int) -> Publish:
    """A file that a worker has written."""
    temporary = folder / f".{number}.tmp"
    temporary.write_text(str(number))
    return Publish(str(temporary), str(folder / str(number)), 1, 1, needs_sync=True)


def record(journal: RunJournal, folder: Path, numbers: range) -> None:
    for number in numbers:
        item = finished(folder, number)
        journal.record(
            FinishedBatch(f"key-{number}", "stage", [f"task-{number}"]), [item], pa.table({"reason": ["no"]})
        )
        journal.output(enclose(FileGroup([item.final], order=(number,)), -1))


def test_many_records_are_forced_to_disk_together(
    directory: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noting(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("there is no /proc to see which file is meant")
    monkeypatch.setattr(os, "fsync", noting)
    journal = RunJournal(directory, commit_s=NEVER_S)
    record(journal, tmp_path, range(50))
    assert not (tmp_path / "0").exists()
    journal.flush()
    drops = [path for path in synced if "/drops/" in path]
    own = [path for path in synced[:-1] if path not in drops]
    assert sorted(own) == sorted(str(tmp_path / f".{n}.tmp") for n in range(50))  # each file's own data
    assert len(drops) == 1
    assert [os.path.basename(path) for path in synced].count("000001.jsonl") == 1  # and the ledger once, after them
    assert synced[-1].endswith("ledger/000001.jsonl")
    assert all((tmp_path / str(n)).read_text() == str(n) for n in range(50))
    (drops,) = Path(directory.drops).iterdir()
    assert pq.read_table(drops).num_rows == 50
    assert [task.data for task in directory.output_tasks()] == [[str(tmp_path / str(n))] for n in range(50)]
    journal.close()


def test_two_files_of_one_name_are_refused(directory: RunDirectory, tmp_path: Path) -> None:
    journal = RunJournal(directory, commit_s=NEVER_S)
    items = [finished(tmp_path, 0), finished(tmp_path, 0)]
    with pytest.raises(DataError, match="has given two files this name"):
        journal.record(FinishedBatch("key", "stage", ["task"]), items)
    journal.close()


def test_records_are_committed_without_being_asked(directory: RunDirectory, tmp_path: Path) -> None:
    journal = RunJournal(directory, commit_s=0.01)
    record(journal, tmp_path, range(1))
    deadline = time.monotonic() + 60
    while not (tmp_path / "0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    journal.close()


def test_the_ledger_names_every_file_and_where_it_was(directory: RunDirectory, tmp_path: Path) -> None:
    journal = RunJournal(directory)
    record(journal, tmp_path, range(3))
    journal.close()
    files = [file for entry in Ledger.read(directory.ledger) for file in entry.get("files", ())]
    there = {str(p) for p in [*tmp_path.iterdir(), *Path(directory.drops).iterdir()] if p.is_file()}
    assert {file["path"] for file in files} == there
    assert [file["temporary"] for file in files[:3]] == [".0.tmp", ".1.tmp", ".2.tmp"]
    assert journal.file_count == 3  # the drop ledger is no output


def test_a_name_that_is_taken_by_a_directory_is_reported_and_costs_nothing_else(
    directory: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = RunJournal(directory, commit_s=NEVER_S)
    (tmp_path / "1").mkdir()
    record(journal, tmp_path, range(2))
    with pytest.raises(
        PublishError, match=r"/1: a finished file cannot get its final name: there is a directory of this name"
    ):
        journal.flush()
    assert (tmp_path / "0").exists()
    journal.close()
    assert caplog.records == []  # it was raised; to say it twice does not help


def test_what_goes_wrong_when_a_failed_run_is_closed_is_logged_not_raised(
    directory: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = RunJournal(directory, commit_s=NEVER_S)
    (tmp_path / "0").mkdir()
    record(journal, tmp_path, range(1))
    journal.close()
    assert "finished work could not be published" in caplog.text


def test_a_disk_that_cannot_keep_up_holds_the_driver_back(
    directory: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records in memory are bounded: beyond that, recording waits for the commit that is under way."""
    monkeypatch.setattr("tamis.runs.journal.MAX_PENDING", 4)
    journal = RunJournal(directory, commit_s=NEVER_S)
    most = 0
    for start in range(0, 200, 10):
        record(journal, tmp_path, range(start, start + 10))
        most = max(most, len(journal._pending.records))
    journal.close()
    assert 0 < most <= 4
    lines = Path(directory.path, "outputs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["order"] for line in lines) == [[n] for n in range(200)]
