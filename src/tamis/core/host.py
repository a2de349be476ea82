"""What this machine has: cores, memory, GPUs.

Only the standard library is used, and nothing is kept between calls: a container's limits may change while it runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["Gpu", "Machine", "Memory", "gpus", "memory", "this_machine", "usable_cores"]

_ROOT = Path("/")


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use.

    Args:
        index: Its place among the GPUs this process sees, from 0: CUDA's device number.
        name: Its name, from the driver.
        memory_gb: Memory of the card in GB of 2**30 bytes, as on the card's label.
        driver: The driver's version.
        uuid: Its permanent id.
    """

    index: int
    name: str
    memory_gb: float
    driver: str = ""
    uuid: str = ""


@dataclass(frozen=True)
class Memory:
    """Main memory in bytes, of the machine or its container.

    Args:
        total_bytes: The size of the memory, or the container's limit.
        available_bytes: Memory that can be used without swapping.
    """

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True)
class Machine:
    """The machine as this process sees it.

    Args:
        cores: Cores this process may use; a fraction if a container has a share of one.
        memory: Main memory.
        gpus: The GPUs this process may use.
        python: Version of Python.
        platform: Operating system and processor, in words.
    """

    cores: float
    memory: Memory
    gpus: tuple[Gpu, ...]
    python: str
    platform: str


def this_machine() -> Machine:
    """The machine this process runs on.

    >>> machine = this_machine()
    >>> machine.cores > 0, machine.memory.total_bytes > 0
    (True, True)
    """
    return Machine(usable_cores(), memory(), gpus(), platform.python_version(), platform.platform(aliased=True))


def usable_cores(root: Path = _ROOT) -> float:
    """How many cores this process may use: its affinity mask, and the quota of its container if that is less.

    Args:
        root: Where ``/proc`` and ``/sys`` are.

    >>> usable_cores() <= (os.cpu_count() or 1)
    True
    """
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    else:
        cores = float(os.cpu_count() or 1)
    quotas = [quota for quota in _cpu_quotas(root) if quota > 0]
    return min([cores, *quotas])


def memory(root: Path = _ROOT) -> Memory:
    """Total and available memory: of the machine, or of the container if that is less.

    Args:
        root: Where ``/proc`` and ``/sys`` are.

    >>> memory().available_bytes <= memory().total_bytes
    True
    """
    if (root / "proc/meminfo").exists():
        total, available = _linux_memory(root)
    elif sys.platform == "darwin":
        total, available = _mac_memory()
    elif sys.platform == "win32":
        total, available = _windows_memory()
    else:
        total = available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, used in _memory_limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(total, min(available, total))


def gpus() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs this process may use, in CUDA's order; none without a driver.

    ``CUDA_VISIBLE_DEVICES`` is obeyed, with numbers counted in the order of the bus.

    >>> isinstance(gpus(), tuple)
    True
    """
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return ()
    if nvml.nvmlInit_v2() != 0:
        return ()
    try:
        present = _nvml_gpus(nvml)
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
        if wanted is None:
            return tuple(present)
        return tuple(_visible(present, wanted, lambda uuid: _nvml_gpu_by_uuid(nvml, uuid)))
    finally:
        nvml.nvmlShutdown()


def _visible(present: list[Gpu], wanted: str, find: Callable[[str], Gpu | None]) -> Iterator[Gpu]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names, up to the first unknown name, as in CUDA."""
    for place, name in enumerate(entry.strip() for entry in wanted.split(",")):
        if name.isdigit():
            gpu = present[int(name)] if int(name) < len(present) else None
        elif name.startswith("GPU-"):
            gpu = next((g for g in present if g.uuid.startswith(name)), None)
        else:
            gpu = find(name) if name.startswith("MIG-") else None
        if gpu is None:
            return
        yield Gpu(place, gpu.name, gpu.memory_gb, gpu.driver, gpu.uuid)


# --- Linux: control groups ------------------------------------------------------------------------------------------


def _read(path: Path) -> str:
    """A small file's text; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _cgroup_directories(root: Path, controller: str) -> Iterator[Path]:
    """The directories that limit this process, from its own group up to the top.

    Inside a container the group's path often does not exist under that name; then the top of the tree is the group.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controller if controllers else "")
        own = PurePosixPath(path.lstrip("/"))
        for directory in [own, *own.parents]:
            yield base / directory


def _cpu_quotas(root: Path) -> Iterator[float]:
    for directory in _cgroup_directories(root, "cpu"):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of each group this process is in. Cached files count as free."""
    for directory in _cgroup_directories(root, "memory"):
        for limit_file, use_file, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _read(directory / limit_file), _read(directory / use_file)
            if limit.isdigit():
                stat = dict(line.split(" ", 1) for line in _read(directory / "memory.stat").splitlines() if " " in line)
                yield int(limit), max(0, int(used or 0) - int(stat.get(cache, 0)))


def _linux_memory(root: Path) -> tuple[int, int]:
    fields = {}
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        number = value.split()[0] if value.split() else ""
        if number.isdigit():
            fields[name] = int(number) * 1024
    total = fields.get("MemTotal", 0)
    return total, fields.get("MemAvailable", fields.get("MemFree", total))


# --- macOS and Windows ----------------------------------------------------------------------------------------------


def _mac_memory() -> tuple[int, int]:
    libc = ctypes.CDLL(None)

    def sysctl(name: bytes) -> int:
        value = ctypes.c_uint64(0)
        size = ctypes.c_size_t(ctypes.sizeof(value))
        failed = libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
        return 0 if failed else value.value

    total = sysctl(b"hw.memsize") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free_percent = sysctl(b"kern.memorystatus_level")
    return total, total * min(free_percent, 100) // 100 if free_percent else total


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        *((f"unused_{i}", ctypes.c_uint64) for i in range(5)),
    )


def _windows_memory() -> tuple[int, int]:
    status = _MemoryStatus()
    status.length = ctypes.sizeof(status)
    kernel32: Any = getattr(ctypes, "windll").kernel32  # noqa: B009 - the attribute exists on Windows only
    kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return status.total, status.available


# --- NVIDIA's management library ------------------------------------------------------------------------------------


class _NvmlMemory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


def _nvml_text(function: Any, *arguments: Any) -> str:
    buffer = ctypes.create_string_buffer(96)
    failed = function(*arguments, buffer, ctypes.c_uint(len(buffer)))
    return "" if failed else buffer.value.decode("utf-8", "replace")


def _nvml_gpus(nvml: Any) -> list[Gpu]:
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
            found.append(_nvml_gpu(nvml, handle, index))
    return found


def _nvml_gpu_by_uuid(nvml: Any, uuid: str) -> Gpu | None:
    handle = ctypes.c_void_p()
    failed = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
    return None if failed else _nvml_gpu(nvml, handle, 0)


def _nvml_gpu(nvml: Any, handle: ctypes.c_void_p, index: int) -> Gpu:
    size = _NvmlMemory()
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(size))
    return Gpu(
        index,
        _nvml_text(nvml.nvmlDeviceGetName, handle),
        round(size.total / 2**30, 1),
        _nvml_text(nvml.nvmlSystemGetDriverVersion),
        _nvml_text(nvml.nvmlDeviceGetUUID, handle),
    )
