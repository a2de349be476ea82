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

_MODULES = {
    "csv": "CsvReader CsvReaderStage",
    "jsonl": "JsonlReader JsonlReaderStage",
    "parquet": "ParquetReader ParquetReaderStage",
    "partitioning": "FilePartitioningStage",
    "shards": "MergeShards",
    "text": "TextReader TextReaderStage",
    "writers": "CsvWriter JsonlWriter ParquetWriter TextWriter WriterStage",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}
_HOMES["byte_size"] = "tamis.sizes"

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
