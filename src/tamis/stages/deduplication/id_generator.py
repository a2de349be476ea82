"""Ids of documents: a number that follows from the file and the place of a row in it.

Every file of the input gets a range of :data:`IDS_PER_FILE` numbers, in the order of the listing; the id of a row is
the first number of its file plus its position there. So ids are equal on every executor, for any number of workers and
any size of blocks. The ranges are kept in a JSON file that NeMo Curator can read, too. There, an actor on a Ray cluster
hands out ids; the functions here have the names of its functions and need no cluster.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final, Self

from tamis.errors import DataError, PlanError, redacted
from tamis.stages.io.paths import is_local, make_directory, open_read, open_write, parent
from tamis.tasks.storage import write_whole

__all__ = [
    "CURATOR_DEDUP_ID_STR",
    "CURATOR_ID_GENERATOR_ACTOR_NAME",
    "IDS_PER_FILE",
    "IdGenerator",
    "IdGeneratorBase",
    "create_id_generator_actor",
    "get_id_generator_actor",
    "kill_id_generator_actor",
    "write_id_generator_to_disk",
]

CURATOR_DEDUP_ID_STR: Final = "_curator_dedup_id"
"""The column that holds the ids."""

CURATOR_ID_GENERATOR_ACTOR_NAME: Final = "curator_deduplication_id_generator"
"""The name of the actor in NeMo Curator; here nothing has it."""

IDS_PER_FILE: Final = 2**40
"""How many ids a file has. The positions of its rows, bytes or row numbers, must be smaller."""

_END: Final = 2**63

Options = dict[str, Any] | None


class IdGenerator:
    """The ranges of ids that were given to files, or to batches of files.

    Args:
        start_id: The first id that is free.
        batch_registry: The first and the last id of each batch, by the key of its files.
        sizes: The size in bytes of the file behind a key, where it is known.

    >>> ids = IdGenerator()
    >>> ids.register_batch(["a.jsonl", "b.jsonl"], 100), ids.register_batch("c.jsonl", 5)
    (0, 100)
    >>> ids.get_batch_range("c.jsonl")
    (100, 104)
    """

    def __init__(
        self,
        start_id: int = 0,
        batch_registry: dict[str, tuple[int, int]] | None = None,
        sizes: dict[str, int] | None = None,
    ) -> None:
        self.next_id = start_id
        self.batch_registry = batch_registry or {}
        self.sizes = sizes or {}

    def register_batch(self, files: str | Sequence[str], count: int) -> int:
        """Give a batch of files as many ids; returns the first. Files that are known keep the ids they have."""
        key = self.hash_files(files)
        if key in self.batch_registry:
            return self.batch_registry[key][0]
        if self.next_id + count > _END:
            raise PlanError(
                f"there are no more ids: each file takes {IDS_PER_FILE:,} of the {_END:,} that 64 bits allow. Merge "
                "files, or divide the input"
            )
        first = self.next_id
        self.next_id += count
        self.batch_registry[key] = (first, self.next_id - 1)
        return first

    def register_file(self, path: str, size: int = -1) -> int:
        """Give a file a range of :data:`IDS_PER_FILE` ids; returns the first.

        Args:
            path: The file.
            size: Its size in bytes, to tell later whether it has changed; -1 when unknown.

        >>> IdGenerator().register_file("a.jsonl")
        0
        """
        name = redacted(path)
        if size >= 0:
            self.sizes[self.hash_files(name)] = size
        return self.register_batch(name, IDS_PER_FILE)

    def first_of_file(self, path: str, size: int = -1) -> int:
        """The first id of a file that :meth:`register_file` registered, if it is the same file still."""
        name = redacted(path)
        key = self.hash_files(name)
        if key not in self.batch_registry:
            raise DataError(
                "this file has no ids: it was not there when ids were given",
                path=path,
                hint="Read the same files, under the same paths, that the duplicates were searched in.",
            )
        first, last = self.batch_registry[key]
        if last - first + 1 != IDS_PER_FILE:
            raise DataError(
                "the ids of this file are not those of a tamis run: NeMo Curator numbers the rows of a group of files",
                path=path,
                hint="Search for duplicates again with tamis, or remove them by a column of your own (id_field).",
            )
        if size >= 0 and self.sizes.get(key, size) != size:
            raise DataError(
                f"this file has changed since its rows were given ids: {self.sizes[key]:,} bytes then, {size:,} now",
                path=path,
                hint="Search for duplicates again.",
            )
        return first

    def hash_files(self, files: str | Sequence[str]) -> str:
        """The key of a batch of files: a UUID that follows from their paths."""
        paths = [files] if isinstance(files, str) else list(files)
        return str(uuid.uuid5(uuid.NAMESPACE_URL, ";".join(paths)))

    def get_batch_range(self, files: str | Sequence[str] | None = None, key: str | None = None) -> tuple[int, int]:
        """The first and the last id of a batch, by its files or by their key."""
        if files is None and key is None:
            raise ValueError("get_batch_range() takes files, or the key of them")
        first, last = self.batch_registry[self.hash_files(files) if files is not None else str(key)]
        return first, last

    def to_disk(self, filepath: str, storage_options: Options = None) -> None:
        """Write the ranges as JSON: whole, or not at all."""
        values = {"next_id": self.next_id, "batch_registry": self.batch_registry, "sizes": self.sizes}
        content = json.dumps(values).encode()
        if is_local(filepath):
            write_whole(filepath, content)
            return
        make_directory(parent(filepath), storage_options)
        with open_write(filepath, storage_options) as sink:
            sink.write(content)

    @classmethod
    def from_disk(cls, filepath: str, storage_options: Options = None) -> Self:
        """The ranges that :meth:`to_disk` wrote, or NeMo Curator.

        >>> ids = IdGenerator()
        >>> ids.register_batch("a", 2)
        0
        >>> ids.to_disk("memory://ids.json")
        >>> IdGenerator.from_disk("memory://ids.json").get_batch_range("a")
        (0, 1)
        """
        try:
            with open_read(filepath, storage_options) as source:
                values = json.loads(source.read())
            ranges = {str(key): (int(first), int(last)) for key, (first, last) in values["batch_registry"].items()}
            return cls(int(values["next_id"]), ranges, {str(k): int(v) for k, v in values.get("sizes", {}).items()})
        except (KeyError, TypeError, ValueError) as e:
            if isinstance(e, DataError):
                raise
            raise DataError(f"this is not a file of ids: {e}", path=filepath) from e


IdGeneratorBase = IdGenerator

_current: IdGenerator | None = None


def create_id_generator_actor(filepath: str | None = None, storage_options: Options = None) -> None:
    """Make the ids of this process, empty or from a file. Readers with ``_generate_ids=True`` use them.

    Args:
        filepath: A file that :func:`write_id_generator_to_disk` wrote.
        storage_options: For the fsspec file system.

    >>> create_id_generator_actor()
    >>> get_id_generator_actor().register_batch("a.jsonl", 2)
    0
    >>> kill_id_generator_actor()
    """
    global _current  # it stands for an actor, of which there is one
    if _current is not None:
        raise ValueError("there are ids already: kill_id_generator_actor() removes them")
    _current = IdGenerator() if filepath is None else IdGenerator.from_disk(filepath, storage_options)


def get_id_generator_actor() -> IdGenerator:
    """The ids of this process."""
    if _current is None:
        raise PlanError("there are no ids in this process: call create_id_generator_actor() first")
    return _current


def kill_id_generator_actor() -> None:
    """Remove the ids of this process, if there are any."""
    global _current  # it stands for an actor, of which there is one
    _current = None


def write_id_generator_to_disk(filepath: str, storage_options: Options = None) -> None:
    """Write the ids of this process to a file."""
    get_id_generator_actor().to_disk(filepath, storage_options)
