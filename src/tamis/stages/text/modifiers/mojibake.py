"""Which lines of a text ftfy could change: patterns made from ftfy's own rules and tables.

ftfy repairs a text line by line and looks for mojibake with one regular expression. Its alternatives are short
sequences of sets of characters, so that a kernel can follow them all at once; what else ftfy may change has a single
character in it that tells. So a line that is not found is one that ftfy leaves as it is.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.suspects import KINDS, CharacterMask, Marks, Patterns, find_lines, marks_of

if TYPE_CHECKING:
    import ftfy

__all__ = ["find_suspects", "repair_texts"]

_WORD_CHARACTERS = re.compile(r"\w")
_SPACES = re.compile(r"\s")


def find_suspects(array: pa.Array, config: ftfy.TextFixerConfig) -> NDArray[np.int64] | None:
    """The lines that ftfy could change, as :func:`tamis.kernels.suspects.find_lines` gives them."""
    patterns = _patterns(config._replace(unescape_html=False, normalization=None, max_decode_length=0))
    marks: Marks | None = None if config.normalization is None else marks_of(config.normalization)
    entities = 0 if not config.unescape_html else 2 if config.unescape_html == "auto" else 1
    return find_lines(array, patterns, marks, entities, config.max_decode_length)


def repair_texts(array: pa.Array, lines: NDArray[np.int64], config: ftfy.TextFixerConfig) -> dict[int, str]:
    """The texts, by row, that change when these of their lines are repaired."""
    import ftfy

    repaired: dict[int, str] = {}
    rows, starts = np.unique(lines[:, 0], return_index=True)
    ends = np.append(starts[1:], len(lines))
    # From the first line with a "<" on, ftfy takes entities for part of the markup.
    as_markup = config._replace(unescape_html=False)
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        text: str = array[row].as_py()
        if lines[start, 2] < 0:
            changed = ftfy.fix_text(text, config)
        else:
            changed = _repair_lines(text, lines[start:end].tolist(), config, as_markup)
        if changed != text:
            repaired[row] = changed
    return repaired


def _repair_lines(text: str, lines: list[list[int]], config: ftfy.TextFixerConfig, as_markup: Any) -> str:
    import ftfy

    data, parts, done = text.encode(), [], 0
    for _, begin, end, has_tag in lines:
        line = data[begin:end]
        fixed = ftfy.fix_and_explain(line.decode(), as_markup if has_tag else config).text
        parts += [data[done:begin], fixed.encode("utf-8", "surrogatepass")]
        done = end
    return b"".join([*parts, data[done:]]).decode("utf-8", "surrogatepass")


@functools.lru_cache(maxsize=64)
def _patterns(config: ftfy.TextFixerConfig) -> Patterns:
    import ftfy.badness

    sequences: list[list[CharacterMask]] = [[_single_characters(config)]]
    at_beginning = [False]
    if config.fix_encoding:
        try:
            for sequence, anchored in _alternatives(ftfy.badness.BADNESS_RE):
                sequences.append(sequence)
                at_beginning.append(anchored)
            patterns = Patterns.of(sequences, at_beginning)
        except _UnknownSyntaxError:
            patterns = None
        if patterns is not None:
            return patterns
        # Another version of ftfy, with an expression of another kind: every line that is not ASCII may be bad.
        beyond_ascii = np.ones(KINDS, np.bool_)
        beyond_ascii[:0x80] = False
        sequences, at_beginning = [[sequences[0][0] | beyond_ascii]], [False]
    patterns = Patterns.of(sequences, at_beginning)
    assert patterns is not None, "one place is not too many"
    return patterns


def _single_characters(config: ftfy.TextFixerConfig) -> CharacterMask:
    """The characters that are replaced or removed wherever they stand."""
    from ftfy import chardata

    chosen: set[int] = set()
    if config.fix_c1_controls:
        chosen.update(range(0x80, 0xA0))
    if config.fix_latin_ligatures:
        chosen.update(chardata.LIGATURES)
    if config.fix_character_width:
        chosen.update(chardata.WIDTH_MAP)
    if config.uncurl_quotes:
        chosen.update(_members(chardata.SINGLE_QUOTE_RE), _members(chardata.DOUBLE_QUOTE_RE))
    if config.fix_line_breaks:
        chosen.update(map(ord, "\r\u2028\u2029\x85"))
    if config.remove_terminal_escapes:
        chosen.add(0x1B)
    if config.remove_control_chars:
        chosen.update(chardata.CONTROL_CHARS)
    return _mask(chosen)


class _UnknownSyntaxError(Exception):
    """The expression is not a sequence of sets of characters."""


def _alternatives(expression: re.Pattern[str]) -> Iterator[tuple[list[CharacterMask], bool]]:
    """Each alternative as the characters of each of its places, and whether it must stand at the beginning."""
    parsed = importlib.import_module("re._parser").parse(expression.pattern, expression.flags & re.VERBOSE)
    if len(parsed) != 1 or str(parsed[0][0]) != "BRANCH":
        raise _UnknownSyntaxError
    for branch in parsed[0][1][1]:
        items = list(branch)
        anchored = str(items[0][0]) == "AT" and str(items[0][1]) == "AT_BEGINNING"
        for sequence in _sequences(items[1:] if anchored else items):
            yield sequence, anchored


def _sequences(items: list[Any]) -> list[list[CharacterMask]]:
    """The sequences that an alternative stands for: two for each place that may be left out."""
    found: list[list[CharacterMask]] = [[]]
    for operation, argument in items:
        if str(operation) == "MAX_REPEAT":
            least, most, repeated = argument
            if (least, most) != (0, 1):
                raise _UnknownSyntaxError
            found += [sequence + more for sequence in found for more in _sequences(list(repeated))]
        else:
            place = _set(str(operation), argument)
            found = [[*sequence, place] for sequence in found]
    return found


def _set(operation: str, argument: Any) -> CharacterMask:
    if operation == "LITERAL":
        return _mask([argument])
    if operation == "RANGE":
        return _mask(range(argument[0], argument[1] + 1))
    if operation == "ANY":
        return ~_mask([0x0A])
    if operation == "CATEGORY" and str(argument) == "CATEGORY_SPACE":
        return _mask(_members(_SPACES))
    if operation == "CATEGORY" and str(argument) == "CATEGORY_WORD":
        # Beyond the first 65,536 there are characters of both kinds: they are taken for what may be bad.
        return _mask([*_members(_WORD_CHARACTERS), KINDS - 1])
    if operation == "IN":
        negated = str(argument[0][0]) == "NEGATE"
        union = np.zeros(KINDS, np.bool_)
        for part in argument[1:] if negated else argument:
            union |= _set(str(part[0]), part[1])
        return ~union if negated else union
    raise _UnknownSyntaxError


@functools.cache
def _members(expression: re.Pattern[str]) -> tuple[int, ...]:
    """The characters that an expression for a single one matches."""
    return tuple(ord(found) for found in expression.findall("".join(map(chr, range(0x10000)))))


def _mask(code_points: Iterable[int]) -> CharacterMask:
    mask = np.zeros(KINDS, np.bool_)
    mask[list(code_points)] = True
    return mask
