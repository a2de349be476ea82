"""Reads the documents that are compared or timed."""

from __future__ import annotations

__all__ = ["read_texts"]


def read_texts(path: str | None, column: str = "text", rows: int | None = None) -> list[str]:
    """The texts of a Parquet or JSON lines file; without a path, those of the sample that ships with tamis."""
    if path is None:
        from tamis.quickstart import sample_files
        from tamis.stages.io import JsonlReader
        from tamis.testing import run_stage

        texts = [row["text"] for row in run_stage(JsonlReader(sample_files(), on_error="quarantine"), [])]
    elif path.endswith(".parquet"):
        import pyarrow.parquet as pq

        texts = pq.read_table(path, columns=[column])[column].slice(0, rows).to_pylist()
    else:
        import polars as pl

        texts = pl.read_ndjson(path, n_rows=rows)[column].to_list()
    return [text or "" for text in texts[:rows]]
