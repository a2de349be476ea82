"""Duplicates that were found: which rows of which file of the run's scratch location, and the rows kept in their place.

A document has a number while duplicates are looked for: that of the file in which its row waits, counted in the order
of the input, and the number of the row in it. So numbers are in the order of the input, whatever worker wrote a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, text_array
from tamis.stages.emit import Drop, Publish
from tamis.stages.exchange.files import Rows, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.scratch import load_task
from tamis.stages.spill import ScratchSource, ScratchStage, spilled_files, spilled_tasks
from tamis.tasks import FileGroup, RowNames, TableTask

__all__ = ["KeptRows", "RemoveMarked", "by_name", "document_numbers", "file_of", "name_texts", "row_of", "write_marks"]

Documents = NDArray[np.uint64]

_ROW_BITS = np.uint64(32)
_ROW_MASK = np.uint64(2**32 - 1)


def document_numbers(file: NDArray[np.integer] | int, row: NDArray[np.integer]) -> Documents:
    """The numbers of documents, given file and row.

    >>> document_numbers(1, np.array([0, 2])).tolist()
    [4294967296, 4294967298]
    """
    return (np.asarray(file).astype(np.uint64) << _ROW_BITS) | row.astype(np.uint64)


def file_of(documents: Documents) -> NDArray[np.int64]:
    """The numbers of the files of documents."""
    return (documents >> _ROW_BITS).astype(np.int64)


def row_of(documents: Documents) -> NDArray[np.uint32]:
    """The numbers of the rows of documents in their files."""
    return (documents & _ROW_MASK).astype(np.uint32)


def write_marks(
    final: str, documents: Documents, originals: pa.Array, similarities: NDArray[np.float32] | None = None
) -> Publish:
    """Write which documents are duplicates, by file.

    Args:
        final: The name of the file.
        documents: Their numbers.
        originals: The names of the documents that are kept in their place.
        similarities: How similar they are to those.
    """
    marks = pa.table({"row": arrow_array(row_of(documents)), "original": originals})
    if similarities is not None:
        marks = marks.append_column("similarity", arrow_array(similarities))
    return write_by(final, Rows(marks), file_of(documents))


def name_texts(names: RowNames) -> pa.Array:
    """Names as text, as :meth:`~tamis.tasks.RowNames.to_texts` has them.

    >>> name_texts(RowNames.numbered("a", 2)).to_pylist()
    ['a:0', 'a:1']
    """
    # Scalars are made by hand: pc would make them of Python strings, for which pyarrow imports pandas.
    nothing, colon = (text_array([text])[0] for text in ("", ":"))
    pieces = [names.source_column().cast(pa.string()), colon, arrow_array(names.positions).cast(pa.string())]
    if names.parts is not None:
        pieces.append(pc.fill_null(names.parts, nothing).cast(pa.string()))
    return pc.binary_join_element_wise(*pieces, nothing)


def by_name(table: pa.Table) -> tuple[NDArray[Any], ...]:
    """Keys that sort rows by their names: by source, then position, then part, the most important last.

    >>> table = RowNames(("b", "a"), np.array([1, 5]), np.array([0, 1], np.int32)).added_to(pa.table({"x": [1, 2]}))
    >>> np.lexsort(by_name(table)).tolist()
    [1, 0]
    """
    names = RowNames.taken_from(table)[1]
    if names is None:
        return ()
    places = np.empty(len(names.sources), np.int64)
    places[sorted(range(len(places)), key=names.sources.__getitem__)] = np.arange(len(places))
    sources = np.zeros(len(names), np.int64) if names.codes is None else places[names.codes]
    if names.parts is None:
        return names.positions, sources
    return numpy_array(pc.rank(pc.fill_null(names.parts, ""), tiebreaker="dense")), names.positions, sources


@dataclass
class KeptRows(ScratchSource[FileGroup]):
    """The files of ``rows/``, in the order of the input, each with the place of the marks of its rows in ``marks/``.

    Args:
        folder: The folder of the deduplication.
        first_file: The number of the first of the files.
    """

    first_file: int = 0

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "marks"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        parts = merge_indexes(indexes, join(directory, "marks.index"))
        for number, task in enumerate(spilled_tasks(join(directory, "rows")), self.first_file):
            task.reader_config = {"parts": parts.get(number)}
            yield task


@dataclass
class RemoveMarked(ScratchStage[FileGroup, TableTask]):
    """Read the rows again and leave the duplicates out.

    Args:
        folder: The folder of the deduplication.
        reason: Why a row is dropped.
    """

    reason: str = "duplicate"
    internal: ClassVar[bool] = False

    def process(self, task: FileGroup) -> Iterator[Drop | Publish | TableTask]:
        batch = load_task(task.data[0])
        assert isinstance(batch, TableTask)
        parts = task.reader_config["parts"]
        if parts is None:
            yield batch
            return
        marks = Rows.concat(list(read_cells(parts.read()))).table.sort_by("row").combine_chunks()
        rows = numpy_array(marks.column("row")).astype(np.int64)
        scores = marks.column("similarity").combine_chunks() if "similarity" in marks.column_names else None
        originals = marks.column("original").cast(pa.string()).combine_chunks()
        yield Drop(batch, rows, self.reason, _whole(scores), originals=_whole(originals))
        kept = np.ones(batch.num_items, np.bool_)
        kept[rows] = False
        yield batch.select(np.flatnonzero(kept))


def _whole(column: pa.Array | pa.ChunkedArray | None) -> pa.Array | None:
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
