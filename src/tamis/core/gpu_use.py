"""How busy GPUs are, and how much of their memory is in use: from NVIDIA's management library, where it is present."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from typing import Any

from tamis.runs.stats import GpuUse

__all__ = ["GpuMonitor", "GpuReader", "OccasionalGpuReader"]

PERIOD_S = 1.0
"""Seconds between two readings."""


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t: shares in percent."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class GpuReader:
    """Reads what the GPUs are doing that this process may use (``CUDA_VISIBLE_DEVICES``).

    >>> isinstance(GpuReader().read(), tuple)
    True
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[ctypes.c_void_p] = []
        with contextlib.suppress(OSError):  # no driver: no GPUs
            nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
            if nvml.nvmlInit_v2() == 0:
                self._nvml = nvml
                self._handles = self._visible()

    def __bool__(self) -> bool:
        return bool(self._handles)

    def read(self) -> tuple[GpuUse, ...]:
        """The GPUs now; one that cannot be read is left out."""
        return tuple(use for use in map(self._read, self._handles) if use is not None)

    def _read(self, handle: ctypes.c_void_p) -> GpuUse | None:
        index, busy, size = ctypes.c_uint(0), _Utilization(), _Memory()
        failed = (
            self._nvml.nvmlDeviceGetIndex(handle, ctypes.byref(index))
            or self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy))
            or self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(size))
        )
        return None if failed else GpuUse(index.value, busy.gpu / 100, size.used)

    def _visible(self) -> list[ctypes.c_void_p]:
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
        if wanted is not None:
            names = [name.strip() for name in wanted.split(",")]
        else:
            count = ctypes.c_uint(0)
            self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
            names = [str(index) for index in range(count.value)]
        found = []
        for name in names:
            handle = ctypes.c_void_p()
            if name.isdigit():
                failed = self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
            else:
                failed = self._nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
            if failed:
                break  # as in CUDA: what is behind an unknown name is not visible
            found.append(handle)
        return found


class GpuMonitor:
    """Reads the GPUs once a second, in a thread of its own: a driver in trouble answers after seconds, or never.

    Attributes:
        latest: The latest reading; empty without GPUs.
    """

    def __init__(self) -> None:
        self.latest: tuple[GpuUse, ...] = ()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="tamis-gpus", daemon=True).start()

    def close(self) -> None:
        """Stop reading; the thread ends by itself."""
        self._ended.set()

    def _run(self) -> None:
        reader = GpuReader()
        while reader and not self._ended.is_set():
            self.latest = reader.read()
            self._ended.wait(PERIOD_S)


class OccasionalGpuReader:
    """Reads the GPUs of a worker, at most once a second.

    Args:
        has_gpus: Whether the worker has GPUs.
    """

    def __init__(self, has_gpus: bool) -> None:
        self._has_gpus = has_gpus
        self._reader: GpuReader | None = None
        self._next_s = 0.0

    def read(self) -> tuple[GpuUse, ...]:
        """The GPUs now; nothing if they were read a moment ago."""
        if not self._has_gpus or time.monotonic() < self._next_s:
            return ()
        self._reader = self._reader or GpuReader()
        self._next_s = time.monotonic() + PERIOD_S
        return self._reader.read()
