"""The manifest of a run: what was run, with which code and versions, where and when. ``manifest.json``."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import tamis
from tamis.errors import redacted
from tamis.plan import Plan
from tamis.plan.code import code_digest
from tamis.plan.describe import describe, named_files

__all__ = ["MANIFEST", "boot_id", "read_manifest", "start_of", "with_start"]

MANIFEST = "manifest.json"

_SECRET = ("storage_options", "destination")
"""Parameters that may hold passwords."""

_PACKAGES = ("pyarrow", "numpy", "ray", "torch", "transformers", "fsspec", "polars")


def boot_id() -> str:
    """Another one each time the machine starts; empty where that is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_manifest(run_dir: str) -> dict[str, Any]:
    """The manifest in a run directory; empty if there is none that can be read."""
    try:
        value = json.loads(Path(run_dir, MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def start_of(plan: Plan, executor: str, recipe: str, started: str, fingerprint: str) -> dict[str, Any]:
    """What the manifest says of one start of the driver.

    Args:
        plan: The plan.
        executor: The executor, in words.
        recipe: The pipeline as a recipe; empty if it cannot be written as one.
        started: When it started, as ISO 8601 in UTC.
        fingerprint: Equal for the same pipeline with the same parameters, code and addresses to read.
    """
    return {
        "started": started,
        "fingerprint": fingerprint,
        "command": [redacted(argument) for argument in sys.argv],
        "directory": os.getcwd(),
        "executor": executor,
        "host": socket.gethostname(),
        "boot": boot_id(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "tamis": tamis.__version__,
        "packages": _versions(),
        "recipe": redacted(_without_options(recipe)),
        "stages": [
            {
                "name": vertex.name,
                "class": f"{type(vertex.stage).__module__}:{type(vertex.stage).__qualname__}",
                "parameters": {
                    k: redacted(describe(v)) for k, v in vertex.stage.parameters().items() if k not in _SECRET
                },
                "code": code_digest(type(vertex.stage)),
                "files": [{"path": path, "size": size, "changed": at} for path, size, at in named_files(vertex.stage)],
            }
            for vertex in plan.vertices
            if not vertex.is_source
        ],
    }


def with_start(manifest: dict[str, Any], run_id: str, pipeline: str, start: dict[str, Any]) -> dict[str, Any]:
    """The manifest with one more start. The latest one is whole; of the earlier ones it keeps where and when."""
    earlier = [
        {k: s[k] for k in ("started", "fingerprint", "host", "boot", "tamis") if k in s} for s in _starts(manifest)
    ]
    return {"run": run_id, "pipeline": pipeline, "starts": [*earlier, start]}


def _starts(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [s for s in manifest.get("starts", []) if isinstance(s, dict)]


def _without_options(recipe: str) -> str:
    """A recipe without the options of file systems, which may hold passwords."""
    if "storage_options" not in recipe:
        return recipe
    import yaml

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items() if key not in _SECRET}
        return [without(item) for item in value] if isinstance(value, list) else value

    return yaml.safe_dump(without(yaml.safe_load(recipe)), sort_keys=False, allow_unicode=True)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
