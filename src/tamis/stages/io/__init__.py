"""Reading and writing: any fsspec path, JSON lines, Parquet, CSV and text; reading Arrow files.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.sizes import byte_size as byte_size
    from tamis.stages.io.arrow import ArrowReader as ArrowReader
    from tamis.stages.io.arrow import ArrowReaderStage as ArrowReaderStage
    from tamis.stages.io.csv import CsvReader as CsvReader
    from tamis.stages.io.csv import CsvReaderStage as CsvReaderStage
    from tamis.stages.io.jsonl import JsonlReader as JsonlReader
    from tamis.stages.io.jsonl import JsonlReaderStage as JsonlReaderStage
    from tamis.stages.io.parquet import ParquetReader as ParquetReader
    from tamis.stages.io.parquet import ParquetReaderStage as ParquetReaderStage
    from tamis.stages.io.partitioning import FilePartitioningStage as FilePartitioningStage
    from tamis.stages.io.shards import MergeShards as MergeShards
    from tamis.stages.io.text import TextReader as TextReader
    from tamis.stages.io.text import TextReaderStage as TextReaderStage
    from tamis.stages.io.writers import CsvWriter as CsvWriter
    from tamis.stages.io.writers import JsonlWriter as JsonlWriter
    from tamis.stages.io.writers import ParquetWriter as ParquetWriter
    from tamis.stages.io.writers import TextWriter as TextWriter
    from tamis.stages.io.writers import WriterStage as WriterStage

_MODULES = {
    "arrow": "ArrowReader ArrowReaderStage",
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

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
