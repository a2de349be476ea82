"""Documents close to a threshold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.analysis.result import Analysis
from tamis.stages.text.filters.base import ThresholdFilter

EXAMPLES: Final = 2
"""How many documents are shown on either side of a threshold."""

_CANDIDATES: Final = 50


@dataclass(frozen=True)
class Example:
    """A document of the sample: its score, how it begins, and the name of its row (file and position there)."""

    score: float
    excerpt: str
    name: str


@dataclass(frozen=True)
class Neighbours:
    """The documents nearest to a threshold: those that are kept and those that are dropped, nearest first."""

    threshold: float
    kept: list[Example]
    dropped: list[Example]


def neighbours(analysis: Analysis, one: ThresholdFilter) -> Iterator[Neighbours]:
    """The documents nearest to each threshold of a filter. Which ones follows from the data alone."""
    scores = analysis.scores(one.name)
    low, high = one.bounds()
    kept = one.keep_scores(scores)
    for bound, is_beyond in ((low, np.less), (high, np.greater)):
        if bound is not None:
            dropped = is_beyond(scores, bound)
            # The sample is in the order of its keys, so that a stable sort leaves nothing to chance.
            nearest = np.argsort(np.abs(scores - bound), kind="stable")
            yield Neighbours(
                bound,
                _examples(analysis, one.name, nearest[kept[nearest]]),
                _examples(analysis, one.name, nearest[dropped[nearest]]),
            )


def _examples(analysis: Analysis, score: str, rows: NDArray[np.int64]) -> list[Example]:
    """The first of these rows that are different."""
    some = analysis.sample[rows[:_CANDIDATES]].unique("excerpt", keep="first", maintain_order=True).head(EXAMPLES)
    return [
        Example(row[score], row["excerpt"], f"{row['source']}:{row['position']}{row['part'] or ''}")
        for row in some.iter_rows(named=True)
    ]
