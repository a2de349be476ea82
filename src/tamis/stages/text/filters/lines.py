"""Filters that measure the lines and paragraphs of a text.

The *sentences* of a text are its lines (split at newlines) that hold more than white space; its paragraphs are what
``text.split("\\n\\n")`` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import measures
from tamis.kernels.heuristics import BULLETS, ELLIPSES, LOREM_IPSUM, POLICIES
from tamis.kernels.utf8 import WHITE_SPACE
from tamis.stages.text.filters.base import SHARE, ThresholdFilter, text_series
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.words import get_sentences

__all__ = ["BoilerPlateStringFilter", "BulletsFilter", "EllipsisFilter", "IncompleteStoryFilter", "PunctuationFilter"]

_END_MARKS = (".", "?", "!", '"', "'")


@dataclass
class BulletsFilter(MeasuredFilter):
    """Drop text whose lines nearly all begin with a bullet.

    Score: the share of sentences that begin with one; 1.0 for a text without sentences. The rule is Gopher's (Rae et
    al., 2021).

    Args:
        max_bullet_lines_ratio: The highest share that is kept, 0 to 1.

    >>> BulletsFilter().score_document("List:\\n • one")
    0.5
    """

    max_bullet_lines_ratio: float = 0.9
    name = "bullet_ratio"
    score_range = SHARE
    measured = Ratio(measures.BULLET_LINES, measures.LINES, empty=1.0)

    def score_document(self, text: str) -> float:
        found = get_sentences(text)
        return sum(s.strip().startswith(tuple(BULLETS)) for s in found) / len(found) if found else 1.0


@dataclass
class PunctuationFilter(MeasuredFilter):
    """Drop text whose lines nearly all lack punctuation at the end.

    Score: the share of sentences that do not end in one of ``. ? ! " '``; 1.0 for a text without sentences. The rule
    is C4's (Raffel et al., 2020).

    Args:
        max_num_sentences_without_endmark_ratio: The highest share that is kept, 0 to 1.

    >>> PunctuationFilter().score_document("A title\\nA sentence.")
    0.5
    """

    max_num_sentences_without_endmark_ratio: float = 0.85
    name = "punctuation"
    score_range = SHARE
    measured = Ratio(measures.UNMARKED_LINES, measures.LINES, empty=1.0)

    def score_document(self, text: str) -> float:
        found = get_sentences(text)
        return sum(not s.strip().endswith(_END_MARKS) for s in found) / len(found) if found else 1.0


@dataclass
class EllipsisFilter(MeasuredFilter):
    """Drop text with too many lines that break off.

    Score: the share of sentences that end in an ellipsis or "read more", in upper or lower case; 1.0 for a text
    without sentences. The rule is C4's (Raffel et al., 2020).

    Args:
        max_num_lines_ending_with_ellipsis_ratio: The highest share that is kept, 0 to 1.

    >>> EllipsisFilter().score_document("So it begins...\\nThe end.")
    0.5
    """

    max_num_lines_ending_with_ellipsis_ratio: float = 0.3
    name = "ellipsis"
    score_range = SHARE
    measured = Ratio(measures.ELLIPSIS_LINES, measures.LINES, empty=1.0)

    def score_document(self, text: str) -> float:
        found = get_sentences(text)
        return sum(s.strip().lower().endswith(ELLIPSES) for s in found) / len(found) if found else 1.0


@dataclass
class BoilerPlateStringFilter(MeasuredFilter):
    """Drop text with too many paragraphs of small print: terms of use, privacy and cookie policies.

    Score: the share of paragraphs with such a phrase, in upper or lower case; 1.0 if any has "lorem ipsum"; 0.0 for an
    empty text, which is kept. The rule is C4's (Raffel et al., 2020).

    Args:
        remove_if_at_top_or_bottom: Of no effect: here so that scripts that set it keep running.
        max_boilerplate_string_ratio: The highest share that is kept, 0 to 1.

    >>> BoilerPlateStringFilter().score_document("News.\\n\\nThis site uses cookies.")
    0.5
    """

    remove_if_at_top_or_bottom: bool = True
    max_boilerplate_string_ratio: float = 0.4
    name = "boilerplate_string_ratio"
    score_range = SHARE
    measured = Ratio(measures.POLICY_PARAGRAPHS, measures.PARAGRAPHS)

    def score_document(self, text: str) -> float:
        found = [paragraph.lower() for paragraph in text.split("\n\n")]
        if any(LOREM_IPSUM in paragraph for paragraph in found):
            return 1.0
        return sum(any(policy in paragraph for policy in POLICIES) for paragraph in found) / len(found)


@dataclass
class IncompleteStoryFilter(ThresholdFilter):
    """Keep text that ends like a finished story: with the end of a sentence or a closing quotation mark.

    Score: whether the last character that is not white space is one of the endings; ``False`` for an empty text.

    Args:
        endings: The characters a finished text may end with.

    >>> keeps = IncompleteStoryFilter()
    >>> keeps.score_document("The end.\\n"), keeps.score_document("And then the")
    (True, False)
    """

    endings: str = ".!?…。！？؟۔।\"'”’»›」』"  # noqa: RUF001 - the marks of several scripts are meant
    name = "incomplete_story"

    def bounds(self) -> tuple[float | None, float | None]:
        return 1, None

    def reason(self) -> str:
        return "does not end like a finished story"

    def score_document(self, text: str) -> bool:
        return text.rstrip().endswith(tuple(self.endings))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        ends = text_series(column).str.strip_chars_end(WHITE_SPACE).str.tail(1)
        return ends.is_in(list(self.endings)).to_numpy()
