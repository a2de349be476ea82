"""Reading and writing: any fsspec path, JSON lines, Parquet, CSV and text."""

from tamis.sizes import byte_size
from tamis.stages.io.csv import CsvReader, CsvReaderStage
from tamis.stages.io.jsonl import JsonlReader, JsonlReaderStage
from tamis.stages.io.parquet import ParquetReader, ParquetReaderStage
from tamis.stages.io.partitioning import FilePartitioningStage
from tamis.stages.io.paths import publish
from tamis.stages.io.shards import MergeShards
from tamis.stages.io.text import TextReader, TextReaderStage
from tamis.stages.io.writers import CsvWriter, JsonlWriter, ParquetWriter, TextWriter, WriterStage

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
    "publish",
]
