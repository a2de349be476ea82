"""Line by line: what C4 and RefinedWeb take out of web pages, and the stage that counts it, too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tamis.stages.column_values import TextStage
from tamis.stages.emit import Drop
from tamis.stages.text.filters.words import WordCountFilter
from tamis.stages.text.modifiers.line_rules import (
    SPACES,
    Cleaned,
    LineEdit,
    LineModifier,
    LineRule,
    LineStep,
    LineStrip,
    character_class,
    has_words,
)
from tamis.tasks import DocumentBatch

__all__ = ["C4LineCleaner", "CleanLines", "RefinedWebLineCleaner"]

_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_CITATION = r"\[[0-9]*\]|\[edit\]|\[citation needed\]"
_COUNTED = (
    *("bookmarks", "comments", "downloads", "downvotes", "followers", "likes", "quotes", "reposts", "retweets"),
    *("shares", "upvotes", "views"),
)


@dataclass
class C4LineCleaner(LineModifier):
    """Keep the lines of a web page that are sentences: C4's rules for lines.

    Lines are stripped of white space and rid of citation marks, and stay if they end like a sentence, have enough
    words, none of them overlong, and mention neither JavaScript nor a policy. Blank lines go. *Exploring the Limits of
    Transfer Learning with a Unified Text-to-Text Transformer* (Raffel et al., 2020, arXiv 1910.10683), Section 2.2;
    the rules on policies, citation marks and overlong words are in its code.

    Args:
        end_marks: The characters that a line must end with, unless it ends with ``...``; ``None``: any.
        min_words: The fewest words of a line that stays; ``None``: any number.
        max_word_length: The longest word of a line that stays, in characters; ``None``: any.
        javascript: Remove lines with "javascript" in them.
        policies: Remove lines that mention terms of use or a cookie or privacy policy.
        citations: Remove the marks ``[1]``, ``[edit]`` and ``[citation needed]`` from lines.

    >>> C4LineCleaner().modify_document("Home\\n The cat sat on the mat.[1]\\nPlease enable JavaScript on this page.")
    'The cat sat on the mat.'
    """

    end_marks: str | None = '.?!"”'
    min_words: int | None = 5
    max_word_length: int | None = 1000
    javascript: bool = True
    policies: bool = True
    citations: bool = True

    def __post_init__(self) -> None:
        if self.end_marks == "":
            raise ValueError("C4LineCleaner(end_marks=''): no line ends with none of them; None turns the rule off")

    def steps(self) -> Sequence[LineStep]:
        steps: list[LineStep] = [LineStrip()]
        if self.max_word_length is not None:
            steps.append(_long_words(self.max_word_length))
        if self.citations:
            steps.append(LineEdit("citations", _CITATION))
        if self.end_marks is not None:
            steps.append(_without_end_mark(self.end_marks))
        if self.min_words is not None:
            steps.append(_few_words(self.min_words, blank=True))
        if self.javascript:
            steps.append(_mentions("javascript", ("javascript",)))
        if self.policies:
            steps.append(_mentions("policies", _POLICIES))
        return steps


@dataclass
class RefinedWebLineCleaner(LineModifier):
    """Remove lines of a web page that belong to its machinery: RefinedWeb's rules for lines.

    Lines go that are mostly upper case, only a number, a counter of social media (``3 likes``) or a single word. What
    buttons say is cut out of short lines. Blank lines stay. *The RefinedWeb Dataset for Falcon LLM* (Penedo et al.,
    2023, arXiv 2306.01116), Appendix G.2; what counts as a counter is from DCLM (Li et al., 2024, arXiv 2406.11794).

    Args:
        max_upper_case_ratio: The highest share of capital letters among the characters of a line that stays, 0 to 1;
            ``None``: any.
        numbers: Remove lines that are a number: digits only.
        counters: Remove lines that are a counter.
        min_words: The fewest words of a line that stays; ``None``: any number.
        line_beginnings: What is cut off where a short line begins with it, in upper or lower case.
        line_ends: What is cut off where a short line ends with it.
        phrases: What is cut out wherever it stands in a short line.
        max_words_of_short_line: Up to how many words a line is short.

    >>> RefinedWebLineCleaner().modify_document("SHARE THIS\\nThe cat sat on the mat. Read more...\\n1.2K likes\\n42")
    'The cat sat on the mat.'
    """

    max_upper_case_ratio: float | None = 0.5
    numbers: bool = True
    counters: bool = True
    min_words: int | None = 2
    line_beginnings: list[str] = field(default_factory=lambda: ["sign-in"])
    line_ends: list[str] = field(default_factory=lambda: ["read more...", "read more…", "read more"])
    phrases: list[str] = field(default_factory=lambda: ["items in cart"])
    max_words_of_short_line: int = 10

    def __post_init__(self) -> None:
        for name in ("line_beginnings", "line_ends", "phrases"):
            given = getattr(self, name)
            if isinstance(given, str) or not all(phrase.strip() for phrase in given):
                raise ValueError(f"RefinedWebLineCleaner({name}={given!r}): give a list of texts that are not empty")

    def steps(self) -> Sequence[LineStep]:
        steps: list[LineStep] = []
        if self.max_upper_case_ratio is not None:
            steps.append(_upper_case(self.max_upper_case_ratio))
        if self.numbers:
            digits = character_class(str.isdecimal)
            steps.append(_matching("numbers", rf"^[{SPACES}]*{digits}+[{SPACES}]*$"))
        if self.counters:
            counted = _any_of(_COUNTED)
            steps.append(
                _matching("counters", rf"^[^A-Za-z0-9]*[0-9][0-9.,]*[kKmMbB]?[{SPACES}]+{counted}[^A-Za-z0-9]*$")
            )
        if self.min_words is not None:
            steps.append(_few_words(self.min_words, blank=False))
        for phrases, pattern in (
            (self.phrases, "[{space}]?{phrases}"),
            (self.line_ends, "[{space}]?{phrases}[{space}]*$"),
            (self.line_beginnings, "^[{space}]*{phrases}[{space}]?"),
        ):
            if phrases:
                hint = _any_of(phrases)
                pattern = pattern.format(space=SPACES, phrases=hint)
                steps.append(LineEdit("buttons", pattern, self.max_words_of_short_line, hint))
        return steps


@dataclass(repr=False)
class CleanLines(TextStage):
    """Clean the lines of each document, count the lines that go, and drop documents that lose too much.

    The run's statistics have the number of lines that each rule removed, as ``lines_removed_<rule>``.

    Args:
        modifier: The rules: a :class:`C4LineCleaner`, a :class:`RefinedWebLineCleaner` or a line modifier of your own.
        text_field: The column that is changed. A null stays a null.
        max_removed_words_ratio: The highest share of its words that a document may lose, 0 to 1; ``None``: all.
        removed_words_field: The column that share is written to, if it is wanted.

    >>> stage = CleanLines(RefinedWebLineCleaner(), max_removed_words_ratio=0.05)
    >>> kept = stage.process(DocumentBatch({"text": ["It is so.", "MENU HERE\\nIt is so."]}))
    >>> kept.data.to_pydict(), kept.dropped[0].rows.tolist(), kept.dropped[0].reason
    ({'text': ['It is so.']}, [1], 'removed_words > 0.05')
    """

    releases_gil: ClassVar[bool] = True

    modifier: LineModifier
    text_field: str = "text"
    max_removed_words_ratio: float | None = None
    removed_words_field: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.modifier, LineModifier):
            raise TypeError(f"CleanLines(modifier=...): takes a LineModifier, not {self.modifier!r}")
        if self.max_removed_words_ratio is not None and not 0 <= self.max_removed_words_ratio <= 1:
            raise ValueError(
                f"CleanLines(max_removed_words_ratio={self.max_removed_words_ratio}): must be between 0 and 1"
            )
        self.name = self.modifier.name

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, *self.adds_columns()]

    def adds_columns(self) -> list[str]:
        return [self.removed_words_field] if self.removed_words_field else []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        texts, before = self.texts(task), task.data.column(self.text_field)
        cleaned = self.modifier.clean(texts)
        for rule, counts in cleaned.removed.items():
            self.log_metric(f"lines_removed_{rule}", int(counts.sum()))
        result = task
        if cleaned.changed.any():
            result = task.with_column(self.text_field, cleaned.column.cast(before.type))
        if self.max_removed_words_ratio is None and self.removed_words_field is None:
            return result
        removed = _removed_words(texts, cleaned)
        if self.removed_words_field is not None:
            result = result.with_column(self.removed_words_field, pa.array(removed))
        if self.max_removed_words_ratio is None:
            return result
        most = self.max_removed_words_ratio
        dropped = np.flatnonzero(removed > most)
        if not len(dropped):
            return result
        # Documents are dropped as they came in, so that a look at them shows the lines that were removed.
        kept = result.select(np.flatnonzero(removed <= most))
        kept.dropped.append(Drop(task, dropped, f"removed_words > {most}", pa.array(removed[dropped])))
        return kept


def _removed_words(before: pa.ChunkedArray, cleaned: Cleaned) -> NDArray[np.float64]:
    """The share of words that each text lost; 0.0 for one that had none."""
    changed = pa.array(cleaned.changed)
    count = WordCountFilter().score_column
    had, has = count(before.filter(changed)), count(cleaned.column.filter(changed))
    removed = np.zeros(len(cleaned.changed))
    removed[cleaned.changed] = np.divide(had - has, had, out=np.zeros(len(had)), where=had > 0)
    return removed


def _matching(name: str, pattern: str) -> LineRule:
    """Removes lines in which a pattern is found that means the same to Python and to Polars."""
    return LineRule(name, lambda line: re.search(pattern, line) is not None, lambda lines: lines.str.contains(pattern))


def _few_words(min_words: int, blank: bool) -> LineRule:
    """Removes lines of too few words; those of none only if ``blank``."""

    def finds_in(lines: pl.Series) -> pl.Series:
        few = ~has_words(lines, min_words) if min_words > 0 else pl.repeat(False, len(lines), eager=True)
        return few if blank else few.scatter(few.arg_true(), has_words(lines.filter(few), 1))

    return LineRule("few_words", lambda line: (not blank) <= len(line.split()) < min_words, finds_in)


def _long_words(max_length: int) -> LineRule:
    """Removes lines with an overlong word."""

    def finds(line: str) -> bool:
        return any(len(word) > max_length for word in line.split())

    def finds_in(lines: pl.Series) -> pl.Series:
        found = lines.str.len_bytes() > max_length
        return found.scatter(found.arg_true(), [finds(line) for line in lines.filter(found)]) if found.any() else found

    return LineRule("long_words", finds, finds_in)


def _without_end_mark(end_marks: str) -> LineRule:
    """Removes lines that do not end like a sentence."""

    def finds(line: str) -> bool:
        return not line.endswith(tuple(end_marks)) or line.endswith("...")

    def finds_in(lines: pl.Series) -> pl.Series:
        ended = pl.repeat(False, len(lines), eager=True)
        for mark in end_marks:
            ended |= lines.str.ends_with(mark)
        return ~ended | lines.str.ends_with("...")

    return LineRule("no_end_mark", finds, finds_in)


def _mentions(name: str, phrases: tuple[str, ...]) -> LineRule:
    """Removes lines with one of some phrases of ASCII in them, in upper or lower case."""

    def finds(line: str) -> bool:
        lowered = line.lower()
        return any(phrase in lowered for phrase in phrases)

    def finds_in(lines: pl.Series) -> pl.Series:
        found = lines.str.contains_any(list(phrases), ascii_case_insensitive=True)
        # The Kelvin sign is the one character outside ASCII whose lower case is a letter of it, alone.
        kelvin = lines.str.contains("\u212a", literal=True)
        return found.scatter(kelvin.arg_true(), list(map(finds, lines.filter(kelvin)))) if kelvin.any() else found

    return LineRule(name, finds, finds_in)


def _upper_case(max_ratio: float) -> LineRule:
    """Removes lines of too many capital letters."""
    capitals = character_class(str.isupper)

    def finds(line: str) -> bool:
        return bool(line) and sum(map(str.isupper, line)) / len(line) > max_ratio

    def finds_in(lines: pl.Series) -> pl.Series:
        # Where more than half are capital letters, two of them are neighbours or have one character between them.
        # Which characters outside ASCII are, is found out later: a large class takes long to search for.
        hint = r"[A-Z\u0080-\U0010ffff].?[A-Z\u0080-\U0010ffff]|^.$" if max_ratio >= 0.5 else "^."
        found = lines.str.contains(hint)
        suspects = lines.filter(found)
        ratios = suspects.str.count_matches(capitals) / suspects.str.len_chars()
        return found.scatter(found.arg_true(), ratios > max_ratio)

    return LineRule("upper_case", finds, finds_in)


def _any_of(phrases: Sequence[str]) -> str:
    """A pattern for one of some phrases, in upper or lower case; the longest that fits."""
    ordered = sorted(phrases, key=len, reverse=True)
    return f"(?:{'|'.join(''.join(map(_any_case, phrase)) for phrase in ordered)})"


def _any_case(character: str) -> str:
    if character.isascii() and character.isalpha():
        return f"[{character.lower()}{character.upper()}]"
    return re.escape(character)
