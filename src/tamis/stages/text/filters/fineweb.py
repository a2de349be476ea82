"""The filters that FineWeb added to those before it: text that is a list rather than prose.

*The FineWeb Datasets: Decanting the Web for the Finest Text Data at Scale* (Penedo et al., 2024, arXiv 2406.17557).
Lines are the ones that hold more than white space. They are split at ``\\n`` alone, and compared and measured as they
are: a ``\\r`` or a space at the end counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tamis.kernels import measures, unicode_properties
from tamis.kernels.heuristics import SENTENCE_ENDS, ranges_in
from tamis.stages.text.filters.base import NOT_NEGATIVE, SHARE
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.filters.words import WordFilter
from tamis.stages.text.words import get_sentences

__all__ = ["DuplicateLineCharactersFilter", "LinePunctuationFilter", "NewlinesToWordsFilter", "ShortLinesFilter"]

_RANGES = ranges_in(unicode_properties.SENTENCE_TERMINAL)
_ENDS = SENTENCE_ENDS | {chr(code_point) for first, end in _RANGES for code_point in range(first, end)}


@dataclass
class LinePunctuationFilter(MeasuredFilter):
    """Drop text whose lines hardly ever end like a sentence.

    Score: the share of lines that end in a punctuation mark that ends sentences in any script, in a closing quotation
    mark or in an ellipsis; 0.0 for a text without lines. The rule is FineWeb's (Penedo et al., 2024).

    Args:
        min_line_punctuation_ratio: The lowest share that is kept, 0 to 1.

    >>> LinePunctuationFilter().score_document("Contents\\nIt ends here.")
    0.5
    """

    min_line_punctuation_ratio: float = 0.12
    name = "line_punctuation"
    score_range = SHARE
    measured = Ratio(measures.ENDED_LINES, measures.LINES)

    def score_document(self, text: str) -> float:
        found = get_sentences(text)
        return sum(line.rstrip()[-1] in _ENDS for line in found) / len(found) if found else 0.0


@dataclass
class ShortLinesFilter(MeasuredFilter):
    """Drop text that is made of short lines.

    Score: the share of lines that are short; 1.0 for a text without lines. The rule is FineWeb's (Penedo et al.,
    2024).

    Args:
        max_short_lines_ratio: The highest share that is kept, 0 to 1.
        short_line_length: Up to how many characters a line is short. Any other than 30 is counted text by text, which
            is much slower.

    >>> ShortLinesFilter().score_document("Menu\\nThis line is longer than thirty characters.")
    0.5
    """

    max_short_lines_ratio: float = 0.67
    short_line_length: int = measures.SHORT_LINE_CHARACTERS
    name = "short_lines"
    score_range = SHARE

    def check_parameters(self) -> None:
        super().check_parameters()
        self._require("short_line_length", NOT_NEGATIVE)

    def score_document(self, text: str) -> float:
        found = get_sentences(text)
        return sum(len(line) <= self.short_line_length for line in found) / len(found) if found else 1.0

    def ratio(self) -> Ratio | None:
        if self.short_line_length != measures.SHORT_LINE_CHARACTERS:
            return None
        return Ratio(measures.SHORT_LINES, measures.LINES, empty=1.0)


@dataclass
class DuplicateLineCharactersFilter(MeasuredFilter):
    """Drop text with lines that it has had before.

    Score: the characters of such lines, divided by all characters but newlines; 0.0 for a text without any. The rule
    is FineWeb's (Penedo et al., 2024). The data set was made with the highest score 0.01; the paper says 0.1.

    Args:
        max_duplicate_line_characters_ratio: The highest share that is kept, 0 to 1.

    >>> DuplicateLineCharactersFilter().score_document("la\\nla\\nlast")
    0.25
    """

    max_duplicate_line_characters_ratio: float = 0.01
    name = "duplicate_line_characters"
    score_range = SHARE
    measured = Ratio(measures.REPEATED_LINE_CHARACTERS, measures.NOT_NEWLINES)

    def score_document(self, text: str) -> float:
        found = get_sentences(text)
        characters = len(text) - text.count("\n")
        repeated = sum(map(len, found)) - sum(map(len, set(found)))
        return repeated / characters if characters else 0.0


@dataclass
class NewlinesToWordsFilter(WordFilter):
    """Drop text with few words to a line.

    Score: the number of newlines, divided by the number of words; 1.0 for a text without words. The rule is FineWeb's
    (Penedo et al., 2024), from the code that made the data set; the paper does not name it.

    Args:
        max_newlines_to_words_ratio: The highest ratio that is kept.
        lang: The language: ``"zh"``, ``"ja"`` and ``"th"`` have words that a dictionary finds.

    >>> NewlinesToWordsFilter().score_document("one\\ntwo three\\nfour")
    0.5
    """

    max_newlines_to_words_ratio: float = 0.3
    lang: str = "en"
    name = "newlines_to_words"
    measured = Ratio(measures.NEWLINES, measures.WORDS, empty=1.0)

    def score_document(self, text: str) -> float:
        count = len(self.words(text))
        return text.count("\n") / count if count else 1.0
