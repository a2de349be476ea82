"""Which rows of a batch of images have an image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.tasks import ImageBatch
from tamis.tasks.media import column_values

__all__ = ["rows_with_image"]


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
