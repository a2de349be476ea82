"""For all tests: kernels are compiled once, before they are needed; Ctrl-C works; tests that start Ray are marked."""

import os
import signal

import pytest
from hypothesis import settings

os.environ.setdefault("TAMIS_KERNELS", "wait")

settings.register_profile("no deadline", deadline=None)  # how long a test takes depends on what else the machine does
settings.load_profile("no deadline")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell in the background has it ignored, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_STARTS_RAY = {
    "test_client.py",
    "test_ray_no_shared_files.py",
    "test_ray_nodes.py",
    "test_ray_scripts.py",
    "test_slurm.py",
    "test_streaming_gpu.py",
}
"""Modules whose tests start clusters of their own. Single tests of others are marked where they are."""

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
    "test_extremes.py",
    "test_keeper.py",
    "test_limits.py",
    "test_media.py",
    "test_native.py",
    "test_runs.py",
    "test_seeds.py",
    "test_start.py",
    "test_testing.py",
}
"""Folders and modules whose tests run whole pipelines and programs."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook, and comes first otherwise
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start Ray and slow ones, which ``make check`` leaves out.

    The tests of a module run in one process, and so do all tests that start Ray: many clusters on a small machine slow
    each other down. They come first, because together they take longest, and those that share a cluster before others.
    """
    turns: dict[pytest.Item, int] = {}
    for item in items:
        parts = {*item.path.parts}
        if _shares_cluster(item) or _STARTS_RAY & parts:
            item.add_marker(pytest.mark.ray)
        if _SLOW & parts:
            item.add_marker(pytest.mark.slow)
        starts_ray = item.get_closest_marker("ray") is not None
        turns[item] = 0 if _shares_cluster(item) else 1 if starts_ray else 2
        item.add_marker(pytest.mark.xdist_group("ray" if starts_ray else str(item.path)))
    items.sort(key=lambda item: turns[item])


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
    if _shares_cluster(item) and (nextitem is None or not _shares_cluster(nextitem)):
        import ray

        ray.shutdown()


def _shares_cluster(item: pytest.Item) -> bool:
    return "ray_cluster" in getattr(item, "fixturenames", ())
