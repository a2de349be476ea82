"""Keep a random part of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.mixing.quota import Group, Quota, take_quotas
from tamis.stages.mixing.row_keys import as_shares, check_identity, row_keys
from tamis.tasks import DocumentBatch

__all__ = ["Sample"]

_REASON = "not sampled"


@dataclass(repr=False)
class Sample(CompositeStage[DocumentBatch, DocumentBatch]):
    """Keep a share of the rows, or a number of them, chosen at random. They stay in their order.

    What is kept follows from the seed and from what identifies the rows, so it is the same for any number of workers
    and however the input is cut into batches.

    A share without ``by`` is decided row by row, while the data streams: about that share is kept. Everything else is
    exact, and all rows must be read first: they are written to the run directory meanwhile.

    Args:
        fraction: The share to keep, from 0 to 1.
        rows: How many rows to keep, instead of a share; all of them where there are fewer.
        by: A column: ``fraction`` or ``rows`` are then kept of the rows with each of its values (stratified sampling).
        seed: Another seed chooses other rows. Two samples in one pipeline need two seeds to be independent.
        id_fields: Columns that identify rows, such as ``["id"]``: rows with equal values in them are kept or dropped
            together where a share is kept row by row. When not given, the name of a row identifies it: its file,
            without the directory, and its position there.

    >>> from tamis.testing import run_stage
    >>> rows = [{"lang": "en", "n": n} for n in range(9)] + [{"lang": "de", "n": 9}]
    >>> run = run_stage(Sample(rows=2, by="lang"), rows)
    >>> [row["lang"] for row in run], len(run.dropped)
    (['en', 'en', 'de'], 7)
    """

    fraction: float | None = None
    rows: int | None = None
    by: str | None = None
    seed: int = 0
    id_fields: list[str] | None = None
    name: str = "Sample"

    def __post_init__(self) -> None:
        check_identity("Sample", self.id_fields, self.seed)
        if (self.fraction is None) == (self.rows is None):
            raise PlanError("Sample: set either fraction or rows")
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise PlanError(f"Sample(fraction={self.fraction}): must be from 0 to 1")
        if self.rows is not None and self.rows < 0:
            raise PlanError(f"Sample(rows={self.rows}): must not be negative")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Sample one batch: only a share without ``by`` is decided without the rest of the input."""
        if self.fraction is None or self.by is not None:
            raise PlanError(f"{self.name}: rows= and by= need the whole input; run the stage in a pipeline")
        return SampleFraction(self.fraction, self.seed, self.id_fields).process(task)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if self.fraction is not None and self.by is None:
            return [SampleFraction(self.fraction, self.seed, self.id_fields).with_(name=self.name)]
        quota = SampleQuota(self.by, "rows", "", self.seed, self.id_fields, self.fraction, self.rows)
        return take_quotas(self.name, quota)


@dataclass(repr=False)
class SampleFraction(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keep each row with some probability, by its key."""

    fraction: float
    seed: int
    id_fields: list[str] | None

    releases_gil: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.id_fields or ())

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        keys = row_keys(task, self.id_fields, self.seed, SampleQuota.purpose)
        return task.keep(as_shares(keys) < self.fraction, _REASON)


@dataclass(repr=False)
class SampleQuota(Quota):
    """The same share, or the same number, of each group."""

    fraction: float | None
    rows: int | None

    purpose: ClassVar[str] = "Sample"

    def wanted(self, sizes: Mapping[Group, int]) -> Mapping[Group, int]:
        if self.rows is not None:
            return {group: min(self.rows, size) for group, size in sizes.items()}
        return {group: round((self.fraction or 0.0) * size) for group, size in sizes.items()}

    def reason(self, group: Group) -> str:
        return _REASON
