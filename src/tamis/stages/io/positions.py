"""The names of rows that are read from lines: the file, and the byte where the line starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.errors import redacted
from tamis.stages.io.blocks import Block, Part
from tamis.tasks import RowNames

__all__ = ["all_line_starts", "names_in_block", "names_in_part"]


def all_line_starts(data: bytes) -> NDArray[np.int64]:
    """Where each line starts; a newline at the end starts none.

    >>> all_line_starts(b"a\\n\\nb\\n").tolist()
    [0, 2, 3]
    """
    if not data:
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    starts = np.concatenate([[0], ends + 1])
    return starts[:-1] if data.endswith(b"\n") else starts


def names_in_part(part: Part, starts: NDArray[np.int64]) -> RowNames:
    """The names of rows that start at these bytes of a part of a file."""
    return RowNames((redacted(part.path),), starts + part.byte)


def names_in_block(block: Block, starts: NDArray[np.int64]) -> RowNames:
    """The names of rows that start at these bytes of a block, which may be of several files."""
    if len(block.parts) == 1:
        return names_in_part(block.parts[0], starts)
    of_part = np.searchsorted(np.array(block.starts), starts, side="right") - 1
    shift = np.array([part.byte - start for part, start in zip(block.parts, block.starts, strict=True)], np.int64)
    paths: dict[str, int] = {}
    codes = np.array([paths.setdefault(redacted(part.path), len(paths)) for part in block.parts], np.int32)
    return RowNames(tuple(paths), starts + shift[of_part], codes[of_part] if len(paths) > 1 else None)
