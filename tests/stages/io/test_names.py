"""The names of NeMo Curator, below our root, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import tamis.stages.io as io
from tamis.stages import file_partitioning
from tamis.stages.text.io import reader, writer
from tamis.stages.text.io.reader import jsonl, parquet
from tamis.stages.text.io.writer import jsonl as jsonl_writer
from tamis.stages.text.io.writer import parquet as parquet_writer


def test_the_names_are_the_same_classes() -> None:
    assert reader.JsonlReader is jsonl.JsonlReader is io.JsonlReader
    assert reader.ParquetReader is parquet.ParquetReader is io.ParquetReader
    assert writer.JsonlWriter is jsonl_writer.JsonlWriter is io.JsonlWriter
    assert writer.ParquetWriter is parquet_writer.ParquetWriter is io.ParquetWriter
    assert file_partitioning.FilePartitioningStage is io.FilePartitioningStage


def test_importing_readers_and_writers_is_light() -> None:
    code = "import sys, tamis.stages.io; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"polars", "fsspec", "pandas", "ray", "torch", "pyarrow.parquet", "pyarrow.csv", "pyarrow.compute"}
    assert heavy & set(loaded) == set()
