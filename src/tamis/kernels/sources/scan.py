"""The first pass over a text: which bytes are white space, letters, newlines; how many characters of each kind."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.measures import (
    ALL_LINES,
    ASCII_DIGITS,
    CHARACTERS,
    DIGITS,
    HASH_SIGNS,
    IS_DIGIT,
    IS_LETTER,
    IS_PARENTHESIS,
    IS_SPACE,
    LETTER_WORDS,
    LETTERS,
    NEWLINES,
    NOT_NEWLINES,
    NOT_PLAIN,
    PARENTHESES,
    WHITE_SPACE,
    WORDS,
)
from tamis.kernels.sources.hashing import FULL
from tamis.kernels.sources.primitives import any_of, byte_mask, count_ones, helper, trailing_zeros

__all__ = ["character", "character_size", "classify", "flags_of", "scan"]

_letters = byte_mask((ord("a"), ord("z")), (ord("A"), ord("Z")))
_digits = byte_mask((ord("0"), ord("9")))
_spaces = byte_mask((9, 13), (28, 32))
_newlines = any_of("\n")
_marks = any_of("\n?!,.")
_white = any_of("\t\n\r\b ")
_parentheses = any_of("{}[]()")
_hash_signs = any_of("#")
_continuations = byte_mask((0x80, 0xBF))
_beginnings = byte_mask((0xC0, 0xFF))


@helper
def character(text, at):
    """The character of more than one byte that begins at a byte, and how many bytes it has.

    Bytes that are not UTF-8 (Parquet files may hold any) become some character of Unicode, so that it is in the table.
    """
    lead = int64(text[at])
    second = int64(text[at + 1]) & 63
    if lead < 0xE0:
        return ((lead & 31) << 6) | second, 2
    third = int64(text[at + 2]) & 63
    if lead < 0xF0:
        return ((lead & 15) << 12) | (second << 6) | third, 3
    code_point = ((lead & 7) << 18) | (second << 12) | (third << 6) | (int64(text[at + 3]) & 63)
    return min(code_point, 0x10FFFF), 4


@helper
def character_size(lead):
    """How many bytes the character has that begins with a byte."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@helper
def flags_of(blocks, flags, code_point):
    """The bits of a character in the table of characters."""
    return int64(flags[(int64(blocks[code_point >> 8]) << 8) | (code_point & 255)])


@helper
def set_bits(bits, at, count):
    word, shift = at >> 6, uint64(at & 63)
    ones = (uint64(1) << uint64(count)) - uint64(1)
    bits[word] |= ones << shift
    if int64(shift) + count > 64:
        bits[word + 1] |= ones >> (uint64(64) - shift)


@helper
def scan(text, size, spaces, letters, continued, newlines, counts):
    """Fill the bitmaps of a text for ASCII, and count its characters; returns whether it is plain ASCII."""
    words = (size + 63) >> 6
    plain = digits = white = parentheses = lines = following = signs = 0
    others = uint64(0)
    for word in range(words):
        at = word << 6
        here = FULL if size - at >= 64 else (uint64(1) << uint64(size - at)) - uint64(1)
        letter, digit, newline = _letters(text, at), _digits(text, at), _newlines(text, at)
        spaces[word] = _spaces(text, at) | ~here  # beyond the end all is white space
        letters[word] = letter
        newlines[word] = newline
        continued[word] = _continuations(text, at)
        following += count_ones(continued[word])
        plain += count_ones(letter | digit | _marks(text, at))
        digits += count_ones(digit)
        white += count_ones(_white(text, at))
        parentheses += count_ones(_parentheses(text, at))
        lines += count_ones(newline)
        signs += count_ones(_hash_signs(text, at))
        others |= _beginnings(text, at)
    spaces[words] = FULL
    letters[words] = continued[words] = newlines[words] = uint64(0)
    counts[CHARACTERS] = size - following
    counts[NOT_PLAIN] = size - following - plain
    counts[WHITE_SPACE] = white
    counts[NEWLINES] = lines
    counts[NOT_NEWLINES] = size - following - lines
    counts[ALL_LINES] = lines + 1
    counts[ASCII_DIGITS] = counts[DIGITS] = digits
    counts[PARENTHESES] = parentheses
    counts[HASH_SIGNS] = signs
    return others == uint64(0)


@helper
def classify(text, size, is_ascii, blocks, flags, spaces, letters, continued, continued_before, counts):
    """Complete the bitmaps and counts with the characters beyond ASCII; count the words."""
    words = (size + 63) >> 6
    if not is_ascii:
        digits = parentheses = 0
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
        counts[DIGITS] += digits
        counts[PARENTHESES] += parentheses
    letter_count = continued_count = word_count = letter_words = 0
    was_space = carry = uint64(1)
    for word in range(words):
        continued_before[word] = continued_count
        continued_count += count_ones(continued[word])
        letter_count += count_ones(letters[word])
        space = spaces[word]
        word_count += count_ones(~space & ((space << uint64(1)) | was_space))
        was_space = space >> uint64(63)
        # Words are runs of ones. Adding a one anywhere in a run makes it overflow into the space after it.
        carried = carry if word > 0 else uint64(0)
        once = ~space + letters[word]
        total = once + carried
        letter_words += count_ones(total & space)
        carry = uint64(1) if once < letters[word] or total < carried else uint64(0)
    # A word that ends with the last bitmap overflows beyond it.
    letter_words += int64(carry) if words > 0 else 0
    continued_before[words] = continued_count
    counts[LETTERS] = letter_count
    counts[WORDS] = word_count
    counts[LETTER_WORDS] = letter_words
