"""How busy a real GPU is, and how much of its memory is in use."""

from __future__ import annotations

import time

import pytest

from tamis.core import host
from tamis.core.gpu_use import GpuMonitor, GpuReader, OccasionalGpuReader

pytestmark = pytest.mark.skipif(not host.gpus(), reason="this machine has no NVIDIA GPU")


def test_every_gpu_that_can_be_used_is_read() -> None:
    found = GpuReader().read()
    assert len(found) == len(host.gpus())
    for use, card in zip(found, host.gpus(), strict=True):
        assert 0.0 <= use.utilization <= 1.0
        assert 0 < use.memory_bytes < card.memory_gb * 2**30


def test_only_visible_gpus_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", host.gpus()[0].uuid)
    assert [use.index for use in GpuReader().read()] == [0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not GpuReader()


def test_a_worker_reads_its_gpus_at_most_once_a_second() -> None:
    reader = OccasionalGpuReader(True)
    assert reader.read()
    assert reader.read() == ()


def test_the_monitor_reads_them_in_a_thread() -> None:
    monitor = GpuMonitor()
    try:
        deadline = time.monotonic() + 60
        while not monitor.latest:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [use.index for use in monitor.latest] == [use.index for use in GpuReader().read()]
    finally:
        monitor.close()
