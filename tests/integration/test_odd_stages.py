"""Stages that do odd but legal things, and what must come of them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError, StageError
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.emit import Drop
from tamis.stages.exchange import ShuffleStage
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch, FileGroup, Task

Stage = ProcessingStage[Any, Any]
BOTH = pytest.mark.parametrize("way", [("inline", 0), ("threads", 2), ("processes", 2)])


def run(
    tmp_path: Path, stages: list[Stage], given: list[Task[Any]], way: tuple[Any, int] = ("threads", 2), **more: Any
) -> RunResult:
    executor = LocalExecutor(way[1], way[0], **more)
    target = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
    return Pipeline("odd", stages=stages).run(executor, given, run_dir=str(target), progress="off")


def texts(result: RunResult) -> list[str]:
    return [t for task in result for t in task.data["text"].to_pylist()]


def batches(count: int) -> list[Task[Any]]:
    return [DocumentBatch({"text": [f"t{i}"], "n": [i]}) for i in range(count)]


@BOTH
def test_a_generator_may_change_and_yield_the_same_task_again(tmp_path: Path, way: tuple[str, int]) -> None:
    class Split(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
            table = task.data
            for i in range(table.num_rows):
                task.data = table.slice(i, 1)
                yield task

    result = run(tmp_path, [Split()], [DocumentBatch({"text": ["a", "b", "c"]})], way)
    assert texts(result) == ["a", "b", "c"]


@BOTH
def test_another_try_sees_the_task_as_it_was(tmp_path: Path, way: tuple[str, int]) -> None:
    flag = tmp_path / "flag"

    @processing_stage(name="changes")
    def changes(task: DocumentBatch) -> DocumentBatch:
        task.data = task.data.append_column("extra", pa.array([1]))
        task._metadata["seen"] = task._metadata.get("seen", 0) + 1
        if not flag.exists():
            flag.touch()
            raise OSError("once")
        return task

    [task] = run(tmp_path, [changes], batches(1), way)
    assert task.data.column_names == ["text", "n", "extra"]
    assert task._metadata["seen"] == 1


def test_the_ways_of_a_tee_do_not_share_metadata(tmp_path: Path) -> None:
    @processing_stage(name="side")
    def side(task: DocumentBatch) -> DocumentBatch:
        task._metadata["side"] = True
        return task

    [task] = [
        t
        for t in run(tmp_path, [Tee([side, JsonlWriter(str(tmp_path / "o"))])], batches(1))
        if t.num_items and isinstance(t, DocumentBatch)
    ]
    assert "side" not in task._metadata


def test_a_stage_with_one_worker_has_one_copy(tmp_path: Path) -> None:
    class Number(ProcessingStage[DocumentBatch, DocumentBatch]):
        def __init__(self) -> None:
            self.count = 0

        def process(self, task: DocumentBatch) -> DocumentBatch:
            self.count += 1
            return DocumentBatch({"id": [self.count]})

    @processing_stage(name="slow")
    def slow(task: DocumentBatch) -> DocumentBatch:
        time.sleep(0.01)
        return task

    result = run(tmp_path, [slow, Number().with_(num_workers=1)], batches(20), ("threads", 4))
    assert sorted(t.data["id"][0].as_py() for t in result) == list(range(1, 21))


@pytest.mark.parametrize("number", [0, -1])
def test_no_workers_is_refused(number: int) -> None:
    class Odd(ProcessingStage[DocumentBatch, DocumentBatch]):
        def num_workers(self) -> int:
            return number

        def process(self, task: DocumentBatch) -> DocumentBatch:
            return task

    with pytest.raises(ValueError, match="must be at least 1"):
        ProcessingStage[Any, Any]().with_(num_workers=number)
    with pytest.raises(PlanError, match=f"num_workers is {number}, it must be at least 1"):
        Pipeline("p", stages=[Odd()]).plan(initial=DocumentBatch)


def test_a_stage_that_nothing_reaches_is_refused(tmp_path: Path) -> None:
    everything = Route("text", {"a": [JsonlWriter(str(tmp_path / "a"))]}, otherwise=[JsonlWriter(str(tmp_path / "b"))])

    @processing_stage(name="lonely")
    def lonely(task: DocumentBatch) -> DocumentBatch:
        return task

    with pytest.raises(PlanError, match="nothing reaches stage 'lonely'"):
        Pipeline("p", stages=[everything, lonely]).plan(initial=DocumentBatch)


def test_equal_tasks_are_told_apart(tmp_path: Path) -> None:
    @processing_stage(name="read")
    def read(task: FileGroup) -> DocumentBatch:
        return DocumentBatch({"text": ["x"]})

    writer = JsonlWriter(str(tmp_path / "out"), filename="{task_id}")
    run(tmp_path, [read, writer], [FileGroup(["f"]), FileGroup(["f"])])
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 2


def test_a_stage_behind_a_writer_finds_its_files(tmp_path: Path) -> None:
    @processing_stage(name="look")
    def look(task: FileGroup) -> FileGroup:
        assert all(Path(p).exists() for p in task.data)
        return task

    assert len(run(tmp_path, [JsonlWriter(str(tmp_path / "out")), look], batches(3))) == 3


@BOTH
def test_columns_with_dictionaries_go_everywhere(tmp_path: Path, way: tuple[str, int]) -> None:
    class Same(ShuffleStage):
        def reduce(self, partition: DocumentBatch) -> DocumentBatch:
            return partition

    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    table = pa.table({"text": pa.chunked_array(chunks), "n": [1, 2, 3, 4]})
    result = run(tmp_path, [Same(by=["n"], partitions=3), ExactDeduplication()], [DocumentBatch(table)], way)
    assert sorted(texts(result)) == ["a", "b", "c"]
    assert result.stage("Same").rows_out == 4


def test_a_task_that_cannot_travel_fails_with_its_stage(tmp_path: Path) -> None:
    @processing_stage(name="same")
    def same(task: DocumentBatch) -> DocumentBatch:
        return task

    lock = DocumentBatch({"text": ["x"]}, _metadata={"odd": threading.Lock()})
    with pytest.raises(StageError, match=r"stage 'same'.*cannot be sent between processes"):
        run(tmp_path, [same], [lock], ("processes", 2))


def test_batches_behind_ways_with_different_barriers_do_not_depend_on_timing(tmp_path: Path) -> None:
    class Join(ProcessingStage[DocumentBatch, DocumentBatch]):
        batch_size = 3

        def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
            return [DocumentBatch({"text": ["|".join(t.data["text"][0].as_py() for t in tasks)]})]

    def joined(seconds: float) -> list[str]:
        @processing_stage(name="delay")
        def delay(task: DocumentBatch) -> DocumentBatch:
            time.sleep(seconds)
            return task

        given: list[Task[Any]] = [DocumentBatch({"text": [f"{i}"], "way": ["ab"[i % 2]]}) for i in range(10)]
        route = Route("way", {"a": [ExactDeduplication()]}, otherwise=[delay.with_(num_workers=1)])
        return sorted(texts(run(tmp_path, [route, Join()], given)))

    assert joined(0) == joined(0.05)


def test_composites_of_all_names_keep_apart(tmp_path: Path) -> None:
    named = [ExactDeduplication().with_(name=name) for name in ("x", "x #2", "x", "x")]
    result = run(tmp_path, named, [DocumentBatch({"text": ["a", "a", "b"]})])
    assert texts(result) == ["a", "b"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_what_a_dead_worker_left_does_not_disturb_deduplication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies while it writes the list of duplicates leaves half a file behind."""
    from tamis.stages.deduplication.exact import stage as exact

    flag = tmp_path / "flag"

    class Dies(exact.FindDuplicates):
        def process(self, task: FileGroup) -> Iterator[Any]:
            for item in super().process(task):
                if not flag.exists():
                    flag.touch()
                    os.truncate(item.temporary, 10)
                    os.kill(os.getpid(), signal.SIGKILL)
                yield item

    monkeypatch.setattr(exact, "FindDuplicates", Dies)
    given: list[Task[Any]] = [DocumentBatch({"text": [f"t{i % 7}" for i in range(20)]}) for _ in range(4)]
    result = run(tmp_path, [ExactDeduplication(partitions=2)], given, ("processes", 2))
    assert sorted(texts(result)) == [f"t{i}" for i in range(7)]
    assert result.stage("ExactDeduplication").dropped == {"exact duplicate": 73}


def test_a_death_does_not_use_up_the_tries_of_an_exception(tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("Windows has no SIGKILL")

    @processing_stage(name="unlucky")
    def unlucky(task: DocumentBatch) -> DocumentBatch:
        for mark, act in (("died", lambda: os.kill(os.getpid(), signal.SIGKILL)), ("raised", None)):
            if not (tmp_path / mark).exists():
                (tmp_path / mark).touch()
                if act:
                    act()
                raise OSError("for once")
        return task

    assert len(run(tmp_path, [unlucky], batches(1), ("processes", 2))) == 1


def test_rows_are_counted_as_they_came_in(tmp_path: Path) -> None:
    @processing_stage(name="cuts")
    def cuts(task: DocumentBatch) -> DocumentBatch:
        task.data = task.data.slice(0, 1)
        return task

    stats = run(tmp_path, [cuts], [DocumentBatch({"text": ["a", "b", "c"]})]).stage("cuts")
    assert (stats.rows_in, stats.rows_out, stats.dropped) == (3, 1, {"dropped by cuts": 2})


def test_all_filters_of_a_composite_have_their_dropped_rows_kept(tmp_path: Path) -> None:
    class Without(ProcessingStage[DocumentBatch, DocumentBatch]):
        def __init__(self, text: str) -> None:
            self.text = text

        def process(self, task: DocumentBatch) -> Iterator[Any]:
            hit = np.asarray([t == self.text for t in task.data["text"].to_pylist()])
            yield Drop(task, np.flatnonzero(hit), f"is {self.text}")
            yield task.with_table(task.data.filter(pa.array(~hit)))

    class Two(CompositeStage[DocumentBatch, DocumentBatch]):
        def decompose(self) -> list[Stage]:
            return [Without("a"), Without("b")]

    result = run(tmp_path, [Dropped(Two(), to=[])], [DocumentBatch({"text": ["a", "b", "c"]})])
    reasons = {r["text"]: r.get("dropped_because") for task in result for r in task.data.to_pylist()}
    assert reasons == {"a": "is a", "b": "is b", "c": None}


def test_a_teardown_that_raises_does_not_fail_a_finished_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Messy(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            return task

        def teardown(self) -> None:
            raise ValueError("too late")

    with caplog.at_level(logging.ERROR):
        assert len(run(tmp_path, [Messy()], batches(1), ("inline", 0))) == 1
    assert "stage 'Messy' raised in teardown()" in caplog.text


@pytest.mark.parametrize("result", ["text", {"text": ["a"]}, 7])
def test_a_result_that_is_no_task_is_refused(tmp_path: Path, result: Any) -> None:
    @processing_stage(name="wrong")
    def wrong(task: DocumentBatch) -> Any:
        return result

    with pytest.raises(StageError, match=r"process\(\) returned \w+; it must return a task, several, or None"):
        run(tmp_path, [wrong], batches(1), ("inline", 0))


def test_a_message_with_broken_text_does_not_cost_the_run_its_record(tmp_path: Path) -> None:
    @processing_stage(name="quotes")
    def quotes(task: DocumentBatch) -> DocumentBatch:
        raise ValueError("half: \ud83d")

    with pytest.raises(StageError):
        run(tmp_path, [quotes], batches(1), ("inline", 0))
    assert '"state": "failed"' in (tmp_path / "run-0" / "run.json").read_text()


def test_a_metric_may_be_a_number_of_numpy(tmp_path: Path) -> None:
    class Counts(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            self.log_metric("x", np.float32(2))
            return task

    assert run(tmp_path, [Counts()], batches(2)).stage("Counts").custom == {"x": 4.0}


def test_a_great_fan_out_is_set_down_and_not_held(tmp_path: Path) -> None:
    @processing_stage(name="many")
    def many(task: DocumentBatch) -> list[DocumentBatch]:
        return (DocumentBatch({"text": [f"{i}" * 2**20]}) for i in range(10, 99))  # type: ignore[return-value]  # a generator

    @processing_stage(name="shorten")
    def shorten(task: DocumentBatch) -> DocumentBatch:
        return DocumentBatch({"text": [task.data["text"][0].as_py()[:2]]})

    result = run(tmp_path, [many, shorten], batches(1), ("threads", 2), memory_budget="64MiB")
    assert texts(result) == [str(i) for i in range(10, 99)]


def test_runs_that_start_in_the_same_second_keep_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @processing_stage(name="same")
    def same(task: DocumentBatch) -> DocumentBatch:
        return task

    results: list[RunResult] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(
                Pipeline("p", stages=[same]).run(LocalExecutor(0), batches(2), progress="off")
            )
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({r.run_dir for r in results}) == 8
    assert all(texts(r) == ["t0", "t1"] for r in results)


def test_names_and_places_are_the_same_in_batch_mode(tmp_path: Path) -> None:
    class Same(ShuffleStage):
        def reduce(self, partition: DocumentBatch) -> DocumentBatch:
            return partition

    @processing_stage(name="same")
    def same(task: DocumentBatch) -> DocumentBatch:
        return task

    def orders(mode: str) -> list[tuple[int, ...]]:
        return [t.order for t in run(tmp_path, [same, Same(by=["n"]), same], batches(9), execution_mode=mode)]

    assert orders("streaming") == orders("batch")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_worker_that_dies_after_writing_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tamis.stages.io.writers import WriterStage

    class Dies(WriterStage):
        def process(self, task: DocumentBatch) -> Iterator[Any]:
            for item in super().process(task):
                if not (tmp_path / "flag").exists():
                    (tmp_path / "flag").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield item

    [writer] = JsonlWriter(str(tmp_path / "out")).unfold()
    writer.__class__ = Dies
    run(tmp_path, [writer], batches(4), ("processes", 2))
    assert sorted(p.name for p in (tmp_path / "out").glob("*.jsonl")) == [f"part-00000{i}.jsonl" for i in range(4)]


def _fails(text: str) -> bool:
    raise KeyError("no such key")


def test_of_filters_that_run_as_one_the_one_that_raises_is_named(tmp_path: Path) -> None:
    stages: list[Stage] = [
        ScoreFilter(WordCountFilter(min_words=1)).with_(name="words"),
        ScoreFilter(_fails).with_(name="broken"),
        ScoreFilter(WordCountFilter(min_words=1)).with_(name="again"),
    ]
    with pytest.raises(StageError, match=r"stage 'broken', task 000000, tried 3 times: KeyError"):
        run(tmp_path, stages, batches(1))


class CannotLoad(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Can be pickled, and raises where it is loaded."""

    name = "cannot_load"

    def __reduce__(self) -> Any:
        return _only_here, (os.getpid(),)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def _only_here(process: int) -> CannotLoad:
    if os.getpid() != process:
        raise ImportError("this machine has no such library")
    return CannotLoad()


def test_a_worker_that_cannot_load_its_stages_says_why(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"'cannot_load' could not be set up.*ImportError: this machine has no such"):
        run(tmp_path, [CannotLoad()], batches(2), ("processes", 2))
