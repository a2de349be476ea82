"""The same names as in :mod:`tamis.stages.io`."""

from tamis.stages.io import JsonlReader, ParquetReader

__all__ = ["JsonlReader", "ParquetReader"]
