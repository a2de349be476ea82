"""How a finished file becomes output: it is forced to disk and gets its final name, or it is removed."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from tamis.stages.emit import Publish
from tamis.stages.io.paths import filesystem, is_local, writing

__all__ = ["publish", "remove_unpublished", "sync"]


def sync(finished: Publish) -> Publish:
    """Force the data of a finished file to disk, if that is needed; returns the file without the need."""
    if not finished.needs_sync:
        return finished
    file = os.open(finished.temporary, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    return replace(finished, needs_sync=False)


def publish(finished: Publish) -> None:
    """Give a finished file its final name. Doing it again changes nothing.

    >>> import fsspec
    >>> _ = fsspec.filesystem("memory").pipe_file("/pub/.a.tmp", b"x")
    >>> publish(Publish("memory://pub/.a.tmp", "memory://pub/a", rows=1, nbytes=1))
    >>> fsspec.filesystem("memory").cat_file("/pub/a")
    b'x'
    """
    if finished.temporary == finished.final:
        return
    if is_local(finished.final) and not is_local(finished.temporary):
        _fetch(finished)
        return
    if is_local(finished.final):
        if os.path.exists(finished.temporary) or not os.path.exists(finished.final):
            os.replace(finished.temporary, finished.final)
        return
    with writing(finished.final):
        fs, temporary = filesystem(finished.temporary, dict(finished.storage_options))
        _, final = filesystem(finished.final, dict(finished.storage_options))
        if fs.exists(temporary) or not fs.exists(final):
            fs.mv(temporary, final)


def _fetch(finished: Publish) -> None:
    """Publish a file that waits at another place than the one where it belongs."""
    fs, waiting = filesystem(finished.temporary)
    if not fs.exists(waiting) and os.path.exists(finished.final):
        return
    os.makedirs(os.path.dirname(finished.final), exist_ok=True)
    arriving = f"{finished.final}.arriving"
    Path(arriving).write_bytes(fs.cat_file(waiting))
    os.replace(arriving, finished.final)
    fs.rm_file(waiting)


def remove_unpublished(finished: Publish) -> None:
    """Remove a finished file that will not be published; one that already has its final name stays."""
    if finished.temporary == finished.final:
        return
    with contextlib.suppress(FileNotFoundError):
        if is_local(finished.temporary):
            os.unlink(finished.temporary)
        else:
            fs, temporary = filesystem(finished.temporary, dict(finished.storage_options))
            fs.rm_file(temporary)
