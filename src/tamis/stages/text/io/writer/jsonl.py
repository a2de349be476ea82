"""The same name as in :mod:`tamis.stages.io.writers`."""

from tamis.stages.io.writers import JsonlWriter

__all__ = ["JsonlWriter"]
