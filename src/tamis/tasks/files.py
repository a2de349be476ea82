"""A group of files, or of pieces of files, that are worked on together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tamis.tasks.base import Task, digest


@dataclass(frozen=True)
class FileSlice:
    """A file, or one range of bytes of it.

    Args:
        path: Where it is: a local path or any fsspec address.
        start: First byte of the range.
        stop: One past the last byte; ``None`` means the whole rest of the file.
        size: Size of the whole file in bytes, -1 when unknown.
        version: What changes when the file changes: modification time or etag; empty when unknown.
    """

    path: str
    start: int = 0
    stop: int | None = None
    size: int = -1
    version: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the slice is the whole file."""
        return self.start == 0 and (self.stop is None or self.stop == self.size)

    @property
    def nbytes(self) -> int:
        """How many bytes of the file the slice covers (0 when unknown)."""
        stop = self.size if self.stop is None else self.stop
        return max(0, stop - self.start)


@dataclass
class FileGroup(Task[list[Any]]):
    """Files that one stage works on together: what partitioning makes and writers return.

    ``data`` is the list of paths; ``slices`` says which part of each file is meant (the whole file when not given).

    >>> group = FileGroup(["a.jsonl", "b.jsonl"])
    >>> group.num_items, group.slices[0]
    (2, FileSlice(path='a.jsonl', start=0, stop=None, size=-1, version=''))
    """

    slices: Sequence[FileSlice] = ()
    reader_config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.slices:
            self.slices = tuple(FileSlice(str(path)) for path in self.data)

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    @property
    def num_items(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return 200 * len(self.slices)

    @property
    def weight(self) -> int:
        return sum(s.nbytes for s in self.slices)

    def select(self, rows: Sequence[int]) -> Self:
        """The same task with some of its files, by their numbers.

        >>> FileGroup(["a", "b"]).select([1]).slices
        (FileSlice(path='b', start=0, stop=None, size=-1, version=''),)
        """
        chosen = copy.copy(self)
        chosen.data = [self.data[int(row)] for row in rows]
        chosen.slices = tuple(self.slices[int(row)] for row in rows)
        return chosen

    def validate(self) -> bool:
        return bool(self.data)

    def get_deterministic_id(self) -> str:
        return digest(*((s.path, s.start, s.stop, s.size, s.version) for s in self.slices))


FileGroupTask = FileGroup
