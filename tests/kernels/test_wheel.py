"""The wheel carries compiled kernels, and a package index takes it. Needs the tools of ``make wheel``."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tamis.kernels import cache, native

ROOT = Path(__file__).parents[2]

for tool in ("hatchling", "auditwheel", "twine", "check_wheel_contents"):
    pytest.importorskip(tool)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.machine() not in ("x86_64", "aarch64"),
    reason="manylinux is for Linux with glibc",
)
def test_the_wheel_is_one_that_an_index_takes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    python(project, "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    objects = {f"tamis/kernels/objects/{cache.packaged_file(name).name}" for name in native.NAMES}
    assert objects <= set(zipfile.ZipFile(wheel).namelist())
    shown = python(tmp_path, "auditwheel", "show", str(wheel))
    assert "is consistent with the\nfollowing platform tag" in shown
    assert "no external versioned symbols" in shown
    assert "PASSED" in python(tmp_path, "twine", "check", "--strict", str(wheel))
    python(project, "check_wheel_contents", str(wheel))


def python(where: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=where, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
