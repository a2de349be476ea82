"""The index of fuzzy deduplication: signatures of earlier documents, so that their texts need not be read again.

It is a folder with two files for each batch of documents: ``buckets`` and ``documents``, in the format of files between
stages (:mod:`tamis.stages.exchange.files`), and ``index.json`` with the settings that all of them were made with. The
names of the files start with the number of the run that added them, and end with a digest of the batch: its rows' names
and signatures. So a run that is repeated adds nothing twice.

A document has the number of its file and of its row. A run numbers the files of the index when it first sees them, and
keeps the numbers (:func:`numbered_files`), because other runs may add files in the meantime.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tamis.errors import DataError, PlanError, redacted
from tamis.kernels.hashing import hash_text_64
from tamis.stages.deduplication.marks import KeptRows, RemoveMarked
from tamis.stages.emit import Drop, Publish
from tamis.stages.exchange.files import read_indexes
from tamis.stages.io.paths import base_name, is_local, join
from tamis.stages.scratch import exists, list_files, place_file, read_file, write_file
from tamis.stages.spill import SUFFIX, spilled_files
from tamis.tasks import FileGroup, TableTask
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order

__all__ = [
    "NEW_FILES",
    "IndexedRows",
    "RemoveAndIndex",
    "batch_digest",
    "check_index",
    "index_files",
    "numbered_files",
    "run_of",
]

NEW_FILES = 2**30
"""The number of the first file of the input. Smaller numbers are files of an index."""

SETTINGS = "index.json"

_AGAIN = "Make the index again, from all documents, in another folder"


def check_index(index: str, settings: Mapping[str, Any], *, must_exist: bool = False) -> None:
    """Raise ``PlanError`` if an index was made with other settings than these, or is not there but must be."""
    path = join(index, SETTINGS)
    if not index:
        return
    if is_local(index) and os.path.exists(index) and not os.path.isdir(index):
        raise PlanError(f"index={index!r}: this is a file. Name a folder")
    if not exists(path):
        if index_files(index, "buckets"):
            raise PlanError(f"{path} is missing, so the settings of the index are not known. {_AGAIN}")
        if must_exist:
            raise PlanError(
                f"there is no index in {redacted(index)}, and update_index=False makes none: nothing would be removed. "
                "Make it from the earlier documents first (update_index=True), or name another folder"
            )
        return
    try:
        found = json.loads(read_file(path).to_pybytes())
    except ValueError as error:
        raise PlanError(f"{path} is damaged: {error}. {_AGAIN}") from None
    if not isinstance(found, dict):
        raise PlanError(f"{path} is damaged: it holds no settings. {_AGAIN}")
    different = [
        f"{name}={settings[name]!r} (index: {found.get(name)!r})"
        for name in settings
        if settings[name] != found.get(name)
    ]
    if different:
        raise PlanError(
            f"the index in {index} was made with other settings: {', '.join(different)}. "
            "Use the same settings, or another folder"
        )


def index_files(index: str, kind: str) -> list[tuple[str, int]]:
    """The files of an index, ``"buckets"`` or ``"documents"``, with their sizes, the earliest first.

    Only batches with both files count: a run that was killed may have left one.
    """
    if not index:
        return []
    buckets, documents = (dict(_named(join(index, folder))) for folder in ("buckets", "documents"))
    wanted = buckets if kind == "buckets" else documents
    return [wanted[name] for name in sorted(buckets.keys() & documents.keys())]


def numbered_files(index: str, directory: str, *, update: bool = False) -> list[tuple[str, int]]:
    """The names and the sizes of the files of an index; the place of a file in the list is its number in this run.

    Args:
        index: The folder of the index, or nothing.
        directory: The folder of the deduplication in the scratch location, where the list is kept.
        update: Whether to look for files that were added since, and number them after the others.
    """
    if not index:
        return []
    path = join(directory, "index.json")
    known = dict(json.loads(read_file(path).to_pybytes())) if exists(path) else {}
    if update:
        found = {base_name(file): size for file, size in index_files(index, "buckets")}
        if missing := sorted(known.keys() - found.keys()):
            raise DataError(
                f"{len(missing):,} files of the index are gone since this run began, {missing[0]} among them",
                path=index,
                hint="Start the run over: --fresh, run(fresh=True).",
            )
        known |= found
        place_file(path, json.dumps(list(known.items())).encode())
    return list(known.items())


def run_of(name: str) -> int:
    """The number of the run that added a file to an index.

    >>> run_of("000012.000003.3b106b32bbed5f88.task")
    12
    """
    return int(name.partition(".")[0])


def _named(folder: str) -> Iterator[tuple[str, tuple[str, int]]]:
    for path, size in list_files(folder):
        if path.endswith(SUFFIX):
            yield base_name(path), (path, size)


def batch_digest(task: TableTask, sketches: pa.Array) -> int:
    """A number of 63 bits for the rows of a batch: their names and what is in them.

    Args:
        task: The batch.
        sketches: The sketches of its rows.
    """
    names = task.names
    rows = (names.text(0), names.text(len(names) - 1)) if names is not None and len(names) else task.order
    return int(digest(rows, hashlib.blake2b(hash_text_64(sketches).tobytes()).hexdigest()), 16) >> 1


@dataclass
class IndexedRows(KeptRows):
    """As :class:`KeptRows`, and the names under which the signatures of each file are added to the index.

    Args:
        folder: The folder of the deduplication.
        first_file: The number of the first of the files.
        index: The folder of the index.
        settings: The settings that the signatures were made with.
    """

    index: str = ""
    settings: Sequence[tuple[str, Any]] = ()

    def check_input(self) -> None:
        check_index(self.index, dict(self.settings))

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        check_index(self.index, dict(self.settings))
        place_file(join(self.index, SETTINGS), json.dumps(dict(self.settings), indent=2).encode() + b"\n")
        names = [base_name(path) for path, _ in index_files(self.index, "documents")]
        known = {name.rpartition(".")[0].rpartition(".")[2]: name for name in names}
        run = 1 + max(map(run_of, names), default=0)
        files = spilled_files(join(scratch, self.folder, "documents"))
        counts = [cells.count for cells in read_indexes([(path, size) for path, size, _ in files])]
        tasks = super().splits(scratch)
        for task, (path, _, order), count in zip(tasks, files, counts, strict=True):
            batch = f"{count:016x}"
            name = known.get(batch) or f"{run:06d}.{format_order(order)}.{batch}{SUFFIX}"
            task.reader_config |= {"index_name": name, "name": base_name(path)}
            yield task


@dataclass
class RemoveAndIndex(RemoveMarked):
    """As :class:`RemoveMarked`, and add the signatures of all documents of the file to the index.

    Those of removed documents, too: what is similar to them only is then removed later, as in one run over everything.

    Args:
        folder: The folder of the deduplication.
        reason: Why a row is dropped.
        index: The folder of the index.
    """

    index: str = ""

    def process(self, task: FileGroup) -> Iterator[Drop | Publish | TableTask]:
        for kind in ("buckets", "documents"):
            content = read_file(join(self._directory, kind, task.reader_config["name"]))
            final = join(self.index, kind, task.reader_config["index_name"])
            yield replace(write_file(final, 0, functools.partial(_copy, content)), beside=True)
        yield from super().process(task)


def _copy(content: pa.Buffer, sink: pa.NativeFile) -> None:
    sink.write(content)
