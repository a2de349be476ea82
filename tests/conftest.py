"""For all tests: kernels are compiled once, before they are needed; Ctrl-C works; tests that start Ray are marked."""

import os
import re
import signal
from pathlib import Path

import pytest

os.environ.setdefault("TAMIS_KERNELS", "wait")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell in the background has it ignored, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_STARTS_RAY = re.compile(
    r"^import ray|^from ray|RayClient|StreamingExecutor|RayDataExecutor|XennaExecutor|RayActorPool|clusters import",
    re.MULTILINE,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of every module that starts Ray, so that ``make check`` can leave them out."""
    marked: dict[Path, bool] = {}
    for item in items:
        if item.path.suffix == ".py" and "tests" in item.path.parts:
            if item.path not in marked:
                marked[item.path] = bool(_STARTS_RAY.search(item.path.read_text(encoding="utf-8")))
            if marked[item.path]:
                item.add_marker(pytest.mark.ray)
