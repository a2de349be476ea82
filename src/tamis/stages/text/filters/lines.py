"""Filters that measure the lines and paragraphs of a text.

The *sentences* of a text are its lines (split at newlines) that hold more than white space; its paragraphs are what
``text.split("\\n\\n")`` gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.pieces import Pieces, end_with_any, stripped_lines, sum_of_pieces
from tamis.kernels.utf8 import WHITE_SPACE, CharacterSet, Utf8, measure
from tamis.stages.text.filters.base import DocumentFilter, ThresholdFilter, share
from tamis.stages.text.filters.words import ELLIPSES

__all__ = [
    "LOREM_IPSUM",
    "POLICIES",
    "BoilerPlateStringFilter",
    "BulletsFilter",
    "EllipsisFilter",
    "IncompleteStoryFilter",
    "PunctuationFilter",
    "may_hold_boilerplate",
]

LOREM_IPSUM = "lorem ipsum"
POLICIES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "privacy overview",
    "use of cookies",
    "use cookies",
    "privacy & cookies policy",
    "privacy and cookies policy",
)
"""What a paragraph of a website's small print contains, in lower case."""

_BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")  # noqa: RUF001 - one of them looks like a hyphen
_END_MARKS = (".", "?", "!", '"', "'")
_BULLET_SET, _END_MARK_SET = CharacterSet(_BULLETS), CharacterSet(_END_MARKS)


@dataclass
class BulletsFilter(ThresholdFilter):
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

    def bounds(self) -> tuple[float | None, float | None]:
        return None, self.max_bullet_lines_ratio

    def score_document(self, text: str) -> float:
        found = _sentences(text)
        return sum(s.strip().startswith(_BULLETS) for s in found) / len(found) if found else 1.0

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return _share_of_sentences(column, lambda block, stripped: _BULLET_SET.found_at(block, stripped.starts))


@dataclass
class PunctuationFilter(ThresholdFilter):
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

    def bounds(self) -> tuple[float | None, float | None]:
        return None, self.max_num_sentences_without_endmark_ratio

    def score_document(self, text: str) -> float:
        found = _sentences(text)
        return sum(not s.strip().endswith(_END_MARKS) for s in found) / len(found) if found else 1.0

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        # The marks are single bytes, so it is enough to look at the last byte.
        return _share_of_sentences(column, lambda block, stripped: ~_END_MARK_SET.found_at(block, stripped.ends - 1))


@dataclass
class EllipsisFilter(ThresholdFilter):
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

    def bounds(self) -> tuple[float | None, float | None]:
        return None, self.max_num_lines_ending_with_ellipsis_ratio

    def score_document(self, text: str) -> float:
        found = _sentences(text)
        return sum(s.strip().lower().endswith(ELLIPSES) for s in found) / len(found) if found else 1.0

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        # No character outside ASCII has one of these letters as its lower case, so it is enough to fold ASCII.
        return _share_of_sentences(column, lambda block, stripped: end_with_any(block, stripped, ELLIPSES))


@dataclass
class BoilerPlateStringFilter(ThresholdFilter):
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

    def bounds(self) -> tuple[float | None, float | None]:
        return None, self.max_boilerplate_string_ratio

    def score_document(self, text: str) -> float:
        found = [paragraph.lower() for paragraph in text.split("\n\n")]
        if any(LOREM_IPSUM in paragraph for paragraph in found):
            return 1.0
        return sum(any(policy in paragraph for policy in POLICIES) for paragraph in found) / len(found)

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        texts = pl.Series("text", pl.from_arrow(column)).fill_null("")
        suspects = may_hold_boilerplate(texts).arg_true()
        scores = np.zeros(len(texts), np.float64)
        paragraphs = pl.DataFrame({"row": suspects, "text": texts.gather(suspects).str.split("\n\n")})
        lowered = pl.col("text").str.to_lowercase()
        shares = (
            paragraphs.explode("text")
            .select(
                "row",
                lorem_ipsum=lowered.str.contains(LOREM_IPSUM, literal=True),
                policy=lowered.str.contains_any(list(POLICIES)),
            )
            .group_by("row")
            .agg(pl.when(pl.col("lorem_ipsum").any()).then(1.0).otherwise(pl.col("policy").sum() / pl.len()).alias("s"))
        )
        scores[shares["row"].to_numpy()] = shares["s"].to_numpy()
        return scores


@dataclass
class IncompleteStoryFilter(DocumentFilter):
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

    def reason(self) -> str:
        return "does not end like a finished story"

    def score_document(self, text: str) -> bool:
        return text.rstrip().endswith(tuple(self.endings))

    def keep_document(self, score: bool) -> bool:
        return bool(score)

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        ends = pl.Series(pl.from_arrow(column)).fill_null("").str.strip_chars_end(WHITE_SPACE).str.tail(1)
        return ends.is_in(list(self.endings)).to_numpy()

    def keep_scores(self, scores: pa.Array | NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(scores, np.bool_)


def may_hold_boilerplate(texts: pl.Series) -> pl.Series:
    """Which texts may contain "lorem ipsum" or a policy once they are in lower case: all that do, and few others."""
    # The Kelvin sign is the one character outside ASCII whose lower case is a letter of these phrases.
    kelvin = texts.str.contains("\u212a", literal=True)
    return kelvin | texts.str.contains_any([LOREM_IPSUM, *POLICIES], ascii_case_insensitive=True)


def _sentences(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _share_of_sentences(
    column: pa.ChunkedArray, holds: Callable[[Utf8, Pieces], NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """The share of sentences for which something holds, given them with white space stripped."""

    def score(block: Utf8) -> NDArray[np.float64]:
        found = stripped_lines(block)
        return share(sum_of_pieces(holds(block, found), found.counts), found.counts, 1.0)

    return measure(column, score)
