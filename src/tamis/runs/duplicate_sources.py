"""Duplicates by source: how many rows of each source were removed, and in which source the rows are that stay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import TamisError
from tamis.runs.ledger import Ledger
from tamis.runs.lineage import input_files
from tamis.runs.source_rows import RowFormat
from tamis.stages.io.byte_streams import byte_stream
from tamis.tasks import FileSlice

__all__ = ["OTHERS", "SourceCounts", "SourcePair", "SourceRate", "folder_of", "rows_read", "sources_of"]

OTHERS: Final = "others"
"""Stands for all sources that are not listed."""

_WAITING: Final = 2**20
_COUNTED_BYTES: Final = 32 * 2**20
"""Files that were read together are counted again if they are smaller than this in all."""

By = Literal["file", "folder"]


@dataclass(frozen=True)
class SourceRate:
    """How many rows of a source are duplicates.

    Args:
        source: The file or the folder; :data:`OTHERS` for those that are not listed.
        removed: Rows of it that were removed.
        rows: Rows of it that the run has read; ``None`` where that is not known.
    """

    source: str
    removed: int
    rows: int | None = None

    @property
    def share(self) -> float | None:
        """The share of its rows that was removed, 0 to 1."""
        return self.removed / self.rows if self.rows else None


@dataclass(frozen=True)
class SourcePair:
    """How many rows of one source were removed because of rows of another, or the same.

    Args:
        removed: Where the removed rows are from; :data:`OTHERS` for the pairs that are not listed.
        kept: Where the rows are from that are kept in their place.
        rows: How many rows were removed.
    """

    removed: str
    kept: str
    rows: int


class SourceCounts:
    """Counts removed rows by the sources of both rows of a pair."""

    def __init__(self) -> None:
        self._sources: dict[str, int] = {}
        self._pairs = [np.zeros(0, np.uint64)]  # parts that are put together once they are long
        self._counts = [np.zeros(0, np.int64)]
        self._waiting = 0

    def add(self, removed: pa.Array, kept: pa.Array) -> None:
        """Count rows.

        Args:
            removed: The sources of the rows that were removed.
            kept: The sources of those that stay.
        """
        pairs = (self._codes(removed) << np.uint64(32)) | self._codes(kept)
        found, counts = np.unique(pairs, return_counts=True)
        self._pairs.append(found)
        self._counts.append(counts)
        self._waiting += len(found)
        if self._waiting > max(_WAITING, len(self._pairs[0])):
            self._put_together()

    def _put_together(self) -> None:
        pairs, counts = np.concatenate(self._pairs), np.concatenate(self._counts)
        order = np.argsort(pairs)
        pairs, counts = pairs[order], counts[order]
        firsts = np.flatnonzero(np.concatenate([np.ones(min(1, len(pairs)), np.bool_), pairs[1:] != pairs[:-1]]))
        self._pairs = [pairs[firsts]]
        self._counts = [np.add.reduceat(counts, firsts) if len(firsts) else counts]
        self._waiting = 0

    def _codes(self, sources: pa.Array) -> NDArray[np.uint64]:
        encoded = sources if pa.types.is_dictionary(sources.type) else sources.dictionary_encode()
        known = self._sources
        codes = [known.setdefault(source or "", len(known)) for source in encoded.dictionary.to_pylist()]
        codes.append(known.setdefault("", len(known)) if encoded.indices.null_count else 0)
        places = numpy_array(pc.fill_null(encoded.indices, len(codes) - 1))
        found: NDArray[np.uint64] = np.array(codes, np.uint64)[places]
        return found

    def pairs(self, by: By) -> dict[tuple[str, str], int]:
        """Removed rows for each pair of sources."""
        self._put_together()
        names = [_grouping(by)(source) for source in self._sources]
        found: dict[tuple[str, str], int] = {}
        for pair, count in zip(self._pairs[0].tolist(), self._counts[0].tolist(), strict=True):
            key = names[pair >> 32], names[pair & (2**32 - 1)]
            found[key] = found.get(key, 0) + count
        return found

    def between(self, by: By, most: int) -> list[SourcePair]:
        """The most frequent pairs of sources, and the rest in one."""
        ranked = sorted(self.pairs(by).items(), key=lambda item: (-item[1], item[0]))
        listed = [SourcePair(removed, kept, rows) for (removed, kept), rows in ranked[:most]]
        rest = sum(rows for _, rows in ranked[most:])
        return [*listed, SourcePair(OTHERS, OTHERS, rest)] if rest else listed

    def rates(self, by: By, most: int, read: Sequence[tuple[frozenset[str], int]]) -> list[SourceRate]:
        """The sources with the most removed rows, and the rest in one."""
        removed: dict[str, int] = {}
        for (source, _), rows in self.pairs(by).items():
            removed[source] = removed.get(source, 0) + rows
        rows_of = _rows_by(_grouping(by), read)
        for source in rows_of:
            removed.setdefault(source, 0)
        ranked = sorted(removed.items(), key=lambda item: (-item[1], item[0]))
        listed = [SourceRate(source, rows, rows_of.get(source)) for source, rows in ranked[:most]]
        rest = [source for source, _ in ranked[most:]]
        if not rest:
            return listed
        known = [rows_of.get(source) for source in rest]
        total = None if None in known else sum(rows for rows in known if rows is not None)
        return [*listed, SourceRate(OTHERS, sum(removed[source] for source in rest), total)]

    @property
    def folders(self) -> set[str]:
        """The folders of all sources."""
        return {folder_of(source) for source in self._sources}


def folder_of(source: str) -> str:
    """The folder of a file.

    >>> folder_of("data/web/a.jsonl"), folder_of("s3://bucket/a.jsonl"), folder_of("a stage")
    ('data/web', 's3://bucket', 'a stage')
    """
    folder, slash, _ = source.replace(os.sep, "/").rpartition("/")
    return folder or slash or source


def _grouping(by: By) -> Callable[[str], str]:
    if by not in ("file", "folder"):
        raise ValueError(f"by={by!r}: must be 'file' or 'folder'")
    return folder_of if by == "folder" else str


def _rows_by(group: Callable[[str], str], read: Sequence[tuple[frozenset[str], int]]) -> dict[str, int]:
    """Rows read of each source, for those of which it is known."""
    found: dict[str, int] = {}
    unclear: set[str] = set()
    for paths, rows in read:
        sources = {group(path) for path in paths}
        if len(sources) == 1:
            (source,) = sources
            found[source] = found.get(source, 0) + rows
        else:  # a task with small files of several sources: only their sum was counted
            unclear |= sources
    return {source: rows for source, rows in found.items() if source not in unclear}


def rows_read(run_dir: str) -> list[tuple[frozenset[str], int]]:
    """How many rows a run has read, by the files that were read together; from its ledger."""
    paths: dict[str, set[str]] = {}
    for file in input_files(run_dir):
        for task in file.task_ids:
            paths.setdefault(task, set()).add(file.path)
    found: dict[str, tuple[frozenset[str], int]] = {}
    for line in Ledger.read(os.path.join(run_dir, "ledger")) if paths else ():
        for key in line.get("removed", ()):
            found.pop(key, None)
        if "key" not in line or not all(task in paths for task in line["tasks"]):
            continue
        counts = line.get("counts", {}).get(line["stage"], {})
        files = frozenset().union(*(paths[task] for task in line["tasks"]))
        found[line["key"]] = files, int(counts.get("rows_out", 0)) + _lost(counts)
    return _added(found.values())


def _lost(counts: dict[str, Any]) -> int:
    """Rows that the first stage itself dropped or set aside."""
    dropped = counts.get("dropped", 0)
    dropped = sum(dropped.values()) if isinstance(dropped, dict) else dropped
    return int(dropped) + int(counts.get("quarantined", 0))


def _added(found: Iterable[tuple[frozenset[str], int]]) -> list[tuple[frozenset[str], int]]:
    sums: dict[frozenset[str], int] = {}
    for files, rows in found:
        sums[files] = sums.get(files, 0) + rows
    return list(sums.items())


def counted_alone(
    read: list[tuple[frozenset[str], int]], count: Callable[[str], int | None]
) -> list[tuple[frozenset[str], int]]:
    """The same, with the rows of files that were read together counted file by file, if they are small.

    Args:
        read: What :func:`rows_read` gives.
        count: Counts the rows of a file; ``None`` if it cannot.
    """
    together = sorted({path for paths, _ in read if len(paths) > 1 for path in paths})
    sizes = [os.path.getsize(path) if os.path.isfile(path) else _COUNTED_BYTES for path in together]
    if not together or sum(sizes) >= _COUNTED_BYTES:
        return read
    rows = {path: count(path) for path in together}
    found: list[tuple[frozenset[str], int]] = []
    for paths, total in read:
        alone = [rows[path] for path in sorted(paths)] if len(paths) > 1 else [None]
        if sum(one or 0 for one in alone) != total or None in alone:  # else the files have changed since
            found.append((paths, total))
        else:
            found += [(frozenset([path]), rows[path] or 0) for path in sorted(paths)]
    return found


def rows_of_file(path: str, row_format: RowFormat | None) -> int | None:
    """How many rows a file has: JSON lines, or Parquet; ``None`` for others, and for one that cannot be read."""
    try:
        if row_format is not None and row_format.kind == "parquet":
            import pyarrow.parquet as pq

            return int(pq.read_metadata(path).num_rows)
        if row_format is not None and row_format.kind == "jsonl":
            return sum(1 for line in _lines(path) if line.strip())
    except (OSError, TamisError, pa.ArrowException):
        pass
    return None


def _lines(path: str) -> Iterator[bytes]:
    held = b""
    for piece in byte_stream(FileSlice(path), {}):
        *lines, held = (held + piece).split(b"\n")
        yield from lines
    yield held


def sources_of(names: pa.Array) -> pa.DictionaryArray:
    """The sources of rows, from their names.

    >>> sources_of(pa.array(["a.jsonl:120", "s3://b/c:0/2", None])).to_pylist()
    ['a.jsonl', 's3://b/c', None]
    """
    # Behind the last colon there are digits, and of pieces of a row "/" or "+".
    encoded = pc.ascii_rtrim(names, "0123456789/+").dictionary_encode()
    sources = pa.array([source.removesuffix(":") for source in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, sources)


def parts_of(names: pa.Array) -> pa.Array:
    """The parts of the names of rows: ``source``, ``position`` and ``part``, all as text."""
    return pc.extract_regex(names, r"^(?P<source>(?s:.*)):(?P<position>\d+)(?P<part>[^:]*)$")
