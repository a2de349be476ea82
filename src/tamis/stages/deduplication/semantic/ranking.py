"""Which of similar rows stays: the one that is ranked first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import PlanError, did_you_mean
from tamis.stages.deduplication.keep import Keep
from tamis.tasks import TableTask

__all__ = ["COSINE_DISTANCE", "L2_DISTANCE", "Ranking", "RankingStrategy", "rank_keys"]

COSINE_DISTANCE: Final = "cosine_dist_to_cent"
L2_DISTANCE: Final = "l2_dist_to_cent"
_DISTANCES: Final = {"cosine": COSINE_DISTANCE, "l2": L2_DISTANCE}

Ranks = NDArray[np.uint64]


@dataclass
class RankingStrategy:
    """How rows are ranked by columns.

    Args:
        metadata_cols: The columns, the one that counts most first. ``cosine_dist_to_cent`` and ``l2_dist_to_cent`` are
            the distances from the centre of the cluster.
        ascending: Whether the row with the smallest value stays; one for all columns, or one for each.
        strategy: ``"sort"`` by the columns, or ``"random"``.
        random_seed: For ``"random"``.

    >>> RankingStrategy.metadata_based(["score"], ascending=False).metadata_cols
    ['score']
    """

    metadata_cols: list[str]
    ascending: bool | list[bool] = True
    strategy: Literal["sort", "random"] = "sort"
    random_seed: int = 42

    def __post_init__(self) -> None:
        if self.strategy not in ("sort", "random"):
            raise PlanError(f"RankingStrategy(strategy={self.strategy!r}): must be 'sort' or 'random'")
        if self.strategy == "sort" and not self.metadata_cols:
            raise PlanError("RankingStrategy: strategy='sort' needs metadata_cols")
        if isinstance(self.ascending, list) and len(self.ascending) != len(self.metadata_cols):
            raise PlanError(
                f"RankingStrategy: ascending has {len(self.ascending)} values for {len(self.metadata_cols)} columns"
            )

    @classmethod
    def metadata_based(cls, metadata_cols: list[str], ascending: bool | list[bool] = True) -> RankingStrategy:
        """Rank by columns."""
        return cls(metadata_cols, ascending)

    @classmethod
    def random(cls, random_seed: int = 42) -> RankingStrategy:
        """Rank in a random order."""
        return cls([], strategy="random", random_seed=random_seed)

    @property
    def order(self) -> list[tuple[str, bool]]:
        """The columns, and for each whether the smallest value stays."""
        ascending = self.ascending if isinstance(self.ascending, list) else [self.ascending] * len(self.metadata_cols)
        return list(zip(self.metadata_cols, ascending, strict=True))


@dataclass(frozen=True)
class Ranking:
    """The order of rows in a pipeline. Rows with equal ranks are in the order of their names.

    Args:
        rules: What counts, the most important first: rules for columns, or a distance from the centre of the cluster,
            :data:`COSINE_DISTANCE` or :data:`L2_DISTANCE`, with a minus where the largest stays.
        seed: For a random order; ``None`` for another.
    """

    rules: tuple[Keep | str, ...] = ()
    seed: int | None = None

    @classmethod
    def of(
        cls, which_to_keep: str, distance_metric: str, keep: str | None, strategy: RankingStrategy | None, seed: int
    ) -> Ranking:
        """The order that the parameters of a stage stand for."""
        distance = _DISTANCES.get(distance_metric)
        if distance is None:
            raise PlanError(f"distance_metric={distance_metric!r}: must be 'cosine' or 'l2'")
        known = ("hard", "easy", "random")
        if which_to_keep not in known:
            guess = did_you_mean(which_to_keep, known)
            raise PlanError(f"which_to_keep={which_to_keep!r}: must be one of {', '.join(known)}.{guess}")
        if keep is not None and strategy is not None:
            raise PlanError("sets both keep and ranking_strategy; set only one")
        if keep is not None:
            rule = Keep.parse(keep)
            if rule.rule == "longest":
                raise PlanError(
                    "keep='longest': vectors have no length; rank by a column, as in keep='highest:num_words'"
                )
            return cls(() if rule.rule == "first" else (rule,))
        if strategy is not None:
            if strategy.strategy == "random":
                return cls(seed=strategy.random_seed)
            return cls(tuple(_rule(column, ascending) for column, ascending in strategy.order))
        if which_to_keep == "random":
            return cls(seed=seed)
        return cls((distance if which_to_keep == "easy" else f"-{distance}",))

    @property
    def columns(self) -> list[str]:
        """The columns that are needed for it."""
        return [rule.column for rule in self.rules if isinstance(rule, Keep)]

    @property
    def needs_distances(self) -> bool:
        """Whether distances from the centres of clusters count."""
        return any(isinstance(rule, str) for rule in self.rules)

    def of_rows(self, task: TableTask, keys: Ranks) -> dict[str, Ranks]:
        """The ranks that are known of the rows of a batch: a number for each, of which the smallest stays.

        Args:
            task: The batch.
            keys: A random number for each row.
        """
        if self.seed is not None:
            mixed = (keys ^ np.uint64(self.seed)) * np.uint64(0x9E3779B97F4A7C15)
            return {"rank_0": mixed ^ (mixed >> np.uint64(31))}
        found = {}
        for number, rule in enumerate(self.rules):
            if isinstance(rule, Keep):
                ranks = rule.ranks(task, "")
                assert ranks is not None
                found[f"rank_{number}"] = ranks
        return found

    def of_distances(self, cosine: NDArray[np.float32], l2: NDArray[np.float32]) -> dict[str, Ranks]:
        """The ranks that follow from the distances of rows from the centres of their clusters."""
        found = {}
        for number, rule in enumerate(self.rules):
            if isinstance(rule, str):
                values = cosine if rule.endswith(COSINE_DISTANCE) else l2
                bits = (np.maximum(values, 0) + np.float32(0)).view(np.uint32).astype(np.uint64)
                found[f"rank_{number}"] = ~bits if rule.startswith("-") else bits
        return found


def _rule(column: str, ascending: bool) -> Keep | str:
    if column in _DISTANCES.values():
        return column if ascending else f"-{column}"
    return Keep("lowest" if ascending else "highest", column)


def rank_keys(table: pa.Table, names: Sequence[str]) -> list[Ranks]:
    """The columns of ranks in a table, as keys for ``np.lexsort``: the most important one last."""
    ranks = sorted((name for name in names if name.startswith("rank_")), key=lambda name: int(name[5:]), reverse=True)
    return [numpy_array(table.column(name)) for name in ranks]
