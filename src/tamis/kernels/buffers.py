"""The buffers of an Arrow array of texts, for kernels that read them in place and write new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.signatures import PADDING, longest_near_end

__all__ = ["PADDING", "TextBuffers", "check_offsets", "null_rows"]

_WIDTHS: dict[int, np.dtype[Any]] = {
    **{kind.id: np.dtype(np.int32) for kind in (pa.string(), pa.binary())},
    **{kind.id: np.dtype(np.int64) for kind in (pa.large_string(), pa.large_binary())},
}
"""The types of the offsets of texts and byte strings."""


@dataclass(frozen=True)
class TextBuffers:
    """The texts of an Arrow array, in its own memory. The text of a null is undefined.

    Args:
        data: The whole buffer of bytes.
        offsets: Where in ``data`` each text begins, and as the last entry where the last one ends.

    >>> texts = TextBuffers.of(pa.array(["ab", None, "é"]).slice(1))
    >>> texts.data.tobytes(), texts.offsets.tolist()
    (b'ab\\xc3\\xa9', [2, 2, 4])
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, array: pa.Array) -> TextBuffers:
        """The buffers of an array. Texts are copied unless they are (large) strings or binaries.

        Raises ``ValueError`` if the offsets are damaged: a kernel would read beyond the buffer.
        """
        if array.type.id not in _WIDTHS:
            is_binary = pa.types.is_binary_view(array.type) or pa.types.is_fixed_size_binary(array.type)
            array = array.cast(pa.large_binary() if is_binary else pa.large_string())
        _, offsets, data = array.buffers()
        if offsets is None or len(array) == 0:
            return cls(np.zeros(1, np.uint8), np.zeros(len(array) + 1, np.int64))
        width = _WIDTHS[array.type.id]
        found = np.frombuffer(offsets, width, len(array) + 1, array.offset * width.itemsize)
        held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        check_offsets(found, len(held), array.type)
        return cls(held, np.ascontiguousarray(found, np.int64))

    @staticmethod
    def holds(kind: pa.DataType) -> bool:
        """Whether an Arrow type holds texts or byte strings."""
        types = pa.types
        is_view = types.is_string_view(kind) or types.is_binary_view(kind)
        return kind.id in _WIDTHS or is_view or types.is_fixed_size_binary(kind)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """The length of all texts together."""
        return int(self.offsets[-1] - self.offsets[0])

    def tail(self) -> NDArray[np.uint8]:
        """Memory into which a kernel copies a text near the end of the buffer, so that it can read beyond it."""
        return np.empty(longest_near_end(self.offsets, len(self.data)) + 2 * PADDING, np.uint8)

    def text(self, row: int) -> bytes:
        """The bytes of one text."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()


def check_offsets(offsets: NDArray[Any], nbytes: int, kind: pa.DataType) -> None:
    """Raise ``ValueError`` for offsets that point outside of a buffer or are not in ascending order."""
    if offsets[0] < 0 or offsets[-1] > nbytes or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"the offsets of an Arrow array of type {kind} are damaged")


def null_rows(array: pa.Array) -> NDArray[np.bool_]:
    """Which values of an array are null.

    >>> null_rows(pa.array(["a", None])).tolist()
    [False, True]
    """
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(array.is_valid().buffers()[1], np.uint8)
    return ~np.unpackbits(bits, count=len(array), bitorder="little").view(np.bool_)
