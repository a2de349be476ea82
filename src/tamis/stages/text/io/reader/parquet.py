"""The same names as in :mod:`tamis.stages.io.parquet`."""

from tamis.stages.io.parquet import ParquetReader, ParquetReaderStage

__all__ = ["ParquetReader", "ParquetReaderStage"]
