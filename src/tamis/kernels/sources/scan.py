"""The first pass over a text: which bytes are white space, letters, newlines; how many characters of each kind."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.measures import (
    CHARACTERS,
    DIGITS,
    IS_DIGIT,
    IS_LETTER,
    IS_PARENTHESIS,
    IS_SPACE,
    LETTERS,
    NEWLINES,
    NOT_NEWLINES,
    NOT_PLAIN,
    PARENTHESES,
    WHITE_SPACE,
    WORDS,
)
from tamis.kernels.sources.hashing import FULL
from tamis.kernels.sources.machine import any_of, byte_mask, count_ones, helper, trailing_zeros

__all__ = ["character", "flags_of", "scan"]

_letters = byte_mask((ord("a"), ord("z")), (ord("A"), ord("Z")))
_digits = byte_mask((ord("0"), ord("9")))
_spaces = byte_mask((9, 13), (28, 32))
_newlines = any_of("\n")
_marks = any_of("\n?!,.")
_white = any_of("\t\n\r\b ")
_parentheses = any_of("{}[]()")
_continuations = byte_mask((0x80, 0xBF))
_beginnings = byte_mask((0xC0, 0xFF))


@helper
def character(text, at):
    """The character of more than one byte that begins at a byte, and how many bytes it has."""
    lead = int64(text[at])
    second = int64(text[at + 1]) & 63
    if lead < 0xE0:
        return ((lead & 31) << 6) | second, 2
    third = int64(text[at + 2]) & 63
    if lead < 0xF0:
        return ((lead & 15) << 12) | (second << 6) | third, 3
    return ((lead & 7) << 18) | (second << 12) | (third << 6) | (int64(text[at + 3]) & 63), 4


@helper
def flags_of(blocks, flags, code_point):
    """What the table of characters says of a character."""
    return int64(flags[(int64(blocks[code_point >> 8]) << 8) | (code_point & 255)])


@helper
def set_bits(bits, at, count):
    word, shift = at >> 6, uint64(at & 63)
    ones = (uint64(1) << uint64(count)) - uint64(1)
    bits[word] |= ones << shift
    if int64(shift) + count > 64:
        bits[word + 1] |= ones >> (uint64(64) - shift)


@helper
def scan(text, size, blocks, flags, spaces, letters, continued, newlines, letters_before, continued_before, counts):
    """Fill the bitmaps of a text and count its characters; whether it is plain ASCII."""
    words = (size + 63) >> 6
    plain = digits = white = parentheses = lines = 0
    others = uint64(0)
    for word in range(words):
        at = word << 6
        here = FULL if size - at >= 64 else (uint64(1) << uint64(size - at)) - uint64(1)
        letter, digit, newline = _letters(text, at), _digits(text, at), _newlines(text, at)
        spaces[word] = _spaces(text, at) | ~here  # beyond the end all is white space
        letters[word] = letter
        newlines[word] = newline
        continued[word] = _continuations(text, at)
        plain += count_ones(letter | digit | _marks(text, at))
        digits += count_ones(digit)
        white += count_ones(_white(text, at))
        parentheses += count_ones(_parentheses(text, at))
        lines += count_ones(newline)
        others |= _beginnings(text, at)
    if others != uint64(0):
        for word in range(words):
            at = word << 6
            leads = _beginnings(text, at)
            while leads != uint64(0):
                place = at + trailing_zeros(leads)
                leads &= leads - uint64(1)
                code_point, length = character(text, place)
                kind = flags_of(blocks, flags, code_point)
                if kind != 0:
                    if kind & IS_SPACE:
                        set_bits(spaces, place, length)
                    letters[word] |= uint64((kind // IS_LETTER) & 1) << uint64(place - at)
                    digits += (kind // IS_DIGIT) & 1
                    parentheses += (kind // IS_PARENTHESIS) & 1
    letter_count = continued_count = word_count = 0
    previous = uint64(1)
    for word in range(words):
        letters_before[word] = letter_count
        continued_before[word] = continued_count
        letter_count += count_ones(letters[word])
        continued_count += count_ones(continued[word])
        space = spaces[word]
        word_count += count_ones(~space & ((space << uint64(1)) | previous))
        previous = space >> uint64(63)
    spaces[words] = FULL
    letters[words] = continued[words] = newlines[words] = uint64(0)
    letters_before[words], continued_before[words] = letter_count, continued_count
    counts[CHARACTERS] = size - continued_count
    counts[NOT_PLAIN] = size - continued_count - plain
    counts[DIGITS] = digits
    counts[WHITE_SPACE] = white
    counts[PARENTHESES] = parentheses
    counts[LETTERS] = letter_count
    counts[NEWLINES] = lines
    counts[NOT_NEWLINES] = size - continued_count - lines
    counts[WORDS] = word_count
    return others == uint64(0)
