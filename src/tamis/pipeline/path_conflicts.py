"""Checks, before anything is written, that input, output and run directory do not overlap."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from typing import Any

from tamis.errors import PlanError, redacted
from tamis.plan import Plan
from tamis.stages.io.paths import absolute

_MAGIC = "*?["


def check_path_conflicts(plan: Plan, run_dir: str | os.PathLike[str] | None) -> None:
    """Refuse a pipeline that would read its own output or record, or remove its own input.

    Where it writes is only checked for local paths.
    """
    local = None if run_dir is None or "://" in os.fspath(run_dir) else run_dir
    if run_dir is not None and local is None:
        _refuse_address(plan, absolute(run_dir))
    for path, endings in _read(plan):
        if local is not None and os.path.isdir(path) and _is_within(local, path):
            raise PlanError(f"the run directory {local} is in {path}, which the pipeline reads. Choose another")
        for name, destination in _written(plan):
            reads_output = _would_read(path, endings, destination)
            loses_input = destination.mode == "overwrite" and _is_within(_fixed_part(path), destination.path)
            if reads_output or loses_input:
                trouble = "lose its input" if loses_input else "read its own output the next time"
                raise PlanError(
                    f"{name} writes to {destination.path}, and the pipeline reads {path}: it would {trouble}. "
                    "Write to another directory"
                )


def _refuse_address(plan: Plan, run_dir: str) -> None:
    """Refuse a run directory below an address that the pipeline reads."""
    for path, _ in _given(plan):
        if "://" in path and f"{run_dir}/".startswith(f"{path.rstrip('/')}/"):
            shown = redacted(run_dir), redacted(path)
            raise PlanError(f"the run directory {shown[0]} is in {shown[1]}, which the pipeline reads. Choose another")


def _read(plan: Plan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Local files, directories and patterns that are read, with the file name endings that count."""
    return ((path, endings) for path, endings in _given(plan) if "://" not in path)


def _given(plan: Plan) -> Iterator[tuple[str, tuple[str, ...]]]:
    for vertex in plan.vertices:
        given = getattr(vertex.stage, "file_paths", None)
        for path in [given] if isinstance(given, str | os.PathLike) else given or []:
            yield os.fspath(path), tuple(getattr(vertex.stage, "file_extensions", None) or ())


def _written(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Writers and where they write."""
    for vertex in plan.vertices:
        destination = getattr(vertex.stage, "destination", None)
        if destination is not None and "://" not in destination.path:
            yield vertex.name, destination


def _would_read(path: str, endings: tuple[str, ...], destination: Any) -> bool:
    """Whether a file that the writer makes would be read."""
    if endings and not any(destination.ending.startswith(ending) for ending in endings):
        return False
    if not any(c in path for c in _MAGIC):
        return os.path.isdir(path) and _is_within(destination.path, path)
    if "**" in path:
        return _is_within(destination.path, _fixed_part(path))
    pattern = os.path.abspath(path).split(os.sep)
    output = [*os.path.abspath(destination.path).split(os.sep), f"part-000000{destination.ending}"]
    return len(pattern) == len(output) and all(map(fnmatch.fnmatch, output, pattern))


def _fixed_part(path: str) -> str:
    """The part of a path before the first wildcard."""
    parts = path.split(os.sep)
    fixed = next((i for i, part in enumerate(parts) if any(c in part for c in _MAGIC)), len(parts))
    return os.sep.join(parts[:fixed]) or (os.sep if path.startswith(os.sep) else ".")


def _is_within(path: str | os.PathLike[str], folder: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(folder)
    return inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep)
