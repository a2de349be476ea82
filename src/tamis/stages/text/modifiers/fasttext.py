"""A modifier that prepares text for training fastText."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tamis.kernels.cleaning import put_label
from tamis.stages.text.modifiers.base import DocumentModifier, clean_column

__all__ = ["FastTextLabelModifier"]


@dataclass
class FastTextLabelModifier(DocumentModifier):
    """Make each text one line of fastText's training data: a label, a space, and the text.

    In the text, newlines and ``__label__``, which would begin another label, become spaces.

    Args:
        label: The label, as fastText wants it: ``__label__`` and a name.

    >>> FastTextLabelModifier("__label__hq").modify_document("Two\\nlines.")
    '__label__hq Two lines.'
    """

    label: str

    def modify_document(self, text: str) -> str:
        line = text.replace("\n", " ").replace("__label__", " ")
        return f"{self.label} {line}"

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return clean_column(column, put_label(self.label), self)
