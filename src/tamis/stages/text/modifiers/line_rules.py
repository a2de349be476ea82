"""Rules about single lines of a text, each in two forms: for one line, and for a column of lines."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels.utf8 import WHITE_SPACE
from tamis.stages.text.modifiers.base import CountingModifier

__all__ = ["SPACES", "Cleaned", "LineEdit", "LineModifier", "LineRule", "LineStrip", "character_class", "has_words"]

# These patterns mean the same to Python and to Polars, which knows fewer kinds of white space.
SPACES = "".join(f"\\u{ord(space):04x}" for space in WHITE_SPACE)
"""White space, for use in a character class of a regular expression."""

_MANY_WORDS = 100


class LineStep:
    """What is done to each line, under a name that removed lines are counted by."""

    name: str

    def apply(self, line: str) -> str | None:
        """The line afterwards; ``None`` if it goes."""
        raise NotImplementedError

    def apply_to(self, lines: pl.Series) -> tuple[pl.Series, pl.Series]:
        """The lines afterwards, and which of them go."""
        raise NotImplementedError


@dataclass(frozen=True)
class LineRule(LineStep):
    """Removes lines: ``finds`` says whether one goes, ``finds_in`` which of several. They are counted by its name."""

    name: str
    finds: Callable[[str], bool]
    finds_in: Callable[[pl.Series], pl.Series]

    def apply(self, line: str) -> str | None:
        return None if self.finds(line) else line

    def apply_to(self, lines: pl.Series) -> tuple[pl.Series, pl.Series]:
        return lines, self.finds_in(lines)


@dataclass(frozen=True)
class LineStrip(LineStep):
    """Removes white space from both ends of lines."""

    name: str = "blank"

    def apply(self, line: str) -> str | None:
        return line.strip()

    def apply_to(self, lines: pl.Series) -> tuple[pl.Series, pl.Series]:
        return lines.str.strip_chars(WHITE_SPACE), pl.repeat(False, len(lines), eager=True)


@dataclass(frozen=True)
class LineEdit(LineStep):
    """Removes what a pattern finds in lines, white space around it at the ends, and lines of which nothing is left.

    Args:
        name: What removed lines are counted by.
        pattern: A regular expression that means the same to Python and to Polars and does not match the empty text.
        max_words: Lines of more words are left alone.
        hint: A pattern that is found wherever ``pattern`` is, and sooner.
    """

    name: str
    pattern: str
    max_words: int | None = None
    hint: str | None = None

    def apply(self, line: str) -> str | None:
        if self.max_words is not None and len(line.split()) > self.max_words:
            return line
        edited = re.sub(self.pattern, "", line)
        return line if edited == line else edited.strip() or None

    def apply_to(self, lines: pl.Series) -> tuple[pl.Series, pl.Series]:
        found = lines.str.contains(self.hint or self.pattern)
        if not found.any():
            return lines, found
        places, before = found.arg_true(), lines.filter(found)
        after = before.str.replace_all(self.pattern, "")
        edited = before != after
        if self.max_words is not None:
            edited &= ~has_words(before, self.max_words + 1)
        after = after.str.strip_chars(WHITE_SPACE).zip_with(edited, before)
        # A copy, as a series is scattered to in place.
        return lines.clone().scatter(places, after), found.scatter(places, edited & (after == ""))


@dataclass(frozen=True)
class Cleaned:
    """What became of a column of texts: the texts (the column itself if none has changed), which of them have, and how
    many lines of each text each rule removed.
    """

    column: pa.ChunkedArray
    changed: NDArray[np.bool_]
    removed: dict[str, NDArray[np.int64]]


class LineModifier(CountingModifier):
    """A modifier that removes and edits lines, one by one.

    A text in which a line was removed or edited loses the white space at its ends, too. Any other stays as it is.
    """

    def steps(self) -> Sequence[LineStep]:
        """What is done to each line, in order."""
        raise NotImplementedError(f"{type(self).__name__} has no steps()")

    @functools.cached_property
    def _steps(self) -> Sequence[LineStep]:
        return self.steps()

    def clean_line(self, line: str) -> str | None:
        """A line afterwards; ``None`` if it goes."""
        cleaned: str | None = line
        for step in self._steps:
            if cleaned is None:
                return None
            cleaned = step.apply(cleaned)
        return cleaned

    def modify_document(self, text: str) -> str:
        lines = text.split("\n")
        cleaned = [self.clean_line(line) for line in lines]
        return text if cleaned == lines else "\n".join(line for line in cleaned if line is not None).strip()

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return self.clean(column).column

    def modify_and_count(self, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[str, NDArray[np.int64]]]:
        cleaned = self.clean(column)
        return cleaned.column, cleaned.removed

    def clean(self, column: pa.ChunkedArray) -> Cleaned:
        """Clean a column of texts, and count the lines that go."""
        whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, _none(column.type)])
        texts = pc.split_pattern(whole, pattern="\n")
        counts = pc.fill_null(pc.list_value_length(texts), 0).to_numpy(zero_copy_only=False)
        text_of = np.repeat(np.arange(len(whole)), counts)
        before = lines = pl.Series(pl.from_arrow(texts.flatten()), dtype=pl.String)
        removed = {step.name: np.zeros(len(whole), np.int64) for step in self._steps}
        changed = np.zeros(len(whole), np.bool_)
        for step in self._steps:
            lines, gone = step.apply_to(lines)
            if gone.any():
                lost = np.bincount(text_of[gone.to_numpy()], minlength=len(whole))
                removed[step.name] += lost
                changed |= lost > 0
                left = ~gone
                before, lines, text_of = before.filter(left), lines.filter(left), text_of[left.to_numpy()]
        changed[text_of[(before != lines).to_numpy()]] = True
        if not changed.any():
            return Cleaned(column, changed, removed)
        chosen = changed[text_of]
        joined = _join(lines.filter(pl.Series(chosen)), np.bincount(text_of[chosen], minlength=len(whole))[changed])
        replaced = pc.replace_with_mask(whole, pa.array(changed), joined.cast(whole.type))
        return Cleaned(pa.chunked_array([replaced]), changed, removed)


def _none(kind: pa.DataType) -> pa.Array:
    return pa.array([], kind)


def _join(lines: pl.Series, counts: NDArray[np.int64]) -> pa.Array:
    """Texts of so many lines each, without the white space at their ends."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, lines.to_arrow().cast(pa.large_string()))
    texts = pc.binary_join(lists, pa.scalar("\n", pa.large_string()))
    return pl.Series(pl.from_arrow(texts), dtype=pl.String).str.strip_chars(WHITE_SPACE).to_arrow()


def has_words(lines: pl.Series, count: int) -> pl.Series:
    """Which lines have at least so many words, one or more: what ``str.split()`` gives.

    >>> has_words(pl.Series(["one two", " one two  three"]), 3).to_list()
    [False, True]
    """
    if count > _MANY_WORDS:  # a pattern for all of them would become too large
        return lines.str.count_matches(f"[^{SPACES}]+") >= count
    more = rf"(?:[^{SPACES}]*[{SPACES}]+[^{SPACES}]){{{count - 1}}}" if count > 1 else ""
    return lines.str.contains(f"[^{SPACES}]{more}")


@functools.cache
def character_class(is_member: Callable[[str], bool]) -> str:
    """The characters for which a method of ``str`` holds, as a character class of a regular expression.

    >>> bool(re.fullmatch(character_class(str.isupper), "É"))
    True
    """
    # Polars has classes of its own for this, but of another version of Unicode than this Python's.
    points = np.array([point for point in range(sys.maxunicode + 1) if is_member(chr(point))])
    breaks = np.flatnonzero(np.diff(points) != 1)
    firsts, lasts = points[np.concatenate([[0], breaks + 1])], points[np.concatenate([breaks, [-1]])]
    return "[" + "".join(f"{_escaped(a)}-{_escaped(b)}" for a, b in zip(firsts, lasts, strict=True)) + "]"


def _escaped(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
