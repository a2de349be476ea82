"""How busy GPUs are: nothing without a GPU; with one, see tests/gpu."""

from __future__ import annotations

import pytest

from tamis.core import host
from tamis.core.gpu_use import GpuMonitor, GpuReader, OccasionalGpuReader


@pytest.mark.skipif(bool(host.gpus()), reason="this machine has a GPU")
def test_a_machine_without_gpus_has_none_to_read() -> None:
    assert not GpuReader()
    assert GpuReader().read() == ()
    monitor = GpuMonitor()
    monitor.close()
    assert monitor.latest == ()


def test_a_worker_without_gpus_reads_none() -> None:
    assert OccasionalGpuReader(False).read() == ()
