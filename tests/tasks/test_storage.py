"""Tasks of any kind through files: nothing is lost, arrays are not copied, and their size is measured."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import DataError
from tamis.tasks import DocumentBatch, Task
from tamis.tasks.storage import content_id, read_task, write_task


@dataclass
class Clips(Task[list[Any]]):
    """A task type of a user's own."""

    rate: int = 16_000
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def num_items(self) -> int:
        return len(self.data)


@dataclass
class Pages(DocumentBatch):
    """A batch of a user's own: rows, and something about all of them."""

    site: str = ""
    more: list[int] = field(default_factory=list)


def test_rows_of_a_users_own_class_keep_what_its_fields_hold(tmp_path: Path) -> None:
    batch = Pages({"text": ["a", "b"]}, site="x.org", more=[1]).select([1])
    write_task(batch, str(tmp_path / "t"))
    back = read_task(str(tmp_path / "t"))
    assert isinstance(back, Pages)
    assert (back.site, back.more, back.data.to_pydict()) == ("x.org", [1], {"text": ["b"]})
    assert content_id(batch) != content_id(Pages({"text": ["a", "b"]}, site="y.org", more=[1]).select([1]))


def test_rows_keep_their_names_and_their_class(tmp_path: Path) -> None:
    batch = DocumentBatch({"text": ["a", "b", "c"]}, dataset_name="d").named("x").select([0, 2])
    write_task(batch, str(tmp_path / "t"))
    back = read_task(str(tmp_path / "t"))
    assert type(back) is DocumentBatch
    assert back.names is not None
    assert (back.dataset_name, back.data.to_pydict(), back.names.to_texts()) == (
        "d",
        {"text": ["a", "c"]},
        ["x:0", "x:2"],
    )


def test_arrays_of_a_users_task_are_read_without_a_copy(tmp_path: Path) -> None:
    task = Clips([np.arange(100_000), np.ones(7)], more={"note": "x"})
    write_task(task, str(tmp_path / "t"))
    back = read_task(str(tmp_path / "t"))
    assert isinstance(back, Clips)
    assert back.more == {"note": "x"}
    assert all((a == b).all() for a, b in zip(task.data, back.data, strict=True))
    assert not back.data[0].flags.owndata


def test_a_users_task_is_measured_split_and_put_together() -> None:
    task = Clips([np.zeros(1000), np.zeros(1000), np.zeros(1000)])
    assert 24_000 < task.nbytes < 30_000
    pieces = task.split(2)
    assert [piece.num_items for piece in pieces] == [2, 1]
    assert Clips.concat(pieces).num_items == 3
    assert Clips.concat(pieces).rate == 16_000


def test_a_slice_of_a_table_writes_its_own_rows_only(tmp_path: Path) -> None:
    table = pa.table({"text": ["x" * 1000] * 1000})
    assert write_task(DocumentBatch(table.slice(3, 1)), str(tmp_path / "t")) < 20_000


@pytest.mark.skipif(os.name != "posix", reason="files have owners on POSIX")
@pytest.mark.parametrize("task", [DocumentBatch({"text": ["a"]}), Clips([1, 2])])
def test_a_file_that_others_could_have_written_is_not_unpickled(tmp_path: Path, task: Task[Any]) -> None:
    path = str(tmp_path / "t")
    before = os.umask(0)
    try:
        write_task(task, path)
    finally:
        os.umask(before)
    assert read_task(path).data == task.data  # whatever the umask is, others cannot write to it
    os.chmod(path, 0o666)
    with pytest.raises(DataError, match=r"t: every user of this machine can write to this, .*\n  Use a directory of"):
        read_task(path)
    os.chmod(path, 0o644)
    if os.geteuid() == 0:
        os.chown(path, 4242, -1)
        with pytest.raises(DataError, match="this belongs to the user with the id 4242, and reading tasks from it"):
            read_task(path)
