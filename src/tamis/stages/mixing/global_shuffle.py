"""Put all rows into a random order, across all tasks: an exchange that sorts by a random key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tamis.arrays import arrow_array
from tamis.stages.exchange import Exchange
from tamis.stages.mixing.row_keys import check_identity, row_keys
from tamis.tasks import DocumentBatch

__all__ = ["GlobalShuffle"]

_KEY = "_shuffle_key"


@dataclass(repr=False)
class GlobalShuffle(Exchange[DocumentBatch, DocumentBatch]):
    """Put the rows of the whole input into a random order.

    The order follows from the seed and from what the rows are: it is the same for any number of workers and of
    partitions, and however the input is cut into batches.

    Args:
        seed: Another seed gives another order.
        id_fields: Columns that tell rows apart, such as ``["id"]``; rows with equal values in them come one after the
            other. When not given, a row is its name: the file it comes from and its position there.
        partitions: How many parts the rows are sorted in; as many can be worked on at the same time.
        partition_bytes: How much of a partition may be in memory at once, in bytes; as much goes on as one batch. Rows
            with equal ``id_fields`` are held together, however many they are.

    >>> GlobalShuffle(seed=7).partitions
    16
    """

    seed: int = 0
    id_fields: list[str] | None = None
    partitions: int = 16
    partition_bytes: int = 256 * 2**20
    name: str = "GlobalShuffle"

    key: ClassVar[str] = _KEY  # type: ignore[misc]  # the same for all
    partitioning: ClassVar[Literal["hash", "range"]] = "range"  # type: ignore[misc]
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "same"
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_identity("GlobalShuffle", self.id_fields, self.seed)
        self._check()

    @property
    def bounds(self) -> Sequence[int]:  # type: ignore[override]  # keys are spread evenly
        """The first key of each partition but the first."""
        return [number * 2**64 // self.partitions for number in range(1, self.partitions)]

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.id_fields or ())

    def map(self, batch: DocumentBatch) -> DocumentBatch:
        return batch.with_column(_KEY, arrow_array(row_keys(batch, self.id_fields, self.seed, "shuffle")))

    def reduce(self, rows: DocumentBatch) -> Any:
        return rows.with_same_rows(rows.data.drop_columns([_KEY]))
