"""How a finished file becomes output: it is forced to disk and gets its final name, or it is removed."""

from __future__ import annotations

import os
from dataclasses import replace

from tamis.stages.emit import Publish
from tamis.stages.io.paths import filesystem, is_local, remove_file, writing
from tamis.tasks.storage import write_whole


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
    write_whole(finished.final, fs.cat_file(waiting))
    fs.rm_file(waiting)


def remove_unpublished(finished: Publish) -> None:
    """Remove a finished file that will not be published; one that already has its final name stays."""
    if finished.temporary != finished.final:
        remove_file(finished.temporary, finished.storage_options)
