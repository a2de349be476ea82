"""The folder that a trained model is written to: as a whole or not at all, and never over something else."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tamis.errors import PlanError, StorageError
from tamis.models.text_classifier import CONFIG

__all__ = ["check_target", "model_folder"]


def check_target(output: str, form: str) -> None:
    """Refuse a folder that holds anything but a model of a form.

    Args:
        output: The folder; it may be missing.
        form: What ``format`` is in the configuration of such a model.
    """
    path = Path(output)
    if path.is_dir() and not any(path.iterdir()):
        return
    if not path.exists():
        return
    try:
        held = json.loads((path / CONFIG).read_text(encoding="utf-8")).get("format")
    except (OSError, ValueError, AttributeError):
        held = None
    if held != form:
        raise PlanError(f"{output} is there and does not hold a {form}: it is not overwritten. Choose another folder")


@contextlib.contextmanager
def model_folder(output: str, form: str) -> Iterator[Path]:
    """A temporary folder beside ``output``, which takes its place at the end unless an error is raised."""
    check_target(output, form)
    target = Path(output)
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        if target.exists():
            shutil.rmtree(target)
        os.replace(partial, target)
    except PermissionError as error:
        raise StorageError(f"the model cannot be written to {output}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
