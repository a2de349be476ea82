"""The cores, memory and GPUs of a machine, from system files and libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tamis.core import host
from tamis.core.host import Gpu, gpus, memory, this_machine, usable_cores

GIB = 2**30


def make_root(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 100 kB\nMemAvailable: {40 * GIB // 1024} kB\n"


def test_without_a_container_the_whole_machine_counts(tmp_path: Path) -> None:
    root = make_root(tmp_path, {"proc/meminfo": MEMINFO})
    assert memory(root) == host.Memory(64 * GIB, 40 * GIB)
    assert usable_cores(root) == usable_cores() > 0


def test_a_container_limits_cores_and_memory(tmp_path: Path) -> None:
    root = make_root(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
        },
    )
    assert usable_cores(root) == 0.5
    assert memory(root) == host.Memory(8 * GIB, 5 * GIB)  # cached files make room when it is needed


def test_the_tightest_limit_of_all_parent_groups_counts(tmp_path: Path) -> None:
    root = make_root(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/job/memory.max": "max\n",
            "sys/fs/cgroup/user/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/user/memory.current": "0\n",
            "sys/fs/cgroup/user/job/cpu.max": "max 100000\n",
        },
    )
    assert memory(root).total_bytes == 2 * GIB
    assert usable_cores(root) == usable_cores()


def test_control_groups_of_the_first_version(tmp_path: Path) -> None:
    root = make_root(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert usable_cores(root) == 0.25
    assert memory(root) == host.Memory(4 * GIB, 3 * GIB)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_the_affinity_mask_counts() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() <= 1
    finally:
        os.sched_setaffinity(0, before)


CARDS = [Gpu(0, "a", 80.0, "1", "GPU-aa11"), Gpu(1, "b", 80.0, "1", "GPU-bb22")]


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("0,1", ["a", "b"]),
        ("1,0", ["b", "a"]),
        ("1", ["b"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["a"]),
        ("GPU-bb", ["b"]),
        ("none", []),
        ("MIG-x", ["slice"]),
    ],
)
def test_cuda_visible_devices(wanted: str, seen: list[str]) -> None:
    found = list(host._visible(CARDS, wanted, lambda uuid: Gpu(0, "slice", 10.0, "1", uuid)))
    assert [gpu.name for gpu in found] == seen
    assert [gpu.index for gpu in found] == list(range(len(seen)))


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA driver on this machine")
def test_gpus_are_those_that_nvidia_smi_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,uuid", "--format=csv,noheader,nounits"]
    listed = [line.split(", ") for line in subprocess.check_output(query, text=True).splitlines()]
    assert [[g.name, g.driver, g.uuid] for g in gpus()] == [[name, driver, uuid] for name, _, driver, uuid in listed]
    assert [g.memory_gb for g in gpus()] == [round(float(mib) / 1024, 1) for _, mib, _, _ in listed]


def test_this_machine() -> None:
    found = this_machine()
    assert 0 < found.cores <= (os.cpu_count() or 1)
    assert 0 < found.memory.available_bytes <= found.memory.total_bytes
