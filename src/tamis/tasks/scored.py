"""The scores that a stage gave to the rows of a batch, kept ones and dropped ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.arrays import numpy_array

__all__ = ["Bounds", "Scored", "numbers_of"]

Bounds = tuple[float | None, float | None]
"""The lowest and the highest score that are kept; ``None`` where there is no bound."""


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of rows by one criterion. It travels with the batch until the scores are counted.

    Args:
        name: What is scored: the name of the filter, or the reason of a drop.
        scores: The score of each row.
        kept: Whether each row was kept; ``None`` when all were.
        bounds: The scores that are kept, where that is known.
        inverted: Whether scores within the bounds are dropped instead.
        stage: For several stages that run as one, the position of the one that gave the scores.
        rows: The numbers of the rows in the batch that the stage was given; ``None`` where that is not known.
    """

    name: str
    scores: NDArray[np.float64]
    kept: NDArray[np.bool_] | None = None
    bounds: Bounds = (None, None)
    inverted: bool = False
    stage: int = 0
    rows: NDArray[np.int64] | None = None


def numbers_of(scores: Any) -> NDArray[np.float64] | None:
    """Scores of an Arrow array as floating-point numbers; ``None`` if they are not numbers, or some are missing.

    >>> import pyarrow as pa
    >>> numbers_of(pa.array([1, 2])).tolist(), numbers_of(pa.array(["en"])), numbers_of(pa.array([1, None]))
    ([1.0, 2.0], None, None)
    """
    import pyarrow as pa

    if not (pa.types.is_floating(scores.type) or pa.types.is_integer(scores.type)) or scores.null_count:
        return None
    return np.ascontiguousarray(numpy_array(scores), np.float64)
