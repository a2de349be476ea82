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

_RAY_FIRST = {
    "test_parity.py",
    "test_ray_data.py",
    "test_ray_executor.py",
    "test_ray_failures.py",
    "test_ray_metrics.py",
    "test_ray_nodes.py",
    "test_seeds_on_ray.py",
    "test_streaming_gpu.py",
    "test_xenna.py",
}
_RAY_LAST = {
    "test_client.py",
    "test_external.py",
    "test_ray_no_shared_files.py",
    "test_ray_scripts.py",
    "test_slurm.py",
}
"""Modules whose tests start Ray. Single tests of others are marked where they are."""

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start Ray and slow ones, which ``make check`` leaves out.

    The tests of a module run in one process. Those that start Ray run in two processes only, one of which begins with
    them while the other one ends with them: many clusters on a small machine slow each other down.
    """
    turns: dict[pytest.Item, int] = {}
    for item in items:
        parts = {*item.path.parts}
        if (_RAY_FIRST | _RAY_LAST) & parts:
            item.add_marker(pytest.mark.ray)
        if _SLOW & parts:
            item.add_marker(pytest.mark.slow)
        starts_ray = item.get_closest_marker("ray") is not None
        turns[item] = 0 if _RAY_FIRST & parts else 2 if starts_ray else 1
        item.add_marker(pytest.mark.xdist_group(f"ray {turns[item]}" if starts_ray else str(item.path)))
    items.sort(key=lambda item: turns[item])
