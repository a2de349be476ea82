"""Media as columns: bytes, or a reference to a file or a part of one, beside ordinary columns that describe them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
import pyarrow as pa

from tamis.errors import ColumnError, MediumError
from tamis.tasks.table import TableTask
from tamis.tasks.views import view_of

__all__ = ["MediaBatch", "array_columns", "column_values", "shaped_arrays"]


@dataclass
class MediaBatch(TableTask):
    """Rows with a medium each: what images, audio and video have in common.

    The medium of a row is in a column of bytes or, where that is null or not there, in the file that a column of paths
    names: the whole file, or the range of bytes that two more columns give (a member of an archive). Nothing is decoded
    until it is asked for.

    Attributes:
        bytes_column: The column of encoded media (JPEG, WAV, MP4, ...).
        path_column: The column of paths: local, or any fsspec address.
        offset_column, size_column: The range of bytes in the file.
    """

    bytes_column: ClassVar[str] = "bytes"
    path_column: ClassVar[str] = "path"
    offset_column: ClassVar[str] = "byte_offset"
    size_column: ClassVar[str] = "byte_size"

    @property  # type: ignore[misc]  # it is set like the field that it stands for
    def data(self) -> pa.Table:
        """The rows, as an Arrow table."""
        return TableTask.data.fget(self)  # type: ignore[attr-defined]  # a property

    @data.setter
    def data(self, data: Any) -> None:
        TableTask.data.fset(self, self._rows_of(data))  # type: ignore[attr-defined]  # a property

    @classmethod
    def _rows_of(cls, data: Any) -> Any:
        """What the batch is given, as anything that a table can be made of."""
        return data

    @classmethod
    def of(cls, batch: TableTask) -> Self:
        """A view of a batch of another class: the same rows with the same names.

        >>> from tamis.tasks import AudioBatch, DocumentBatch
        >>> AudioBatch.of(DocumentBatch({"audio_filepath": ["a.wav"]})).num_items
        1
        """
        return view_of(batch, cls)

    def files(self) -> Iterator[BinaryIO]:
        """The encoded medium of each row as an open file, one at a time; each is closed when the next is asked for.

        Bytes in the table are not copied, and files are read as far as their reader reads them.
        """
        opened = self.opener()
        for row in range(self.num_items):
            with opened(row) as file:
                yield file

    def opener(self) -> Callable[[int], BinaryIO]:
        """A function that opens the encoded medium of a row; the caller closes it. Threads may call it."""
        names = self.get_columns()
        if self.bytes_column not in names and self.path_column not in names:
            raise ColumnError(
                f"{type(self).__name__} needs the column {self.bytes_column!r} (bytes) or {self.path_column!r} "
                f"(paths). There are: {', '.join(names) or 'none'}"
            )
        count = self.num_items
        stored = column_values(self, self.bytes_column, count)
        paths = column_values(self, self.path_column, count)
        offsets = column_values(self, self.offset_column, count)
        sizes = column_values(self, self.size_column, count)

        def opened(row: int) -> BinaryIO:
            if stored is not None and stored[row].is_valid:
                file: BinaryIO = pa.BufferReader(stored[row].as_buffer())
                return file
            path = None if paths is None else paths[row].as_py()
            if not path:
                raise MediumError(f"row {self.row_name(row)} has neither bytes nor a path")
            size = sizes[row].as_py() if sizes is not None else None
            if size is None:
                return _opened(path)
            return io.BytesIO(_part(path, int((offsets[row].as_py() if offsets is not None else 0) or 0), size))

        return opened

    def payloads(self) -> Iterator[bytes]:
        """The encoded medium of each row, one at a time."""
        return (file.read() for file in self.files())

    def with_payloads(self) -> Self:
        """The batch with the encoded media in its column of bytes, read from the files that it names.

        What follows needs the files no more: a writer that puts media into Parquet, deduplication by bytes.
        """
        return self.with_column(self.bytes_column, pa.array(self.payloads(), pa.large_binary(), size=self.num_items))

    def _with_heads(self, types: Mapping[str, pa.DataType], read: Callable[[BinaryIO, int], Sequence[Any]]) -> Self:
        """The batch with what ``read`` finds in the head of each medium, in columns of these types."""
        heads = [read(file, row) for row, file in enumerate(self.files())]
        columns = {name: [head[i] for head in heads] for i, name in enumerate(types)}
        return self.with_columns({name: pa.array(columns[name], kind) for name, kind in types.items()})

    def row_name(self, row: int) -> str:
        """What messages call a row: the path of its file, or else its name."""
        paths, sizes = (column_values(self, name, self.num_items) for name in (self.path_column, self.size_column))
        path = None if paths is None else paths[row].as_py()
        is_part = sizes is not None and sizes[row].is_valid
        names = self.names
        if path and not (is_part and names is not None):
            return str(path)
        return str(row) if names is None else names.text(row)


def _opened(path: str) -> BinaryIO:
    try:
        if "://" not in path:
            return Path(path).open("rb")
        import fsspec

        system, inner = fsspec.core.url_to_fs(path)
        file: BinaryIO = system.open(inner, "rb")
        return file
    except (OSError, ImportError) as e:
        raise MediumError(f"the file cannot be read: {e}", path=path) from e


def _part(path: str, offset: int, size: int) -> bytes:
    """A range of the bytes of a file."""
    with _opened(path) as file:
        file.seek(offset)
        data = file.read(size)
    if len(data) < size:
        raise MediumError(
            f"it ends at byte {offset + len(data)}, before the {size} bytes from byte {offset}", path=path
        )
    return data


def column_values(batch: TableTask, name: str, count: int) -> pa.ChunkedArray | None:
    """A column, or ``None`` if the batch has none of that name."""
    return batch[name] if count and name in batch.get_columns() else None


def array_columns(name: str, arrays: Sequence[np.ndarray[Any, Any] | None]) -> dict[str, pa.Array]:
    """Arrays of bytes of any shape as two columns: their memory and their shape.

    >>> columns = array_columns("image_data", [np.zeros((2, 3, 3), np.uint8), None])
    >>> columns["image_data_shape"].to_pylist()
    [[2, 3, 3], None]
    """
    for array in arrays:
        if array is not None and np.asarray(array).dtype != np.uint8:
            raise TypeError(f"{name} must hold arrays of uint8, not {np.asarray(array).dtype}")
    memory = [None if array is None else np.ascontiguousarray(array).tobytes() for array in arrays]
    shapes = [None if array is None else list(np.asarray(array).shape) for array in arrays]
    return {name: pa.array(memory, pa.large_binary()), f"{name}_shape": pa.array(shapes, pa.list_(pa.int32()))}


def shaped_arrays(batch: TableTask, name: str) -> Iterator[np.ndarray[Any, Any] | None]:
    """The arrays of the two columns that :func:`array_columns` made; they share the table's memory."""
    memory = column_values(batch, name, batch.num_items)
    shapes = column_values(batch, f"{name}_shape", batch.num_items)
    for row in range(batch.num_items):
        if memory is None or shapes is None or not memory[row].is_valid:
            yield None
        else:
            yield np.frombuffer(memory[row].as_buffer(), np.uint8).reshape(shapes[row].as_py())
