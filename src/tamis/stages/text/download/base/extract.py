"""What becomes of a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tamis.stages.text.forms import ShownWithParameters

__all__ = ["DocumentExtractor"]


class DocumentExtractor(ShownWithParameters, ABC):
    """Turns a record as it was found into a document: HTML into text, markup into paragraphs.

    >>> class Upper(DocumentExtractor):
    ...     def extract(self, record):
    ...         return {"text": record["raw"].upper()} if record["raw"] else None
    ...     def input_columns(self):
    ...         return ["raw"]
    ...     def output_columns(self):
    ...         return ["text"]
    >>> Upper().extract({"raw": "a"})
    {'text': 'A'}
    """

    @abstractmethod
    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """The document in a record; ``None`` to leave the record out. Records for which it raises are quarantined."""

    @abstractmethod
    def input_columns(self) -> list[str]:
        """What it needs of a record."""

    @abstractmethod
    def output_columns(self) -> list[str]:
        """What its documents have."""

    def reason(self) -> str:
        """Why records are left out, in a few words that are the same for each."""
        return f"left out by {type(self).__name__}"
