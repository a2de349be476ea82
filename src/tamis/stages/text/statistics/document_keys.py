"""Where a document comes from: columns that travel with it, and reading that fills them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from tamis.stages.base import ProcessingStage
from tamis.stages.emit import BadRows
from tamis.stages.io.paths import base_name
from tamis.stages.io.readers import ReaderStage
from tamis.stages.mixing.row_keys import row_keys, scrambled
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["FILE", "PLACES", "ROW", "START", "ReadPlaces", "document_keys"]

FILE: Final = "_tamis_file"
"""The column for the file that a document is in."""

START: Final = "_tamis_start"
"""The column for where the part of the file begins that was read, in bytes."""

ROW: Final = "_tamis_row"
"""The column for the number of the document in that part, from 1."""

PLACES: Final = (FILE, START, ROW)

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(repr=False)
class ReadPlaces(ProcessingStage[FileGroup, DocumentBatch]):
    """Read files, and number the documents of each.

    Args:
        reader: What reads; its ``include_path`` is :data:`FILE`.
    """

    reader: ReaderStage

    releases_gil: ClassVar[bool] = True

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(PLACES)

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None

    def process(self, task: FileGroup) -> Iterator[DocumentBatch | BadRows]:
        starts = {part.path: part.start for part in task.slices}
        seen: Counter[str] = Counter()
        for found in self.reader.process(task):
            if isinstance(found, DocumentBatch):
                found = found.with_table(_numbered(found.data, starts, seen))
            yield found


def _numbered(table: pa.Table, starts: dict[str, int], seen: Counter[str]) -> pa.Table:
    files = pl.Series(pl.from_arrow(table.column(FILE)))
    begins, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for file, count in files.rle().struct.unnest().select("value", "len").iter_rows():
        begins.append(np.full(count, starts.get(file, 0)))
        rows.append(np.arange(1, count + 1) + seen[file])
        seen[file] += count
    table = table.append_column(START, pa.array(np.concatenate(begins), pa.int64()))
    return table.append_column(ROW, pa.array(np.concatenate(rows), pa.int64()))


def document_keys(batch: DocumentBatch, hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number for each document, spread evenly, by which documents are chosen at random.

    It follows from the text and from the place in the file, not from how files are cut into batches or where they lie;
    without places, from the batch's place in the input.

    Args:
        batch: The documents.
        hashes: The hash of each text.
    """
    table = batch.data
    if not set(PLACES) <= set(table.column_names):
        return scrambled(hashes ^ row_keys(batch, None, 0, "TextStatistics"))
    files = pl.Series(pl.from_arrow(table.column(FILE))).rle().struct.unnest()
    names = [
        xxhash.xxh3_64_intdigest(base_name(file or "").encode("utf-8", "surrogatepass")) for file in files["value"]
    ]
    mixed = hashes ^ np.repeat(np.array(names, np.uint64), files["len"].to_numpy())
    for column in (START, ROW):
        mixed = scrambled(mixed + table.column(column).to_numpy().astype(np.uint64) * _STEP)
    return mixed
