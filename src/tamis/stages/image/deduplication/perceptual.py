"""Perceptual deduplication as one stage of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.errors import PlanError
from tamis.kernels.hamming import check_distance
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.fuzzy.buckets import BucketPartitions
from tamis.stages.deduplication.fuzzy.groups import GroupPartitions, JoinEdges, MemberFiles, SendMembers
from tamis.stages.deduplication.fuzzy.index import NEW_FILES
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import KeptRows, RemoveMarked
from tamis.stages.deduplication.memory import DEFAULT_MEMORY, memory_bytes
from tamis.stages.image.deduplication.hashes import check_kind
from tamis.stages.image.deduplication.similar import (
    ChooseAmongSimilar,
    FindSimilar,
    GroupEqual,
    HashImages,
    HashParts,
    SimilarEdges,
)
from tamis.stages.spill import folder_for
from tamis.tasks import TableTask

__all__ = ["REASON", "PerceptualDeduplication"]

REASON = "perceptual duplicate"


@dataclass
class PerceptualDeduplication(CompositeStage[TableTask, TableTask]):
    """Keep one of each group of images that look the same: resized, compressed again, a little lighter or darker.

    Images are similar if their perceptual hashes, of 64 bits, differ in at most ``max_distance`` bits. All such pairs
    are found. Similar images, and those similar to these, form a group. The answer depends on nothing but the images
    and the names of the rows. A row without a hash (null in ``hash_field``) is not a duplicate of anything.

    The drop ledger says of each duplicate which row is kept in its place (``score_text``), and which share of the bits
    is equal (``score``): 1 less a 64th for each bit that differs. Rows of a group may differ in more bits than
    ``max_distance`` from the one that is kept.

    Args:
        kind: Which hash: ``"phash"``, ``"dhash"`` or ``"ahash"``; see
            :class:`~tamis.stages.image.deduplication.hashes.PerceptualHash`.
        max_distance: How many bits may differ, 0 to 16. With much more than 4, different pictures are taken for the
            same.
        keep: Which image of a group stays: the ``"first"`` by name (path, then position), or the ``"highest:COLUMN"``
            or ``"lowest:COLUMN"``, such as ``"highest:width"``. Ties go to the first.
        hash_field: A column that has the hashes already; the images are not read then.
        exact: Whether the bits are those of whole images; see
            :class:`~tamis.stages.image.deduplication.hashes.PerceptualHash`.
        partitions: How many parts hashes and groups are divided into; as many can be worked on at the same time.
        memory_budget: Memory for the tables of this stage on one machine, in bytes or as ``"8GB"``. What does not fit
            is worked on in parts that are kept on disk.

    >>> from tamis.testing import run_stage
    >>> run = run_stage(PerceptualDeduplication(hash_field="phash"), [{"phash": 7}, {"phash": 255}, {"phash": 6}])
    >>> [row["phash"] for row in run], run.dropped[0].reason
    ([7, 255], 'perceptual duplicate')
    """

    kind: str = "phash"
    max_distance: int = 4
    keep: str = "first"
    hash_field: str | None = None
    exact: bool = True
    partitions: int = 16
    memory_budget: int | str = DEFAULT_MEMORY
    name: str = "PerceptualDeduplication"

    def __post_init__(self) -> None:
        check_kind("kind", self.kind)
        if not 1 <= self.partitions <= 2**15:
            raise PlanError(f"partitions={self.partitions}: must be from 1 to {2**15}")
        try:
            check_distance(self.max_distance)
        except ValueError as error:
            raise PlanError(str(error)) from None
        keep = Keep.parse(self.keep)
        if keep.rule == "longest":
            raise PlanError(f"keep={self.keep!r} is for texts: say highest:COLUMN, as in keep='highest:width'")
        self.keep = str(keep)
        memory_bytes(type(self).__name__, self.memory_budget)

    def inputs(self) -> tuple[list[str], list[str]]:
        return self._hashing("").inputs()

    def _hashing(self, folder: str) -> HashImages:
        return HashImages(folder, self.kind, self.hash_field or "", self.exact, Keep.parse(self.keep), self.partitions)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, parts = folder_for(self.name), self.partitions
        memory = memory_bytes(self.name, self.memory_budget)
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "hash": self._hashing(folder),
            "equal hashes": BucketPartitions(folder, memory),
            "group": GroupEqual(folder, parts),
            "parts": HashParts(folder, self.max_distance, memory),
            "compare": FindSimilar(folder, self.max_distance),
            "all edges": SimilarEdges(folder),
            "join": JoinEdges(folder, memory),
            "members": MemberFiles(folder),
            "send": SendMembers(folder, parts),
            "groups": GroupPartitions(folder, memory),
            "choose": ChooseAmongSimilar(folder, parts),
            "rows": KeptRows(folder, NEW_FILES),
        }
        named = [stage.with_(name=f"{self.name} ({name})") for name, stage in stages.items()]
        return [*named, RemoveMarked(folder, REASON).with_(name=self.name)]
