"""How much memory the rows of a Parquet file may take, from its metadata and dictionaries alone.

The size that a row group states for itself is that of its encoded values. A value that occurs a million times may be
stored once, so a file of 100 KB can hold gigabytes. What each kind of column can take at most is therefore computed
before anything is decoded: values of fixed width by their number, text in a dictionary by its longest entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["RowGroupSizes"]

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_PROBE_BUFFER_BYTES = 64 * 1024


class RowGroupSizes:
    """The sizes of the row groups of one open file.

    Args:
        parquet: The file, a ``pyarrow.parquet.ParquetFile``.
        source: What it was opened from: a path or a file object.
        fields: The columns that are read; all of them when not given.
    """

    def __init__(self, parquet: Any, source: Any, fields: Sequence[str] | None) -> None:
        self._metadata, self._schema, self._source = parquet.metadata, parquet.schema, source
        self._fields = None if fields is None else set(fields)
        self._bounds: dict[int, int] = {}

    def rows(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self._metadata.row_group(group).num_rows)

    def stored(self, group: int) -> int:
        """The size of the encoded values of a row group, decompressed, in bytes."""
        return sum(chunk.total_uncompressed_size for _, chunk in self._chunks(group))

    def bound(self, group: int, enough: int) -> int:
        """Memory that the decoded rows of a row group take at most, in bytes.

        Args:
            group: The row group.
            enough: Dictionaries are only looked at where the rows could take more than this.
        """
        if group not in self._bounds:
            self._bounds[group] = sum(self._chunk_bound(group, *found, enough) for found in self._chunks(group))
        return self._bounds[group]

    def _chunks(self, group: int) -> Iterator[tuple[int, Any]]:
        row_group = self._metadata.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            path = chunk.path_in_schema
            if self._fields is None or path in self._fields or path.split(".")[0] in self._fields:
                yield number, chunk

    def _chunk_bound(self, group: int, number: int, chunk: Any, enough: int) -> int:
        stored = int(chunk.total_uncompressed_size)
        if chunk.physical_type != "BYTE_ARRAY":
            width = _WIDTHS.get(chunk.physical_type) or self._schema.column(number).length
            return max(stored, int(chunk.num_values * width))
        if not chunk.has_dictionary_page or chunk.num_values * stored <= enough:
            return stored + 8 * int(chunk.num_values)
        return stored + int(chunk.num_values) * (8 + self._longest(group, chunk.path_in_schema))

    def _longest(self, group: int, path: str) -> int:
        """The length of the longest entry in the dictionary of a column, in bytes."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        file = pq.ParquetFile(
            self._source, metadata=self._metadata, read_dictionary=[path], buffer_size=_PROBE_BUFFER_BYTES
        )
        longest = 0
        with contextlib.suppress(pa.ArrowException, OSError, StopIteration):  # damaged: reported when it is read
            batch = next(file.iter_batches(1, row_groups=[group], columns=[path], use_threads=False))
            for entries in _dictionaries(batch.column(0)):
                longest = max(longest, pc.max(pc.binary_length(entries)).as_py() or 0)
        return longest


def _dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    """The dictionaries in an array, which may be nested."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield array.dictionary
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _dictionaries(array.field(number))
    elif pa.types.is_map(kind):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_nested(kind):
        yield from _dictionaries(array.values)
