"""A sample of rows with embeddings from Parquet files, of bounded size and spread over the files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.stages.column_values import holds_text
from tamis.stages.io.paths import open_read, reading
from tamis.stages.vectors import vectors_of

__all__ = ["EmbeddingColumns", "EmbeddingSample", "opened_parquet", "sample_embeddings"]

MAX_FILES: Final = 64
"""Files that are opened, spread over all."""

TEXT_CHARACTERS: Final = 2_000
"""How much of each text is kept."""

_BATCH_ROWS: Final = 2_048
_STREAMED: Final[dict[str, Any]] = {"buffer_size": 1 << 20, "pre_buffer": False}  # not a whole row group at once


@dataclass(frozen=True)
class EmbeddingColumns:
    """The columns that are read.

    Args:
        embedding: Embeddings.
        text: Texts; none are read if there is no such column.
        cluster: Numbers or names of clusters; none are read if it is empty.
    """

    embedding: str = "embeddings"
    text: str = "text"
    cluster: str = ""


@dataclass(frozen=True)
class EmbeddingSample:
    """Some rows with embeddings.

    Args:
        vectors: Embeddings of length 1, one in each row.
        texts: The begins of their texts; empty texts where there is no column with texts.
        clusters: The cluster of each, as text; empty if they were not read.
        rows: How many rows were looked at; those without an embedding are left out.
    """

    vectors: NDArray[np.float32]
    texts: list[str]
    clusters: list[str] = field(default_factory=list)
    rows: int = 0

    def __len__(self) -> int:
        return len(self.vectors)


def sample_embeddings(
    files: Sequence[str], most_rows: int, columns: EmbeddingColumns, storage_options: dict[str, Any] | None = None
) -> EmbeddingSample:
    """Read some rows: the same ones whenever it is called.

    Of each of at most 64 files, which are spread over all of them, as many row groups are read as have enough rows.

    Args:
        files: Parquet files.
        most_rows: How many rows are wanted.
        columns: The columns to read.
        storage_options: For fsspec file systems.

    Raises:
        DataError: A file has no such embeddings, or cannot be read.
    """
    chosen = [
        files[place] for place in np.unique(np.linspace(0, len(files) - 1, min(len(files), MAX_FILES)).astype(int))
    ]
    parts = [
        _rows_of(path, -(-most_rows // len(chosen)), columns, number, storage_options or {})
        for number, path in enumerate(chosen)
    ]
    lengths = sorted({part.vectors.shape[1] for part in parts if len(part)})
    if len(lengths) > 1:
        raise DataError(f"the embeddings in {chosen[0]} and other files have lengths of {lengths[0]} and {lengths[-1]}")
    vectors = [part.vectors for part in parts if len(part)]
    return EmbeddingSample(
        np.concatenate(vectors)[:most_rows] if vectors else np.zeros((0, 0), np.float32),
        [text for part in parts for text in part.texts][:most_rows],
        [cluster for part in parts for cluster in part.clusters][:most_rows],
        sum(part.rows for part in parts),
    )


@contextlib.contextmanager
def opened_parquet(path: str, storage_options: dict[str, Any]) -> Iterator[Any]:
    """A Parquet file. What is wrong with it, here or while it is read, is a ``DataError``."""
    import pyarrow.parquet as pq

    try:
        with reading(path), open_read(path, storage_options) as source, pq.ParquetFile(source, **_STREAMED) as parquet:
            yield parquet
    except pa.ArrowException as error:
        raise DataError(f"this is not a Parquet file, or it is cut off or damaged: {error}", path=path) from error


def _rows_of(path: str, most: int, columns: EmbeddingColumns, number: int, options: dict[str, Any]) -> EmbeddingSample:
    with opened_parquet(path, options) as parquet:
        schema, groups = parquet.schema_arrow, parquet.metadata.num_row_groups
        wanted = [columns.embedding, *filter(None, [columns.cluster])]
        for name in wanted:
            if name not in schema.names:
                raise DataError(f"there is no column {name!r}, only {', '.join(schema.names)}", path=path)
        has_text = columns.text in schema.names and holds_text(schema.field(columns.text).type)
        if not groups or not parquet.metadata.num_rows:
            return EmbeddingSample(np.zeros((0, 0), np.float32), [])
        chosen: list[int] = []
        first, rows = number * 7919 % groups, 0  # not always the first group, and the same one every time
        while rows < most and len(chosen) < groups:
            chosen.append((first + len(chosen)) % groups)
            rows += parquet.metadata.row_group(chosen[-1]).num_rows
        places = np.unique(np.linspace(0, rows - 1, min(most, rows)).astype(np.int64))
        found, at = [], 0
        read = [*wanted, *([columns.text] if has_text else [])]
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=chosen, columns=read):
            inside = places[(places >= at) & (places < at + batch.num_rows)] - at
            found.append(_taken(pa.table(batch).take(pa.array(inside.tolist(), pa.int64())), columns, has_text))
            at += batch.num_rows
    table = pa.concat_tables(found)
    vectors, missing = vectors_of(table.column("vector"), columns.embedding)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    has = np.flatnonzero(~missing & (lengths > 0))
    texts, clusters = table.column("text").to_pylist(), table.column("cluster").to_pylist()
    return EmbeddingSample(
        (vectors[has] / lengths[has, None]).astype(np.float32),
        [texts[row] for row in has.tolist()],
        [clusters[row] for row in has.tolist()] if columns.cluster else [],
        len(table),
    )


def _taken(table: pa.Table, columns: EmbeddingColumns, has_text: bool) -> pa.Table:
    """Some rows with the begins of their texts alone."""
    import pyarrow.compute as pc

    texts, clusters = pa.array([""] * len(table)), pa.array([""] * len(table))
    if has_text:
        texts = pc.fill_null(
            pc.utf8_slice_codeunits(table.column(columns.text).cast(pa.large_string()), 0, TEXT_CHARACTERS), ""
        )
    if columns.cluster:
        clusters = pc.fill_null(table.column(columns.cluster).cast(pa.string()), "none")
    return pa.table({"vector": table.column(columns.embedding), "text": texts, "cluster": clusters.cast(pa.string())})
