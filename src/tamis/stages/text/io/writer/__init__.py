"""The same names as in :mod:`tamis.stages.io`."""

from tamis.stages.io import JsonlWriter, ParquetWriter

__all__ = ["JsonlWriter", "ParquetWriter"]
