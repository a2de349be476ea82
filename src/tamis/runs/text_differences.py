"""Where two texts differ, word by word: for people who look at a pair of duplicates."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Span", "compared", "shortened_spans"]

# Languages without spaces between words are compared by character.
_WITHOUT_SPACES: Final = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(f"(\\s*)([{_WITHOUT_SPACES}]|[^\\s{_WITHOUT_SPACES}]+)")
_MOST_WORDS: Final = 600
"""Comparing takes time by the square of the words between the equal beginnings and the equal ends."""

_NOT_WORTH_SKIPPING: Final = 3

Words = tuple[str, ...]
"""Words, each with one space before it if there is white space of any kind before it."""


@dataclass(frozen=True)
class Span:
    """Words of two texts that stand at the same place.

    Args:
        one, other: The words of each text.
        equal: Whether they are the same words.
        skipped_one, skipped_other: How many more words there are in each text after these, which are left out.
    """

    one: Words
    other: Words
    equal: bool
    skipped_one: int = 0
    skipped_other: int = 0


def compared(one: str, other: str) -> list[Span]:
    """Two texts in spans, from the beginning to the end: equal words and different words in turn.

    >>> [(span.one, span.other, span.equal) for span in compared("a quick fox", "a slow  fox")]
    [(('a',), ('a',), True), ((' quick',), (' slow',), False), ((' fox',), (' fox',), True)]
    """
    left, right = _words(one), _words(other)
    bare = [[word.strip() for word in words] for words in (left, right)]
    most = min(len(left), len(right))
    begin = next((n for n in range(most) if bare[0][n] != bare[1][n]), most)
    end = next((n for n in range(most - begin) if bare[0][-1 - n] != bare[1][-1 - n]), most - begin)
    blocks = [(0, 0, begin)]
    middle = [words[begin : len(words) - end] for words in bare]
    if max(map(len, middle)) <= _MOST_WORDS:
        matcher = difflib.SequenceMatcher(None, middle[0], middle[1], autojunk=False)
        blocks += [(begin + i, begin + j, size) for i, j, size in matcher.get_matching_blocks() if size]
    blocks.append((len(left) - end, len(right) - end, end))
    spans: list[Span] = []
    i = j = 0
    for at, to, size in blocks:
        _add(spans, Span(left[i:at], right[j:to], False))
        _add(spans, Span(left[at : at + size], right[to : to + size], True))
        i, j = at + size, to + size
    return spans


def _words(text: str) -> Words:
    found = _WORD.findall(text)
    return tuple(f" {word}" if space and number else word for number, (space, word) in enumerate(found))


def _add(spans: list[Span], span: Span) -> None:
    """Add a span, joined to the last one if both are equal or both differ."""
    if not span.one and not span.other:
        return
    if spans and spans[-1].equal == span.equal:
        last = spans.pop()
        span = Span(last.one + span.one, last.other + span.other, span.equal)
    spans.append(span)


def shortened_spans(spans: list[Span], around: int = 12, most: int = 120) -> list[Span]:
    """The spans with most of the long equal ones left out, and with the first words of long others.

    Args:
        spans: Those of :func:`compared`.
        around: How many equal words to show before and after a difference; of equal texts, twice as many.
        most: How many words of differences to show in all.

    >>> spans = shortened_spans(compared("a b c d e f g h x", "a b c d e f g h y"), around=2)
    >>> [(span.one, span.skipped_one) for span in spans]
    [((), 6), ((' g', ' h'), 0), ((' x',), 0)]
    """
    shown: list[Span] = []
    left = most
    for number, span in enumerate(spans):
        is_first, is_last = number == 0, number == len(spans) - 1
        if not span.equal:
            one, other = span.one[:left], span.other[:left]
            left -= max(len(one), len(other))
            rest = len(span.one) - len(one), len(span.other) - len(other)
            shown.append(Span(one, other, False, *rest))
            if left <= 0:
                later = spans[number + 1 :]
                shown[-1] = Span(
                    one,
                    other,
                    False,
                    rest[0] + sum(len(s.one) for s in later),
                    rest[1] + sum(len(s.other) for s in later),
                )
                return shown
            continue
        count = len(span.one)
        head, tail = (0 if is_first else around), (0 if is_last else around)
        head = 2 * around if is_first and is_last else head
        if count <= head + tail + _NOT_WORTH_SKIPPING:
            shown.append(span)
            continue
        skipped = count - head - tail
        shown.append(Span(span.one[:head], span.other[:head], True, skipped, skipped))
        if tail:
            shown.append(Span(span.one[-tail:], span.other[-tail:], True))
    return shown
