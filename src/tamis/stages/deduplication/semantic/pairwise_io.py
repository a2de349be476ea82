"""The files of clusters, one task for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tamis.stages.base import SourceStage
from tamis.stages.io import FilePartitioningStage
from tamis.tasks import EmptyTask, FileGroup

__all__ = ["ClusterWiseFilePartitioningStage"]

_CLUSTER: Final = re.compile(r"(?:^|/)centroid=(\d+)/")


@dataclass
class ClusterWiseFilePartitioningStage(SourceStage[EmptyTask, FileGroup]):
    """One task for the files of each cluster, which k-means wrote to ``<input_path>/centroid=<k>/``.

    Args:
        input_path: The directory above those of the clusters.
        storage_options: For the fsspec file system.

    >>> ClusterWiseFilePartitioningStage("clusters").name
    'ClusterWiseFilePartitioningStage'
    """

    input_path: str
    storage_options: dict[str, Any] | None = field(default=None, repr=False)

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from self.noting_input(self._clusters(scratch))

    def _clusters(self, scratch: str) -> Iterator[FileGroup]:
        files = FilePartitioningStage(
            self.input_path,
            files_per_partition=1,
            file_extensions=[".parquet"],
            storage_options=self.storage_options or {},
        )
        clusters: dict[int, FileGroup] = {}
        for file in files.splits(scratch):
            found = _CLUSTER.search(file.data[0])
            if found is None:
                continue
            known = clusters.get(int(found[1]))
            if known is None:
                file.reader_config = {**file.reader_config, "centroid": int(found[1])}
                clusters[int(found[1])] = file
            else:
                known.data = [*known.data, *file.data]
                known.slices = (*known.slices, *file.slices)
        for cluster in sorted(clusters):
            yield clusters[cluster]
