"""The same name as in :mod:`tamis.stages.io.writers`."""

from tamis.stages.io.writers import ParquetWriter

__all__ = ["ParquetWriter"]
