"""Which rows of a batch of images have an image, and how stages tell that one cannot be decoded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import DataError
from tamis.tasks import ImageBatch
from tamis.tasks.media import column_values

__all__ = ["failing_rows_alone", "rows_with_image"]


def rows_with_image(batch: ImageBatch) -> NDArray[np.bool_]:
    """Which rows have an image: pixels, bytes or a path.

    >>> rows_with_image(ImageBatch({"image_path": ["a.jpg", None]})).tolist()
    [True, False]
    """
    present = np.zeros(batch.num_items, np.bool_)
    for name in ("image_data", batch.bytes_column, batch.path_column):
        values = column_values(batch, name, batch.num_items)
        if values is not None:
            present |= numpy_array(values.is_valid())
    return present


@contextlib.contextmanager
def failing_rows_alone() -> Iterator[None]:
    """Let an image that cannot be decoded fail as a row does: it is set aside, and the run goes on.

    A ``DataError`` would end the run, as one of a reader does that is told to stop.
    """
    try:
        yield
    except DataError as error:
        raise ValueError(str(error)) from error
