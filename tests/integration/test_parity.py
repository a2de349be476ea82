"""The same pipelines on every executor: files, outputs, drops, quarantine and statistics are equal to the byte."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parity_pipelines import PIPELINES, Result, run_on, with_gpu, without_gpu, write_input

from tamis.backends.base import Executor
from tamis.backends.local import LocalExecutor
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.backends.xenna import XennaExecutor

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("ray_cluster")]

EXECUTORS: dict[str, Callable[[], Executor]] = {
    "local-threads": lambda: LocalExecutor(workers=4, substrate="threads"),
    "local-processes": lambda: LocalExecutor(workers=2, substrate="processes"),
    "local-batch": lambda: LocalExecutor(workers=4, substrate="threads", execution_mode="batch"),
    "streaming": StreamingExecutor,
    "streaming-unfused": lambda: StreamingExecutor(fuse=False),
    "ray-actor-pool": RayActorPoolExecutor,
    "ray-data": RayDataExecutor,
    "xenna": XennaExecutor,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Executor], Result]:
    """What the simplest executor gives: everything in the calling thread, in the same mode."""
    known: dict[tuple[str, str, bool], Result] = {}

    def find(name: str, executor: Executor) -> Result:
        key = (name, executor.execution_mode, executor.fuse)
        if key not in known:
            build = without_gpu if name == "gpu" else PIPELINES[name]
            plain = LocalExecutor(workers=0, execution_mode=key[1], fuse=key[2])  # type: ignore[arg-type]  # a mode
            known[key] = run_on(plain, build, source, tmp_path_factory.mktemp(name))
        return known[key]

    return find


ENOUGH = {
    "local-processes": ("branch", "composite", "exchanges", "filter", "no-writer"),
    "local-batch": ("batches", "branch", "shuffle"),
    "streaming": (
        "after-a-writer",
        "batches",
        "branch",
        "exchanges",
        "failing-rows",
        "fan-out",
        "fuzzy",
        "lines",
        "nothing-left",
        "shuffle",
    ),
    "streaming-unfused": ("branch",),
    "ray-actor-pool": ("branch", "fuzzy"),
    "ray-data": ("branch", "fuzzy"),
    "xenna": ("branch", "failing-rows"),
}
"""For executors that share their code with another one: pipelines with all kinds of stages.

Worker processes and the streaming executor share the coordinator: every pipeline runs on one of them, beside threads.
"""


def combinations() -> Iterator[Any]:
    for executor, name in itertools.product(EXECUTORS, sorted(PIPELINES)):
        is_one_of_many = name not in ENOUGH.get(executor, PIPELINES)
        yield pytest.param(executor, name, marks=[pytest.mark.exhaustive] if is_one_of_many else [])


@pytest.mark.parametrize(("executor", "name"), [*combinations()])
def test_every_executor_gives_the_same(
    executor: str, name: str, source: Path, expected: Callable[[str, Executor], Result], tmp_path: Path
) -> None:
    ours = EXECUTORS[executor]()
    assert run_on(ours, PIPELINES[name], source, tmp_path) == expected(name, ours)


EXHAUSTIVE = [pytest.param(name, marks=pytest.mark.exhaustive) for name in ("ray-actor-pool", "xenna")]


@pytest.mark.parametrize("executor", ["streaming", "ray-data", *EXHAUSTIVE])
def test_a_stage_with_a_gpu_gives_the_same_as_without(
    executor: str, source: Path, expected: Callable[[str, Executor], Result], tmp_path: Path
) -> None:
    ours = EXECUTORS[executor]()
    assert run_on(ours, with_gpu, source, tmp_path) == expected("gpu", ours)


@pytest.mark.parametrize("executor", ["local-threads", "local-processes", "streaming", "ray-data", *EXHAUSTIVE])
def test_no_input_gives_no_output(executor: str, tmp_path: Path) -> None:
    found = run_on(EXECUTORS[executor](), PIPELINES["map"], write_input(tmp_path / "in", rows=0), tmp_path)
    assert (found.files, found.outputs, found.drops) == ({}, [], [])
    assert all(s["rows_out"] == 0 for s in found.stats[1:])
