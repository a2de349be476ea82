"""The same name as in :mod:`tamis.stages.io.partitioning`."""

from tamis.stages.io.partitioning import FilePartitioningStage

__all__ = ["FilePartitioningStage"]
