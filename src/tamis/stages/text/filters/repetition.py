"""Filters that measure how much of a text is said more than once (Gopher: Rae et al., 2021).

Lines are the ones that hold more than white space, compared as they are; paragraphs are what ``text.split("\\n\\n")``
gives, blank ones included. Each score is the share of the text that is left when repeated ones are taken out, so a
*low* score is bad and the parameters, whose names are those of NeMo Curator, say what must at least be left.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tamis.kernels import measures
from tamis.stages.text.filters.base import SHARE
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.filters.words import WordFilter
from tamis.stages.text.words import get_ngrams, get_paragraphs, get_sentences

__all__ = [
    "RepeatedLinesByCharFilter",
    "RepeatedLinesFilter",
    "RepeatedParagraphsByCharFilter",
    "RepeatedParagraphsFilter",
    "RepeatingDuplicateNGramsFilter",
    "RepeatingTopNGramsFilter",
]


class _WithoutRepetitions(MeasuredFilter):
    """Scores what is left. Its parameter, although it is called ``max_``, is the lowest score that is kept."""

    score_range = SHARE

    def bounds(self) -> tuple[float | None, float | None]:
        return super().bounds()[1], None


@dataclass
class RepeatedLinesFilter(_WithoutRepetitions):
    """Drop text in which many lines are repeated.

    Score: the number of different lines, divided by the number of lines; 0.0 for a text without lines.

    Args:
        max_repeated_line_fraction: The lowest score that is kept, 0 to 1.

    >>> RepeatedLinesFilter().score_document("la\\nla\\nend\\nla")
    0.5
    """

    max_repeated_line_fraction: float = 0.7
    name = "repeated_lines"
    measured = Ratio(measures.UNIQUE_LINES, measures.LINES)

    def score_document(self, text: str) -> float:
        return _share_of_pieces(get_sentences(text))


@dataclass
class RepeatedParagraphsFilter(_WithoutRepetitions):
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
    measured = Ratio(measures.UNIQUE_PARAGRAPHS, measures.PARAGRAPHS)

    def score_document(self, text: str) -> float:
        return _share_of_pieces(get_paragraphs(text))


@dataclass
class RepeatedLinesByCharFilter(_WithoutRepetitions):
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
    measured = Ratio(measures.UNIQUE_LINE_CHARACTERS, measures.LINE_CHARACTERS)

    def score_document(self, text: str) -> float:
        return _share_of_characters(get_sentences(text))


@dataclass
class RepeatedParagraphsByCharFilter(_WithoutRepetitions):
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
    measured = Ratio(measures.UNIQUE_PARAGRAPH_CHARACTERS, measures.PARAGRAPH_CHARACTERS)

    def score_document(self, text: str) -> float:
        return _share_of_characters(get_paragraphs(text))


@dataclass
class RepeatingTopNGramsFilter(WordFilter):
    """Drop text much of which is one sequence of words over and over.

    Score: the share of characters that go when the most frequent sequence of ``n`` words, written with single spaces,
    is removed from the text; 1.0 for a text of fewer words. Of several equally frequent ones, the first counts.

    Args:
        n: How many words a sequence has.
        max_repeating_ngram_ratio: The highest share that is kept, 0 to 1.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> RepeatingTopNGramsFilter(n=2).score_document("ha ha ha ha then")
    0.625
    """

    n: int = 2
    max_repeating_ngram_ratio: float = 0.2
    lang: str = "en"
    score_range = SHARE

    def __post_init__(self) -> None:
        _check_n(self.n, type(self).__name__)
        self.name = f"repeating_top_{self.n}grams"

    def score_document(self, text: str) -> float:
        counts = Counter(get_ngrams(self.words(text), self.n))
        if not counts:
            return 1.0
        most_frequent = " ".join(counts.most_common(1)[0][0])
        return (len(text) - len(text.replace(most_frequent, ""))) / len(text)

    def ratio(self) -> Ratio | None:
        if not self.splits_at_spaces:
            return None
        return Ratio(measures.top_ngram_characters(self.n), measures.CHARACTERS, empty=1.0)


@dataclass
class RepeatingDuplicateNGramsFilter(WordFilter):
    """Drop text much of which is in sequences of words that it has had before.

    Score: the share of characters in such sequences of ``n`` words, spaces between them included and no word counted
    twice; 1.0 for a text of fewer words.

    Args:
        n: How many words a sequence has.
        max_repeating_duplicate_ngram_ratio: The highest share that is kept, 0 to 1.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> RepeatingDuplicateNGramsFilter(n=2).score_document("so it goes so it is")
    0.2631578947368421
    """

    n: int = 2
    max_repeating_duplicate_ngram_ratio: float = 0.2
    lang: str = "en"
    score_range = SHARE

    def __post_init__(self) -> None:
        _check_n(self.n, type(self).__name__)
        self.name = f"repeating_dup_{self.n}gram"

    def score_document(self, text: str) -> float:
        seen: set[tuple[str, ...]] = set()
        characters = overlap = 0
        ngrams = get_ngrams(self.words(text), self.n)
        for ngram in ngrams:
            if ngram in seen:
                characters += sum(map(len, ngram[overlap:])) + min(self.n - overlap, self.n - 1)
                overlap = self.n
            seen.add(ngram)
            overlap = max(overlap - 1, 0)
        return characters / len(text) if ngrams else 1.0

    def ratio(self) -> Ratio | None:
        if not self.splits_at_spaces:
            return None
        return Ratio(measures.repeated_ngram_characters(self.n), measures.CHARACTERS, empty=1.0)


def _check_n(n: int, filter_name: str) -> None:
    if n < 1:
        raise ValueError(f"{filter_name}(n={n}): a sequence has at least one word")


def _share_of_pieces(pieces: list[str]) -> float:
    return len(set(pieces)) / len(pieces) if pieces else 0.0


def _share_of_characters(pieces: list[str]) -> float:
    characters = sum(map(len, pieces))
    return sum(map(len, set(pieces))) / characters if characters else 0.0
