"""For all tests: kernels are compiled once, before they are needed; Ctrl-C works; tests that start Ray are marked."""

import os
import signal
import sys
from typing import Any

import pytest
from hypothesis import settings
from property_tests import as_usual

os.environ.setdefault("TAMIS_KERNELS", "wait")
os.environ.setdefault("RAY_worker_niceness", "0")  # with 15, which is the default, other tests come first

settings.register_profile("tamis", as_usual())
settings.load_profile("tamis")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell in the background has it ignored, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_ON_RAY = (
    "test_a_cluster_that_is_started_changes_neither_signals_nor_the_environment",
    "test_a_ray_cluster_is_started_and_stopped",
    "test_a_streaming_run_ends_the_same_whatever_is_killed",
    "test_an_actor_fetches_and_sends_while_it_computes",
    "test_client.py",
    "test_image_parity.py",
    "test_one_actor_keeps_many_calls_in_flight",
    "test_parity.py",
    "test_ray_data.py",
    "test_ray_executor.py",
    "test_ray_failures.py",
    "test_ray_metrics.py",
    "test_ray_no_shared_files.py",
    "test_ray_nodes.py",
    "test_ray_resume.py",
    "test_ray_scripts.py",
    "test_seeds_on_ray.py",
    "test_slurm.py",
    "test_streaming_gpu.py",
    "test_substrings_are_removed_the_same_on_ray",
    "test_twenty_rows_of_a_hundred_thousand_on_ray",
    "test_the_code_of_a_page_runs[docs/clusters.md]",
    "test_the_code_of_a_page_runs_on_a_cluster",
    "test_workflows_on_ray.py",
    "test_xenna.py",
)
"""Modules whose tests run on Ray, and single tests of other modules that do."""

_SLOW = {
    "analysis",
    "download",
    "integration",
    "mixing",
    "test_async_stages.py",
    "test_bookkeeper.py",
    "test_cards.py",
    "test_command.py",
    "test_examples.py",
    "test_exchange.py",
    "test_external.py",
    "test_extremes.py",
    "test_keeper.py",
    "test_limits.py",
    "test_media.py",
    "test_native.py",
    "test_runs.py",
    "test_seeds.py",
    "test_start.py",
    "test_substrings.py",
    "test_testing.py",
}
"""Folders and modules whose tests run whole pipelines and programs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start Ray and slow ones, which ``make check`` leaves out.

    Tests on Ray come first, because together they take longest, and those that share a cluster before others.
    """
    turns: dict[pytest.Item, int] = {}
    for item in items:
        if _SLOW & {*item.path.parts}:
            item.add_marker(pytest.mark.slow)
        if _runs_on_ray(item.nodeid):
            item.add_marker(pytest.mark.ray)
        elif _shares_cluster(item) or item.get_closest_marker("ray"):
            raise pytest.UsageError(f"{item.nodeid} runs on Ray: add it to _ON_RAY in {__file__}")
        turns[item] = 0 if _shares_cluster(item) else 1 if _runs_on_ray(item.nodeid) else 2
    items.sort(key=lambda item: turns[item])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup``: the tests of a module run in one process, and so do all tests on Ray.

    Many clusters on a small machine slow each other down. Groups are told from the names of tests, because pytest-xdist
    3.8 ignores its own mark ``xdist_group`` with pytest 9.2 (https://github.com/pytest-dev/pytest-xdist/issues/1386).
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "ray" if _runs_on_ray(nodeid) else nodeid.partition("::")[0]

    return Groups(config, log)


def _runs_on_ray(nodeid: str) -> bool:
    return any(name in nodeid for name in _ON_RAY)


@pytest.fixture(scope="module")
def ray_cluster() -> None:
    """A cluster with two cores and two GPUs, to which this process is connected.

    Modules that follow each other share it, because a start takes seconds.
    """
    ray = pytest.importorskip("ray")
    from ray_faults import start_small_cluster

    if not ray.is_initialized():
        start_small_cluster()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the shared cluster after the last test that uses it, so that no other test finds it."""
    is_last = _shares_cluster(item) and (nextitem is None or not _shares_cluster(nextitem))
    if is_last and "ray" in sys.modules:
        sys.modules["ray"].shutdown()


def _shares_cluster(item: pytest.Item) -> bool:
    return "ray_cluster" in getattr(item, "fixturenames", ())
