"""The buffers of an Arrow array of texts: for kernels that read them in place and write new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["PADDING", "TextBuffers"]

PADDING = 128
"""Bytes after a text that a kernel may read, as in :mod:`tamis.kernels.sources.primitives`."""


@dataclass(frozen=True)
class TextBuffers:
    """The texts of an Arrow array where they are. What stands in the place of a null means nothing.

    Args:
        data: The whole buffer of bytes.
        offsets: Where in it each text begins, and at last where the last one ends.

    >>> texts = TextBuffers.of(pa.array(["ab", None, "é"]).slice(1))
    >>> texts.data.tobytes(), texts.offsets.tolist()
    (b'ab\\xc3\\xa9', [2, 2, 4])
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, array: pa.Array) -> TextBuffers:
        """The buffers of an array; of one of type ``string`` or ``large_string`` no byte of text is copied."""
        if not pa.types.is_string(array.type) and not pa.types.is_large_string(array.type):
            array = array.cast(pa.large_string())
        _, offsets, data = array.buffers()
        if offsets is None or len(array) == 0:
            return cls(np.zeros(1, np.uint8), np.zeros(len(array) + 1, np.int64))
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        places = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        return cls(held, np.ascontiguousarray(places, np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """How long the texts are together."""
        return int(self.offsets[-1] - self.offsets[0])

    def tail(self) -> NDArray[np.uint8]:
        """Memory for a text at the end of the buffer, which a kernel copies in order to read beyond it."""
        first = int(np.searchsorted(self.offsets, len(self.data) - PADDING, side="right")) - 1
        longest = int(np.diff(self.offsets[max(first, 0) :]).max(initial=0))
        return np.empty(longest + 2 * PADDING, np.uint8)

    def text(self, row: int) -> bytes:
        """The bytes of one text."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()
