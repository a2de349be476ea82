"""Filters that measure how much of a text is said more than once (Gopher: Rae et al., 2021).

Lines are the ones that hold more than white space, compared as they are; paragraphs are what ``text.split("\\n\\n")``
gives. Each score is the share of the text that is left when repeated ones are taken out, so a *low* score is bad and
the parameters, whose names are those of NeMo Curator, say what must at least be left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.pieces import Pieces, first_in_text, lines, paragraphs, sum_of_pieces
from tamis.kernels.utf8 import Utf8, measure
from tamis.stages.text.filters.base import ThresholdFilter, share

__all__ = [
    "RepeatedLinesByCharFilter",
    "RepeatedLinesFilter",
    "RepeatedParagraphsByCharFilter",
    "RepeatedParagraphsFilter",
]


@dataclass
class RepeatedLinesFilter(ThresholdFilter):
    """Drop text in which many lines are repeated.

    Score: the number of different lines, divided by the number of lines; 0.0 for a text without lines.

    Args:
        max_repeated_line_fraction: The lowest score that is kept, 0 to 1.

    >>> RepeatedLinesFilter().score_document("la\\nla\\nend\\nla")
    0.5
    """

    max_repeated_line_fraction: float = 0.7
    name = "repeated_lines"

    def bounds(self) -> tuple[float | None, float | None]:
        return self.max_repeated_line_fraction, None

    def score_document(self, text: str) -> float:
        return _share_of_pieces(_lines(text))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        def score(block: Utf8) -> NDArray[np.float64]:
            found = lines(block)
            return share(sum_of_pieces(first_in_text(block, found), found.counts), found.counts, 0.0)

        return measure(column, score)


@dataclass
class RepeatedParagraphsFilter(ThresholdFilter):
    """Drop text in which many paragraphs are repeated.

    Score: the number of different paragraphs, divided by the number of paragraphs; 1.0 for an empty text, which is
    one (empty) paragraph and is kept.

    Args:
        max_repeated_paragraphs_ratio: The lowest score that is kept, 0 to 1.

    >>> RepeatedParagraphsFilter().score_document("la\\n\\nla")
    0.5
    """

    max_repeated_paragraphs_ratio: float = 0.7
    name = "repeated_paragraphs"

    def bounds(self) -> tuple[float | None, float | None]:
        return self.max_repeated_paragraphs_ratio, None

    def score_document(self, text: str) -> float:
        return _share_of_pieces(text.split("\n\n"))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        def score(block: Utf8) -> NDArray[np.float64]:
            found = paragraphs(block)
            return share(sum_of_pieces(first_in_text(block, found), found.counts), found.counts, 0.0)

        return measure(column, score)


@dataclass
class RepeatedLinesByCharFilter(ThresholdFilter):
    """Drop text much of which is in repeated lines.

    Score: the characters of the different lines, divided by the characters of all lines; 0.0 for a text without
    lines.

    Args:
        max_repeated_lines_char_ratio: The lowest score that is kept, 0 to 1.

    >>> RepeatedLinesByCharFilter().score_document("la\\nla\\nlast")
    0.75
    """

    max_repeated_lines_char_ratio: float = 0.8
    name = "repeated_lines_char"

    def bounds(self) -> tuple[float | None, float | None]:
        return self.max_repeated_lines_char_ratio, None

    def score_document(self, text: str) -> float:
        return _share_of_characters(_lines(text))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return measure(column, lambda block: _column_share_of_characters(block, lines(block)))


@dataclass
class RepeatedParagraphsByCharFilter(ThresholdFilter):
    """Drop text much of which is in repeated paragraphs.

    Score: the characters of the different paragraphs, divided by the characters of all paragraphs; 0.0 for a text
    whose paragraphs are all empty.

    Args:
        max_repeated_paragraphs_char_ratio: The lowest score that is kept, 0 to 1.

    >>> RepeatedParagraphsByCharFilter().score_document("la\\n\\nla\\n\\nlast")
    0.75
    """

    max_repeated_paragraphs_char_ratio: float = 0.8
    name = "repeated_paragraphs_char"

    def bounds(self) -> tuple[float | None, float | None]:
        return self.max_repeated_paragraphs_char_ratio, None

    def score_document(self, text: str) -> float:
        return _share_of_characters(text.split("\n\n"))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return measure(column, lambda block: _column_share_of_characters(block, paragraphs(block)))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _share_of_pieces(pieces: list[str]) -> float:
    return len(set(pieces)) / len(pieces) if pieces else 0.0


def _share_of_characters(pieces: list[str]) -> float:
    characters = sum(map(len, pieces))
    return sum(map(len, set(pieces))) / characters if characters else 0.0


def _column_share_of_characters(block: Utf8, pieces: Pieces) -> NDArray[np.float64]:
    lengths = pieces.lengths(block)
    kept = sum_of_pieces(np.where(first_in_text(block, pieces), lengths, 0), pieces.counts)
    return share(kept, sum_of_pieces(lengths, pieces.counts), 0.0)
