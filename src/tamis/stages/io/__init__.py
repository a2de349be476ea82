"""Reading and writing: any fsspec path, JSON lines, Parquet, CSV and text.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.sizes import byte_size
    from tamis.stages.io.csv import CsvReader, CsvReaderStage
    from tamis.stages.io.jsonl import JsonlReader, JsonlReaderStage
    from tamis.stages.io.parquet import ParquetReader, ParquetReaderStage
    from tamis.stages.io.partitioning import FilePartitioningStage
    from tamis.stages.io.shards import MergeShards
    from tamis.stages.io.text import TextReader, TextReaderStage
    from tamis.stages.io.writers import CsvWriter, JsonlWriter, ParquetWriter, TextWriter, WriterStage

_HOMES = {
    "CsvReader": "tamis.stages.io.csv",
    "CsvReaderStage": "tamis.stages.io.csv",
    "CsvWriter": "tamis.stages.io.writers",
    "FilePartitioningStage": "tamis.stages.io.partitioning",
    "JsonlReader": "tamis.stages.io.jsonl",
    "JsonlReaderStage": "tamis.stages.io.jsonl",
    "JsonlWriter": "tamis.stages.io.writers",
    "MergeShards": "tamis.stages.io.shards",
    "ParquetReader": "tamis.stages.io.parquet",
    "ParquetReaderStage": "tamis.stages.io.parquet",
    "ParquetWriter": "tamis.stages.io.writers",
    "TextReader": "tamis.stages.io.text",
    "TextReaderStage": "tamis.stages.io.text",
    "TextWriter": "tamis.stages.io.writers",
    "WriterStage": "tamis.stages.io.writers",
    "byte_size": "tamis.sizes",
}

__all__ = [
    "CsvReader",
    "CsvReaderStage",
    "CsvWriter",
    "FilePartitioningStage",
    "JsonlReader",
    "JsonlReaderStage",
    "JsonlWriter",
    "MergeShards",
    "ParquetReader",
    "ParquetReaderStage",
    "ParquetWriter",
    "TextReader",
    "TextReaderStage",
    "TextWriter",
    "WriterStage",
    "byte_size",
]

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
