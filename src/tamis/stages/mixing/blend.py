"""Mix sources in given shares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.errors import DataError, PlanError, did_you_mean
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.mixing.quota import Group, Quota, take_quotas
from tamis.stages.mixing.row_keys import check_identity
from tamis.tasks import DocumentBatch

__all__ = ["Blend"]


@dataclass(repr=False)
class Blend(CompositeStage[DocumentBatch, DocumentBatch]):
    """Mix sources so that each has a given share of the output, by rows, bytes or any other size.

    The rows of a source that is too large are sampled; those of one that is too small are repeated: all of them as
    often as they fit, and a sample once more. Rows stay in their order, the copies of a batch after it; put a
    :class:`~tamis.stages.mixing.GlobalShuffle` after this stage to mix them. Sizes are known once all rows were read:
    they are written to the run directory meanwhile, not held in memory.

    What is chosen follows from the seed and from what identifies the rows, so it is the same for any number of workers
    and however the input is cut into batches.

    Args:
        weights: The share of each source, by its name. They need not add up to 1. Rows of other sources are left out.
        by: The column that says which source a row is from, as :class:`~tamis.stages.mixing.ReadSources` writes it.
        target: The size of the output, in rows, bytes or what else ``measure`` is. When not given: as much as there can
            be without repeating a row.
        measure: What shares and target are counted in: ``"rows"``, ``"bytes"`` (of text), or a column of whole numbers
            such as a count of tokens. By these, each source meets its share to within one row.
        text_field: The column whose UTF-8 bytes are counted.
        max_epochs: How often a source may be passed over at most; beyond that the run stops. Muennighoff et al.,
            "Scaling Data-Constrained Language Models", 2023, found up to four passes to be nearly as good as new data.
            No limit when not given.
        seed: Another seed chooses other rows.
        id_fields: Columns that identify rows, such as ``["id"]``. When not given, the name of a row identifies it: its
            file, without the directory, and its position there.
        repeat_field: A column that gets the number of each copy of a row, from 0; none when not given.

    >>> from tamis.testing import run_stage
    >>> rows = [{"source": "wiki"}] * 2 + [{"source": "web"}] * 10
    >>> run = run_stage(Blend({"wiki": 1, "web": 1}, target=6), rows)
    >>> sum(row["source"] == "wiki" for row in run), sum(row["source"] == "web" for row in run)
    (3, 3)
    """

    weights: dict[str, float]
    by: str = "source"
    target: int | None = None
    measure: str = "rows"
    text_field: str = "text"
    max_epochs: float | None = None
    seed: int = 0
    id_fields: list[str] | None = None
    repeat_field: str | None = None
    name: str = "Blend"

    def __post_init__(self) -> None:
        check_identity("Blend", self.id_fields, self.seed)
        if not self.weights:
            raise PlanError("Blend(weights={}): give the share of each source")
        for source, weight in self.weights.items():
            if not isinstance(source, str) or not isinstance(weight, int | float):
                raise PlanError(f"Blend(weights={{{source!r}: {weight!r}}}): give names of sources, and numbers")
            if not 0 < weight < math.inf:
                raise PlanError(f"Blend(weights={{{source!r}: {weight}}}): must be more than 0; leave others out")
        if self.target is not None and self.target < 1:
            raise PlanError(f"Blend(target={self.target}): must be at least 1")
        if self.max_epochs is not None and self.max_epochs <= 0:
            raise PlanError(f"Blend(max_epochs={self.max_epochs}): must be more than 0")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        rows = (self.by, self.measure, self.text_field, self.seed, self.id_fields)
        quota = BlendQuota(*rows, self.weights, self.target, self.max_epochs)
        return take_quotas(self.name, quota, self.repeat_field)


@dataclass(repr=False)
class BlendQuota(Quota):
    """To each source its share."""

    weights: dict[str, float]
    target: int | None
    max_epochs: float | None

    purpose: ClassVar[str] = "Blend"
    counts_groups: ClassVar[bool] = True

    def wanted(self, sizes: Mapping[Group, int]) -> Mapping[Group, int]:
        for source in self.weights:
            if not sizes.get(source):
                known = [group for group in sizes if group is not None]
                raise DataError(
                    f"Blend: {source!r} has a weight, but no rows with anything in them: the column {self.by!r} has "
                    f"{', '.join(map(repr, sorted(known))) or 'no values'}.{did_you_mean(source, known)}"
                )
        total = sum(self.weights.values())
        shares = {source: weight / total for source, weight in self.weights.items()}
        target = self.target
        if target is None:
            target = min(int(sizes[source] / share) for source, share in shares.items())
        wanted: dict[Group, int] = {source: round(share * target) for source, share in shares.items()}
        if self.target is None:
            wanted = {source: min(amount, sizes[source]) for source, amount in wanted.items()}
        for source in self.weights:
            amount = wanted[source]
            if self.max_epochs is not None and amount > self.max_epochs * sizes[source]:
                raise DataError(
                    f"Blend: {source!r} would be repeated {amount / sizes[source]:.2f} times, more than "
                    f"max_epochs={self.max_epochs}",
                    hint=f"It has {sizes[source]:,} {self.measure}, its share of {target:,} is {amount:,}. Lower the "
                    "target or its weight, add data, or allow more epochs.",
                )
        return wanted

    def reason(self, group: Group) -> str:
        return f"beyond the share of {group}" if group in self.weights else "its source has no weight"
