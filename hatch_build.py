"""Compiles the native kernels when tamis is built or installed, so that no run has to wait for the compiler."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def platform_tag() -> str | None:
    """The platform that compiled kernels are for, as package indexes name it; ``None`` if they have no name for it.

    Kernels need nothing of the system but ``memcpy`` and the like, so any release of it will do. The oldest one is
    named that llvmlite, which loads them, has packages for.
    """
    machine = platform.machine()
    if sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc" and machine in ("x86_64", "aarch64"):
        return f"manylinux_2_17_{machine}"
    if sys.platform == "darwin":
        return f"macosx_11_0_{machine}"
    return "win_amd64" if sys.platform == "win32" and machine == "AMD64" else None


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled kernels into the wheel. Without them, tamis compiles them when it needs them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the platform that the wheel is for; a wheel without kernels is for any."""
        tag = platform_tag()
        if tag is None:
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        try:
            from tamis.kernels.compiler import compile_for_package

            files = compile_for_package()
        except Exception as error:  # noqa: BLE001 - whatever it is, tamis can do without
            self.app.display_warning(f"the kernels are not compiled now but when they are needed: {error!r}")
            return
        build_data["artifacts"] += [file.relative_to(self.root).as_posix() for file in files]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
