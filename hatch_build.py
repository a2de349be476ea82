"""Compiles the native kernels when tamis is built or installed, so that nobody has to wait for it later."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled kernels into the wheel. Without them tamis compiles them when it needs them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say for which platform that was."""
        sys.path.insert(0, str(Path(self.root) / "src"))
        try:
            from tamis.kernels.compiler import compile_for_package

            files = compile_for_package()
        except Exception as error:  # noqa: BLE001 - whatever it is, tamis can do without
            self.app.display_warning(f"the kernels are not compiled now but when they are needed: {error!r}")
            return
        build_data["artifacts"] += [file.relative_to(self.root).as_posix() for file in files]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
