"""The two files that describe an output directory: how they are told apart from data.

A finished run writes ``RUN.json``, for programs, and ``README.md``, the data card, into every output directory. Both
carry a mark in their first bytes. Marked files are not input of readers, and runs replace them; any other file of these
names belongs to the user.
"""

from __future__ import annotations

import os
from typing import Any, Final

from tamis.stages.io.paths import base_name, filesystem, is_local, join, open_read, remove_file
from tamis.stages.io.retries import with_retries
from tamis.tasks.storage import write_whole

__all__ = ["CARD", "CARD_FILES", "CARD_MARK", "RUN_FILE", "RUN_MARK", "is_card_file", "remove_card", "write_card_file"]

RUN_FILE: Final = "RUN.json"
CARD: Final = "README.md"
CARD_FILES: Final = (RUN_FILE, CARD)

RUN_MARK: Final = "tamis_data_card"
"""The first key of ``RUN.json``."""

CARD_MARK: Final = "# Written by tamis, and replaced by its next run. Remove this line to keep your changes."
"""The first line of a data card, after the three dashes: a comment in YAML."""

_HEAD_BYTES: Final = 256
_MARKS: Final = {RUN_FILE: f'"{RUN_MARK}"'.encode(), CARD: CARD_MARK.encode()}


def is_card_file(path: str, storage_options: dict[str, Any] | None = None) -> bool:
    """Whether a file is a data card, or a ``RUN.json``, that tamis wrote. Files of other names are not opened."""
    mark = _MARKS.get(base_name(path))
    if mark is None:
        return False
    try:
        return with_retries(lambda: mark in _head(path, storage_options))
    except Exception:  # noqa: BLE001 - a file that cannot be read is for the reader to report
        return False


def _head(path: str, storage_options: dict[str, Any] | None) -> bytes:
    with open_read(path, storage_options) as file:
        return file.read(_HEAD_BYTES)


def remove_card(directory: str, storage_options: dict[str, Any]) -> None:
    """Remove the card of an earlier run from an output directory."""
    for name in CARD_FILES:
        path = join(directory, name)
        if is_card_file(path, storage_options):
            remove_file(path, storage_options)


def write_card_file(path: str, content: str, storage_options: dict[str, Any]) -> bool:
    """Write one of the two files, whole or not at all. A file that tamis did not write stays; returns ``False``."""
    data = content.encode("utf-8", "backslashreplace")
    if is_local(path):
        if os.path.lexists(path) and not is_card_file(path):
            return False
        write_whole(path, data)
        return True
    fs, inner = filesystem(path, storage_options)
    fs.invalidate_cache()
    if with_retries(lambda: fs.exists(inner)) and not is_card_file(path, storage_options):
        return False
    with_retries(lambda: fs.pipe_file(inner, data))
    return True
