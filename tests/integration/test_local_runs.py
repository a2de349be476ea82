"""Whole runs on the local executor, across real threads and processes."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis.backends.local import LocalExecutor
from tamis.backends.substrates import threads
from tamis.errors import DataError, PlanError, ResourceError, StageError
from tamis.pipeline import Pipeline
from tamis.runs.ledger import Ledger
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.emit import BadRow, BadRows, Drop
from tamis.stages.exchange import ShuffleStage
from tamis.stages.flow import Dropped, Route, Tee
from tamis.stages.function_decorators import processing_stage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, EmptyTask, Task
from tamis.tasks.storage import read_task

Stage = ProcessingStage[Any, Any]

WAYS = [
    ("inline", 0),
    ("threads", 1),
    ("threads", 8),
    ("processes", 1),
    ("processes", 2),
    ("processes", 3),
    ("auto", 2),
]
FEW_WAYS = [("inline", 0), ("threads", 8), ("processes", 2)]
ALL_MODES = [("streaming", True), ("streaming", False), ("batch", True), ("batch", False)]
EACH_WAY = [pytest.param(way, marks=[] if way in FEW_WAYS else [pytest.mark.exhaustive]) for way in WAYS]


class Make(ProcessingStage[EmptyTask, DocumentBatch]):
    """Some rows a task, numbered by tens; texts repeat across tasks."""

    def __init__(self, tasks: int = 12, rows: int = 10) -> None:
        self.tasks, self.rows = tasks, rows

    def process(self, task: EmptyTask) -> list[DocumentBatch]:
        return [
            DocumentBatch(
                {
                    "text": [f"text {(7 * t + r) % 50}" for r in range(self.rows)],
                    "n": [10 * t + r for r in range(self.rows)],
                    "lang": [["en", "de", "fr"][(t + r) % 3] for r in range(self.rows)],
                }
            )
            for t in range(self.tasks)
        ]


@processing_stage(name="upper")
def upper(task: DocumentBatch) -> DocumentBatch:
    texts = [t.upper() for t in task.data["text"].to_pylist()]
    return task.with_table(task.data.set_column(0, "text", pa.array(texts)))


class KeepEven(ProcessingStage[DocumentBatch, DocumentBatch]):
    releases_gil = True

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available

    def process(self, task: DocumentBatch) -> Iterator[Any]:
        import numpy as np

        n = task.data["n"].to_numpy()
        odd = np.flatnonzero(n % 2)
        if len(odd):
            yield Drop(task, odd, "odd number")
        yield task.with_table(task.data.filter(pa.array(n % 2 == 0)))


def run(tmp_path: Path, stages: list[Stage], way: tuple[str, int] = ("threads", 2), **settings: Any) -> RunResult:
    initial = settings.pop("initial_tasks", None)
    given = {"failure_budget": settings.pop("failure_budget")} if "failure_budget" in settings else {}
    executor = LocalExecutor(workers=way[1], substrate=way[0], **settings)  # type: ignore[arg-type]  # from a table
    target = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
    return Pipeline("test", stages=stages).run(executor, initial, run_dir=str(target), progress="off", **given)


def rows(result: RunResult) -> list[dict[str, Any]]:
    return [row for task in result for row in task.data.to_pylist()]


@pytest.mark.parametrize(
    ("mode", "fuse", "ways"),
    [
        ("streaming", True, [*FEW_WAYS, ("auto", 2)]),
        ("batch", False, FEW_WAYS),
        *[pytest.param(mode, fuse, WAYS, marks=pytest.mark.exhaustive) for mode, fuse in ALL_MODES],
    ],
)
def test_every_way_of_running_gives_the_same_rows(
    tmp_path: Path, mode: str, fuse: bool, ways: list[tuple[str, int]]
) -> None:
    def go(way: tuple[str, int]) -> list[tuple[str, tuple[int, ...], list[dict[str, Any]]]]:
        stages: list[Stage] = [Make(), upper, KeepEven(), ExactDeduplication(partitions=3)]
        result = run(tmp_path, stages, way, execution_mode=mode, fuse=fuse)
        return [(t.task_id, t.order, t.data.to_pylist()) for t in result]

    first = go(ways[0])
    even = [row for task in Make().process(EmptyTask()) for row in task.data.to_pylist() if row["n"] % 2 == 0]
    assert sorted(r["text"] for *_, some in first for r in some) == sorted({row["text"].upper() for row in even})
    for way in ways[1:]:
        assert go(way) == first, way


def test_the_first_of_equal_documents_stays(tmp_path: Path) -> None:
    result = run(tmp_path, [Make(20), ExactDeduplication()])
    seen: dict[str, int] = {}
    for t in range(20):
        for r in range(10):
            seen.setdefault(f"text {(7 * t + r) % 50}", 10 * t + r)
    assert {row["text"]: row["n"] for row in rows(result)} == seen
    assert result.stage("ExactDeduplication").dropped == {"exact duplicate": 150}
    assert [row["n"] for row in rows(result)] == sorted(seen.values())


def test_texts_that_differ_in_case_and_space_are_equal_when_asked(tmp_path: Path) -> None:
    batch = DocumentBatch({"text": ["A  b", "a b ", None, None, "c"]})
    result = run(tmp_path, [ExactDeduplication(normalize_text=True)], initial_tasks=[batch])
    assert [r["text"] for r in rows(result)] == ["A  b", None, None, "c"]


class Count(ShuffleStage):
    def reduce(self, partition: DocumentBatch) -> DocumentBatch:
        counts = partition.data.group_by(self.by).aggregate([("n", "count"), ("n", "sum")])
        return DocumentBatch(counts.sort_by([(c, "ascending") for c in self.by]))


@pytest.mark.parametrize("way", EACH_WAY)
def test_a_shuffle_brings_equal_keys_together(tmp_path: Path, way: tuple[str, int]) -> None:
    result = run(tmp_path, [Make(12), Count(by=["lang", "text"], partitions=4)], way)
    found = {(r["lang"], r["text"]): (r["n_count"], r["n_sum"]) for r in rows(result)}
    wanted: dict[tuple[str, str], tuple[int, int]] = {}
    for task in Make(12).process(EmptyTask()):
        for row in task.data.to_pylist():
            count, total = wanted.get((row["lang"], row["text"]), (0, 0))
            wanted[row["lang"], row["text"]] = (count + 1, total + row["n"])
    assert found == wanted
    assert len(rows(result)) == len(wanted)


def test_a_partition_too_large_for_memory_is_worked_off_in_passes(tmp_path: Path) -> None:
    def counts(partition_bytes: int) -> list[tuple[str, int]]:
        result = run(tmp_path, [Make(12), Count(by=["text"], partitions=1, partition_bytes=partition_bytes)])
        return sorted((r["text"], r["n_count"]) for r in rows(result))

    assert counts(500) == counts(2**30)
    assert len(list(run(tmp_path, [Make(12), Count(by=["text"], partitions=1, partition_bytes=500)]))) > 1


@pytest.mark.parametrize("way", EACH_WAY)
def test_rows_are_routed_and_flow_on_together(tmp_path: Path, way: tuple[str, int]) -> None:
    @processing_stage(name="mark")
    def mark(task: DocumentBatch) -> DocumentBatch:
        return task.with_table(task.data.set_column(2, "lang", pa.repeat("marked", task.num_items)))

    result = run(tmp_path, [Make(3), Route("lang", {"de": [mark], "fr": []}, otherwise=[KeepEven()])], way)
    found = sorted((r["n"], r["lang"]) for r in rows(result))
    wanted = []
    for task in Make(3).process(EmptyTask()):
        for row in task.data.to_pylist():
            if row["lang"] == "en" and row["n"] % 2:
                continue
            wanted.append((row["n"], "marked" if row["lang"] == "de" else row["lang"]))
    assert found == sorted(wanted)


def test_rows_are_routed_by_a_condition_or_a_function(tmp_path: Path) -> None:
    by_condition = run(tmp_path, [Make(2), Route("n >= 10", {"false": [KeepEven()], "true": []})])
    assert sorted(r["n"] for r in rows(by_condition)) == [0, 2, 4, 6, 8, *range(10, 20)]
    by_function = run(
        tmp_path, [Make(2), Route(lambda t: ["x" if n > 9 else "y" for n in t["n"].to_pylist()], {"y": [KeepEven()]})]
    )
    assert sorted(r["n"] for r in rows(by_function)) == [0, 2, 4, 6, 8, *range(10, 20)]


class Collect(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stand-in for a writer."""

    is_sink_stage = True

    def __init__(self, path: str) -> None:
        self.path = path

    def process(self, task: DocumentBatch) -> None:
        Path(self.path, f"{task.task_id}.txt").write_text("\n".join(map(str, task.data.to_pylist())))


def test_a_tee_sends_a_copy_aside(tmp_path: Path) -> None:
    side = tmp_path / "side"
    side.mkdir()
    result = run(tmp_path, [Make(4), Tee([KeepEven(), Collect(str(side))]), upper])
    assert len(rows(result)) == 40
    assert sum(len(f.read_text().splitlines()) for f in side.iterdir()) == 20


def test_what_a_filter_drops_can_be_kept_aside(tmp_path: Path) -> None:
    side = tmp_path / "side"
    side.mkdir()
    result = run(tmp_path, [Make(4), Dropped(KeepEven(), to=[Collect(str(side))])])
    assert [r["n"] for r in rows(result)] == list(range(0, 40, 2))
    lines = [line for f in side.iterdir() for line in f.read_text().splitlines()]
    assert len(lines) == 20
    assert all("'dropped_by': 'KeepEven', 'dropped_because': 'odd number'" in line for line in lines)


def test_dropped_rows_can_flow_on_with_the_others(tmp_path: Path) -> None:
    result = run(tmp_path, [Make(2), Dropped(KeepEven(), to=[])])
    assert sorted(r["n"] for r in rows(result)) == list(range(20))
    assert {r["n"] for r in rows(result) if r.get("dropped_because")} == set(range(1, 20, 2))


def test_rows_that_vanish_without_a_reason_are_counted(tmp_path: Path) -> None:
    @processing_stage(name="head")
    def head(task: DocumentBatch) -> DocumentBatch:
        return task.with_table(task.data.slice(0, 3))

    result = run(tmp_path, [Make(4), head])
    assert result.stage("head").dropped == {"dropped by head": 28}


def test_nothing_left_is_no_error(tmp_path: Path) -> None:
    @processing_stage(name="nothing")
    def nothing(task: DocumentBatch) -> None:
        return None

    result = run(tmp_path, [Make(3), nothing, upper, ExactDeduplication(), upper])
    assert len(result) == 0
    assert list(result) == []
    assert result.summary.state == "done"


def test_tasks_of_the_users_own_kind_pass_between_processes(tmp_path: Path) -> None:
    class Point(Task[tuple[int, int]]):
        pass

    class Points(ProcessingStage[EmptyTask, Point]):
        def process(self, task: EmptyTask) -> list[Point]:
            return [Point((i, i * i)) for i in range(5)]

    class Add(ProcessingStage[Point, Point]):
        def process(self, task: Point) -> Point:
            return Point((task.data[0], task.data[1] + 1))

    result = run(tmp_path, [Points(), Add()], ("processes", 2))
    assert [t.data for t in result] == [(i, i * i + 1) for i in range(5)]


@pytest.mark.parametrize("ways", [FEW_WAYS, pytest.param(WAYS, marks=pytest.mark.exhaustive)])
def test_a_stage_gets_several_tasks_at_once(tmp_path: Path, ways: list[tuple[str, int]]) -> None:
    class Pairs(ProcessingStage[DocumentBatch, DocumentBatch]):
        batch_size = 5

        def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
            table = pa.concat_tables([t.data for t in tasks])
            return [DocumentBatch(table.append_column("together", pa.repeat(len(tasks), table.num_rows)))]

    found = [[t.data.to_pylist() for t in run(tmp_path, [Make(12), upper, Pairs()], way)] for way in ways]
    assert [len(task) for task in found[0]] == [50, 50, 20]
    assert [task[0]["together"] for task in found[0]] == [5, 5, 2]
    assert all(f == found[0] for f in found)


def test_setup_runs_once_per_worker_and_teardown_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()

    class Careful(ProcessingStage[DocumentBatch, DocumentBatch]):
        def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
            (log / f"node-{time.monotonic_ns()}").touch()

        def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
            assert worker_metadata is not None
            self.worker = worker_metadata.worker_id
            (log / f"setup-{self.worker}-{time.monotonic_ns()}").touch()

        def process(self, task: DocumentBatch) -> DocumentBatch:
            assert self.worker
            time.sleep(0.01)
            return task

        def teardown(self) -> None:
            (log / f"teardown-{self.worker}-{time.monotonic_ns()}").touch()

    run(tmp_path, [Make(30), Careful()], ("processes", 2))
    names = [p.name.rsplit("-", 1)[0] for p in log.iterdir()]
    assert names.count("node") == 1
    for worker in {n.partition("-")[2] for n in names if n.startswith("setup")}:
        assert names.count(f"setup-{worker}") == names.count(f"teardown-{worker}") == 1


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [("inline", 0), ("threads", 2), ("processes", 2)])
def test_an_exception_names_stage_and_task_and_shows_the_users_frames(tmp_path: Path, way: tuple[str, int]) -> None:
    @processing_stage(name="fragile")
    def fragile(task: DocumentBatch) -> DocumentBatch:
        if 30 in task.data["n"].to_pylist():
            raise ValueError("thirty is not my number")
        return task

    with pytest.raises(StageError) as caught:
        run(tmp_path, [Make(6), upper, fragile], way, failure_budget=0)
    text = str(caught.value) + "\n".join(caught.value.__notes__)
    assert "stage 'fragile', task 000000-0003, tried 2 times: ValueError: thirty is not my number" in text
    assert 'raise ValueError("thirty is not my number")' in text
    assert "runner.py" not in text
    assert "the run's directory is" in text


def test_a_failed_run_still_has_its_summary(tmp_path: Path) -> None:
    @processing_stage(name="fragile")
    def fragile(task: DocumentBatch) -> DocumentBatch:
        raise ValueError("no")

    with pytest.raises(StageError):
        Pipeline("p", stages=[Make(), fragile]).run(run_dir=str(tmp_path / "r"), progress="off")
    text = (tmp_path / "r" / "run.json").read_text()
    assert '"state": "failed"' in text
    assert "ValueError: no" in text
    assert (tmp_path / "r" / "report.html").exists()


def test_an_error_that_goes_away_is_retried(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    @processing_stage(name="flaky")
    def flaky(task: DocumentBatch) -> DocumentBatch:
        if not flag.exists():
            flag.touch()
            raise OSError("connection reset")
        return task

    result = run(tmp_path, [Make(3), flaky], ("threads", 1))
    assert len(rows(result)) == 30
    assert result.stage("flaky").retries == 1


def test_broken_data_is_not_retried(tmp_path: Path) -> None:
    @processing_stage(name="strict")
    def strict(task: DocumentBatch) -> DocumentBatch:
        (tmp_path / f"try-{time.monotonic_ns()}").touch()
        raise DataError("not a number", path="x.jsonl", line=3, byte=17, hint="mend it")

    with pytest.raises(DataError, match=r"x.jsonl, line 3, byte 17: not a number\n  mend it"):
        run(tmp_path, [Make(1), strict], ("processes", 2), failure_budget=0)
    assert len(list(tmp_path.glob("try-*"))) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_worker_is_replaced_and_its_task_done_by_another(tmp_path: Path) -> None:
    victims = tmp_path / "victims"
    victims.mkdir()

    @processing_stage(name="victim")
    def victim(task: DocumentBatch) -> DocumentBatch:
        mark = victims / str(task.data["n"][0].as_py())
        if task.data["n"][0].as_py() % 30 == 0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    result = run(tmp_path, [Make(12), victim], ("processes", 2))
    assert sorted(r["n"] for r in rows(result)) == list(range(120))
    assert len(list(victims.iterdir())) == 4
    # A worker that dies while its last answer is on the way puts no blame on the task, and that is no failed try.
    assert 1 <= result.stage("victim").retries <= 4


class SlowInbox(queue.SimpleQueue[Any]):
    """Lets the thread that waits for it go on before the one that puts an end to it."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        if item is None:
            time.sleep(0.3)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_death_is_reported_whichever_thread_notes_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = threads._Thread
    monkeypatch.setattr(threads, "_Thread", lambda: kind(inbox=SlowInbox()))
    victim = tmp_path / "victim"

    @processing_stage(name="dies_once")
    def dies_once(task: DocumentBatch) -> DocumentBatch:
        if not victim.exists():
            victim.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    result = run(tmp_path, [Make(1), dies_once], ("processes", 1))
    assert len(rows(result)) == 10
    assert result.stage("dies_once").retries == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_task_whose_rows_all_kill_their_worker_is_set_aside_with_its_cause(tmp_path: Path) -> None:
    @processing_stage(name="deadly")
    def deadly(task: DocumentBatch) -> DocumentBatch:
        if 20 <= task.data["n"][0].as_py() < 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    result = run(tmp_path, [Make(3, rows=3), deadly], ("processes", 2))
    assert sorted(r["n"] for r in rows(result)) == [0, 1, 2, 10, 11, 12]
    stats = result.stage("deadly")
    assert (stats.rows_in, stats.rows_out, stats.quarantined) == (9, 6, 3)
    (entry,) = result.summary.quarantine
    assert entry["place"] == "000000-0002"
    assert re.match(r"set aside after 4 tries: .*signal 9", entry["problem"])
    saved = read_task(os.path.join(result.run_dir, "quarantine", entry["data"]))
    assert saved.data["n"].to_pylist() == [20, 21, 22]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_row_that_hangs_is_set_aside(tmp_path: Path) -> None:
    @processing_stage(name="slow")
    def slow(task: DocumentBatch) -> DocumentBatch:
        while 20 in task.data["n"].to_pylist():
            time.sleep(0.1)
        return task

    result = run(tmp_path, [Make(3, rows=3), slow.with_(timeout_s=0.5)], ("auto", 2))
    assert sorted(r["n"] for r in rows(result)) == [0, 1, 2, 10, 11, 12, 21, 22]
    (entry,) = result.summary.quarantine
    assert "longer than the 0.5 s of timeout_s" in entry["problem"]
    with pytest.raises(PlanError, match="a thread cannot be ended"):
        run(tmp_path, [Make(4), slow.with_(timeout_s=0.5)], ("threads", 2))


def test_a_stage_that_cannot_be_sent_says_so(tmp_path: Path) -> None:
    class Locked(ProcessingStage[DocumentBatch, DocumentBatch]):
        def __init__(self) -> None:
            import threading

            self.lock = threading.Lock()

        def process(self, task: DocumentBatch) -> DocumentBatch:
            return task

    with pytest.raises(ValueError, match=r"stage 'Locked' cannot be sent to a worker process.*setup\(\)"):
        run(tmp_path, [Make(1), Locked()], ("processes", 2))


def test_a_gpu_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    from tamis.core import host

    if host.gpus():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ResourceError, match=r"asks for a GPU.*this machine has none"):
        run(tmp_path, [Make(1), upper.with_(resources=Resources(gpus=1))])


def test_what_a_stage_prints_does_not_disturb_the_workers(tmp_path: Path) -> None:
    @processing_stage(name="chatty")
    def chatty(task: DocumentBatch) -> DocumentBatch:
        print("hello from a worker")  # noqa: T201 - the behaviour under test
        return task

    assert len(rows(run(tmp_path, [Make(5), chatty], ("processes", 2)))) == 50


def test_rows_that_cannot_be_read_go_to_the_quarantine(tmp_path: Path) -> None:
    class Reader(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> Iterator[Any]:
            yield BadRows([BadRow("f.jsonl", 4, 99, "not JSON", b'{"a": \xff')])
            yield task

    result = run(tmp_path, [Make(2), Reader()])
    assert result.stage("Reader").quarantined == 2
    assert result.summary.quarantine[0]["problem"] == "not JSON"
    assert result.summary.quarantine[0]["raw"] == '{"a": \\xff'
    assert len(list(Path(result.run_dir, "quarantine").glob("*.jsonl"))) == 2


def test_every_published_file_is_in_the_ledger(tmp_path: Path) -> None:
    result = run(tmp_path, [Make(5), upper])
    named = [f["path"] for r in Ledger.read(str(Path(result.run_dir, "ledger"))) for f in r.get("files", ())]
    there = [str(p) for p in Path(result.run_dir, "outputs").iterdir()]
    assert sorted(named) == sorted(there)
    assert len(named) == 5


def test_output_tasks_are_read_when_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, [Make(12), upper])
    assert len(result) == 12
    assert result[3].data["n"].to_pylist() == list(range(30, 40))
    assert result[-1].order == (0, 11)
    assert [task.order for task in result[-2:]] == [(0, 10), (0, 11)]
    with pytest.raises(IndexError, match="12 output tasks"):
        result[12]


def test_tasks_of_earlier_runs_can_be_the_input_of_another(tmp_path: Path) -> None:
    first = run(tmp_path, [upper], initial_tasks=[DocumentBatch({"text": ["a"]})])
    second = run(tmp_path, [upper], initial_tasks=[DocumentBatch({"text": ["b"]})])
    both = run(tmp_path, [upper], initial_tasks=[*first, *second])
    assert [r["text"] for r in rows(both)] == ["A", "B"]


def test_input_tasks_are_left_as_they_were(tmp_path: Path) -> None:
    task = DocumentBatch({"text": ["a"]})
    run(tmp_path, [upper], initial_tasks=[task, task])
    assert (task.task_id, task.order) == ("", ())


def test_a_class_as_initial_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"is not a task; give an object, EmptyTask\(\)"):
        run(tmp_path, [Make(1)], initial_tasks=[EmptyTask])


def test_what_a_stage_counts_itself_is_in_the_statistics(tmp_path: Path) -> None:
    class Counts(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            self.log_metric("characters", sum(map(len, task.data["text"].to_pylist())))
            return task

    result = run(tmp_path, [Make(3), Counts()], ("processes", 2))
    texts = [t for batch in Make(3).process(EmptyTask()) for t in batch.data["text"].to_pylist()]
    assert result.stage("Counts").custom == {"characters": sum(map(len, texts))}


def test_a_program_that_a_stage_starts_does_not_disturb_the_workers(tmp_path: Path) -> None:
    @processing_stage(name="shell")
    def shell(task: DocumentBatch) -> DocumentBatch:
        read = subprocess.run(
            [sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"], stdout=subprocess.PIPE
        )
        assert read.stdout.strip() == b"''"
        return task

    assert len(rows(run(tmp_path, [Make(4), shell], ("processes", 2)))) == 40


def test_workers_do_not_share_what_a_stage_remembers(tmp_path: Path) -> None:
    class Remembers(ProcessingStage[DocumentBatch, DocumentBatch]):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def process(self, task: DocumentBatch) -> DocumentBatch:
            time.sleep(0.01)
            self.seen.append(len(self.seen))
            return DocumentBatch({"seen": [len(self.seen)]})

    stage = Remembers()
    result = run(tmp_path, [Make(20), stage], ("threads", 4))
    assert stage.seen == []
    assert max(r["seen"] for r in rows(result)) < 20
