"""Cut the input into tasks: small files together, large ones into ranges of bytes."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import PlanError, redacted
from tamis.sizes import byte_size
from tamis.stages.base import SourceStage
from tamis.stages.io.arguments import path_list
from tamis.stages.io.folder_digest import folder_digest
from tamis.stages.io.listing import Listing
from tamis.stages.io.paths import absolute, base_name, compression_of, is_local, parent, protocol, with_compressions
from tamis.stages.resources import Resources
from tamis.tasks import EmptyTask, FileGroup, FileSlice

__all__ = ["DEFAULT_BLOCK_BYTES", "FilePartitioningStage"]

DEFAULT_BLOCK_BYTES = 32 * 2**20
"""How much input makes a task by default."""

_LEAST_WEIGHT = 4096
"""The least weight of a file, in bytes: opening even an empty one takes time."""


@dataclass
class FilePartitioningStage(SourceStage[EmptyTask, FileGroup]):
    """List files and cut them into groups of about the same size, each of which becomes a task.

    Files are listed directory by directory, sorted by name. In a directory, names that start with ``.`` or ``_`` are
    left out, and so are other endings; the run says how many. A pattern means what it says: ``*`` and ``**`` match all
    names but those that start with ``.``. A file that is named is always taken.

    Args:
        file_paths: A file, a directory (with all below it), a pattern such as ``"data/**/*.jsonl"``, or any fsspec
            address; or a list of those.
        files_per_partition: Whole files per task, instead of ``blocksize``.
        blocksize: Bytes per task, as a number or as ``"64MiB"``; 32 MiB by default.
        file_extensions: Endings to look for in directories, also followed by ``.gz``, ``.zst``, ``.bz2`` or ``.xz``;
            every file when not given.
        storage_options: For the fsspec file system.
        limit: The largest number of tasks.
        splittable: Whether the format allows a large, uncompressed file to be cut into ranges of bytes.

    >>> import fsspec
    >>> fs = fsspec.filesystem("memory")
    >>> for name in "abc": fs.pipe_file(f"/parts/{name}.jsonl", b'{"text": "x"}')
    >>> stage = FilePartitioningStage("memory://parts", files_per_partition=2)
    >>> [group.data for group in stage.splits("")]
    [['memory://parts/a.jsonl', 'memory://parts/b.jsonl'], ['memory://parts/c.jsonl']]
    """

    file_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    file_extensions: list[str] | None = None
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    limit: int | None = None
    splittable: bool = False

    resources = Resources(cpus=0.5)
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.file_paths = path_list(type(self).__name__, "file_paths", self.file_paths)
        self._left_out: Counter[str] = Counter()
        self._groups: Sequence[Sequence[str]] = ()
        if self.files_per_partition is not None and self.blocksize is not None:
            raise PlanError(
                f"files_per_partition={self.files_per_partition} and blocksize={self.blocksize!r}: set only one of them"
            )
        if self.files_per_partition is not None and self.files_per_partition < 1:
            raise PlanError(f"files_per_partition={self.files_per_partition}: must be at least 1")
        if self.limit is not None and self.limit < 1:
            raise PlanError(f"limit={self.limit}: must be at least 1, or None for no limit")
        if not self.file_paths:
            raise PlanError("file_paths is empty: name a file, a directory or a pattern")
        self.block_bytes = byte_size(self.blocksize) if self.blocksize is not None else DEFAULT_BLOCK_BYTES

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "file_paths": self._addresses()}

    def check_input(self) -> None:
        next(self.files())

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        """Make the tasks, one at a time, while the listing goes on."""
        listing = self._listing()
        known, files = self._known(listing.files())
        groups = self._by_count(files) if self.files_per_partition else self._by_size(files)
        yield from self.noting_input(map(_task, itertools.islice(itertools.chain(known, groups), self.limit)))
        self._left_out = listing.left_out

    def keep_groups(self, groups: Sequence[Sequence[str]]) -> None:
        self._groups = groups

    def _known(self, files: Iterator[FileSlice]) -> tuple[list[list[FileSlice]], Iterator[FileSlice]]:
        """Groups of an earlier start of the run whose files are all there, and the files that are in none of them."""
        if not self._groups:
            return [], files
        present = {redacted(file.path) if "://" in file.path else file.path: file for file in files}
        known = []
        for paths in self._groups:
            group = [present[path] for path in paths if path in present]
            if len(group) == len(paths) and not any(self._is_cut(file) for file in group):
                known.append([present.pop(path) for path in paths])
        return known, iter(present.values())

    def listing_id(self) -> str:
        addresses = self._addresses()
        if not all(is_local(path) and os.path.exists(path) for path in addresses):  # a pattern, for instance
            return ""
        found = folder_digest(addresses)
        return "" if found is None else found.text

    def files(self) -> Iterator[FileSlice]:
        """The files themselves, in order."""
        return self._listing().files()

    def notes(self) -> list[str]:
        """What was left out of the directories that were listed, once the listing is complete."""
        if not self._left_out:
            return []
        reasons = ", ".join(f"{count} {reason}" for reason, count in self._left_out.most_common(5))
        more = ", ..." if len(self._left_out) > 5 else ""
        return [f"left out of the input directories: {reasons}{more}. A pattern or file_extensions=[...] reads them"]

    def _listing(self) -> Listing:
        return Listing(self._addresses(), with_compressions(self.file_extensions or ()), self.storage_options)

    def _addresses(self) -> tuple[str, ...]:
        """The paths in full."""
        given = [self.file_paths] if isinstance(self.file_paths, str | os.PathLike) else self.file_paths
        return tuple(absolute(path) for path in given)

    def _is_cut(self, file: FileSlice) -> bool:
        """Whether a file is cut into ranges, each of which is a task."""
        large = self.files_per_partition is None and file.size > self.block_bytes
        return large and self.splittable and self._can_be_cut(file)

    def _by_count(self, files: Iterator[FileSlice]) -> Iterator[list[FileSlice]]:
        while group := list(itertools.islice(files, self.files_per_partition)):
            yield group

    def _by_size(self, files: Iterable[FileSlice]) -> Iterator[list[FileSlice]]:
        group: list[FileSlice] = []
        held = 0
        for file in files:
            weight = self.block_bytes if file.size < 0 else max(file.size, _LEAST_WEIGHT)
            if group and held + weight > self.block_bytes:
                yield group
                group, held = [], 0
            if self._is_cut(file):
                yield from ([piece] for piece in _cut(file, self.block_bytes))
                continue
            group.append(file)
            held += weight
        if group:
            yield group

    def _can_be_cut(self, file: FileSlice) -> bool:
        if compression_of(file.path) is not None:
            return False
        # A web server may ignore a request for a range and send everything.
        return protocol(file.path) not in ("http", "https")


def _task(slices: list[FileSlice]) -> FileGroup:
    paths = [s.path for s in slices]
    return FileGroup(paths, dataset_name=base_name(parent(paths[0])), slices=tuple(slices))


def _cut(file: FileSlice, block_bytes: int) -> Iterator[FileSlice]:
    """Cut a file into equal ranges, none larger than a block."""
    pieces = -(-file.size // block_bytes)
    edges = [i * file.size // pieces for i in range(pieces + 1)]
    for start, stop in itertools.pairwise(edges):
        yield FileSlice(file.path, start, stop, file.size, file.version)
