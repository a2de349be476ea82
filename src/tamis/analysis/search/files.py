"""The rows of Parquet files whose embeddings are nearest to that of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.analysis.search.embedder import embed_text, recorded_stage, same_embedding
from tamis.errors import DataError, did_you_mean
from tamis.kernels.nearest import Nearest
from tamis.runs.embedding_sample import opened_parquet
from tamis.runs.source_rows import read_rows
from tamis.stages.base import ProcessingStage
from tamis.stages.io.listing import Listing
from tamis.stages.io.paths import path_text
from tamis.stages.vectors import vectors_of

__all__ = ["Hit", "SearchResult", "search"]

_BLOCK_BYTES: Final = 8 << 20
_TEXT_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Hit:
    """A row that is near.

    Args:
        score: The cosine of its embedding and that of the text, -1 to 1.
        file: The file.
        row: Its number there, from 0.
        values: Its values by column, without the embedding. Long texts are cut after 20,000 characters.
        problem: Why the values could not be read, in words; empty if they are here.
    """

    score: float
    file: str
    row: int
    values: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        """The name of the row."""
        return f"{self.file}:{self.row}"


@dataclass(frozen=True)
class SearchResult(Sequence[Hit]):
    """The nearest rows, the nearest first.

    Args:
        query: The text.
        hits: The rows.
        stage: What made the embeddings, in words.
        rows: How many rows were looked at.
        without: How many of them have no embedding.
        text_field: The column with the text.
    """

    query: str
    hits: tuple[Hit, ...]
    stage: str
    rows: int
    without: int
    text_field: str = "text"

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: Any) -> Any:
        return self.hits[place]

    def __repr__(self) -> str:
        lines = [f"  {hit.score:.3f}  {hit.name}  {self.text_of(hit)}" for hit in self.hits]
        return "\n".join([f"SearchResult({self.query!r}, {len(self.hits)} of {self.rows:,} rows)", *lines])

    def text_of(self, hit: Hit, most_characters: int = _TEXT_CHARACTERS) -> str:
        """The begin of a row's text, on one line; why it is not here, if it is not."""
        if hit.problem:
            return f"({hit.problem})"
        text = " ".join(str(hit.values.get(self.text_field) or "").split())
        return text if len(text) <= most_characters else f"{text[:most_characters].rstrip()} ..."


def search(
    paths: str | Sequence[str],
    query: str,
    *,
    k: int = 10,
    stage: ProcessingStage[Any, Any] | None = None,
    text_field: str | None = None,
    embedding_field: str = "embeddings",
    storage_options: dict[str, Any] | None = None,
) -> SearchResult:
    """Find the rows whose embeddings are nearest to that of a text.

    Every row is compared, so the result is exact. Files are read in blocks: memory does not grow with them. Of rows
    with the same score, those whose file and number come first are nearer.

    The text is embedded by the stage that made the embeddings, which ``RUN.json`` beside the files names.

    Args:
        paths: Parquet files, directories with them, or patterns.
        query: The text.
        k: How many rows.
        stage: The stage that made the embeddings, for files without ``RUN.json``.
        text_field: The column with the text, to be shown; that of the stage when not given.
        embedding_field: The column with the embeddings.
        storage_options: For fsspec file systems.

    Raises:
        DataError: There are no embeddings; it is not known which stage made them; another one did than the given one;
            or their length is another than that of the text's.

    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> from tamis.stages.text.embedders import HashedEmbeddingStage
    >>> from tamis.tasks import DocumentBatch
    >>> made = HashedEmbeddingStage().process(DocumentBatch({"text": ["how to sail a boat", "boiling eggs", "cars"]}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(made.data, f"{folder}/a.parquet")
    ...     result = search(folder, "a sailing boat", k=1, stage=HashedEmbeddingStage())
    >>> result[0].row, result[0].values
    (0, {'text': 'how to sail a boat'})
    """
    given = [paths] if isinstance(paths, str) else list(paths)
    options = dict(storage_options or {})
    listing = Listing(tuple(path_text(path) for path in given), (".parquet",), options)
    files = sorted({file.path for file in listing.files()})
    recorded = recorded_stage(files, embedding_field)
    if recorded is not None and stage is not None and not same_embedding(stage, recorded):
        raise DataError(
            f"the embeddings in {', '.join(given)} were made by {recorded!r}, not by {stage!r}: they cannot be "
            "compared",
            hint="Leave the stage out to use the one that made them.",
        )
    maker = stage or recorded
    if maker is None:
        raise DataError(
            f"it is not known which stage made the embeddings in {', '.join(given)}: there is no RUN.json of a run "
            f"that wrote the column {embedding_field!r}",
            hint="Give the stage with its parameters: search(..., stage=HashedEmbeddingStage(dim=512)), or\n"
            "  tamis search --stage 'HashedEmbeddingStage: {dim: 512}'.",
        )
    vector = embed_text(maker, query)
    nearest, firsts, without = Nearest(vector, k), [], 0
    for file in files:
        firsts.append(nearest.seen)
        for vectors, missing in _blocks(file, embedding_field, len(vector), options):
            without += int(missing.sum())
            nearest.add(vectors)
    places = np.searchsorted(np.array(firsts), nearest.rows, side="right") - 1
    found = [
        (files[place], int(row) - firsts[place], float(score))
        for place, row, score in zip(places.tolist(), nearest.rows, nearest.cosines, strict=True)
    ]
    shown = text_field or str(getattr(maker, "text_field", "text"))
    return SearchResult(query, _hits(found, embedding_field, options), repr(maker), nearest.seen, without, shown)


def _blocks(
    path: str, embedding_field: str, length: int, options: dict[str, Any]
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
    """The vectors of a file, some at a time, and which rows have none."""
    with opened_parquet(path, options) as parquet:
        schema = parquet.schema_arrow
        if embedding_field not in schema.names:
            raise DataError(
                f"there is no column {embedding_field!r}, only {', '.join(schema.names) or 'none at all'}."
                f"{did_you_mean(embedding_field, schema.names)}",
                path=path,
            )
        rows = max(1, _BLOCK_BYTES // (4 * length))
        for batch in parquet.iter_batches(rows, columns=[embedding_field]):
            vectors, missing = vectors_of(batch.column(0), embedding_field)
            if not missing.all() and vectors.shape[1] != length:
                raise DataError(
                    f"the column {embedding_field!r} has vectors of length {vectors.shape[1]}, and the text's has "
                    f"{length}: another stage made them, or one with other parameters",
                    path=path,
                )
            yield (vectors if vectors.shape[1] == length else np.zeros((len(missing), length), np.float32)), missing


def _hits(found: list[tuple[str, int, float]], embedding_field: str, options: dict[str, Any]) -> tuple[Hit, ...]:
    """The rows with their values."""
    values: dict[tuple[str, int], Any] = {}
    for path in sorted({file for file, _, _ in found}):
        rows = [row for file, row, _ in found if file == path]
        with opened_parquet(path, options) as parquet:
            columns = [name for name in parquet.schema_arrow.names if name != embedding_field]
        for read in read_rows(path, rows, columns, storage_options=options, allow_remote=True):
            values[path, read.position] = read
    return tuple(
        Hit(score, file, row, values[file, row].values, values[file, row].problem) for file, row, score in found
    )
