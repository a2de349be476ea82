"""The pieces that byte-level tokenizers split a text into, which the regular expressions of GPT-2 and GPT-4 match.

Four bitmaps, one bit per byte, say which bytes belong to letters, numbers, white space and other characters. The pieces
are runs of these, so that most are found by looking for the end of a run.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import byte_mask, helper, trailing_zeros
from tamis.kernels.sources.scan import character, character_size, set_bits
from tamis.kernels.sources.token_rows import run_end
from tamis.kernels.token_styles import (
    CHECKED,
    COMPOSED,
    GPT2,
    JOINS,
    LEADS,
    LETTER,
    NUMBER,
    UNKNOWN,
    WHITE,
    WHOLE,
)

__all__ = ["classify_bytes", "piece_end"]

_letters = byte_mask((ord("a"), ord("z")), (ord("A"), ord("Z")))
_digits = byte_mask((ord("0"), ord("9")))
_white = byte_mask((9, 13), (32, 32))
_high = byte_mask((0x80, 0xFF))
_begins = byte_mask((0xC0, 0xFF))

_APOSTROPHE, _SPACE = 39, 32
_D, _E, _L, _M, _R, _S, _T, _V = 100, 101, 108, 109, 114, 115, 116, 118
_LONG_S = (0xC5, 0xBF)  # which is an s where case does not count
_NEAR = 8  # how many marks in a row are looked at


@helper
def may_compose(text, at, size, kind, kinds, orders):
    """Whether a mark may have to be moved or composed with a character before it for the text to be in form C."""
    own = orders[character(text, at)[0]]
    back = at
    for step in range(_NEAR):
        if back == 0:
            return False
        back -= 1
        while back > 0 and text[back] & 0xC0 == 0x80:
            back -= 1
        before = int64(text[back])
        if before >= 0x80:
            before = character(text, back)[0]
        order = orders[before]
        if step == 0 and order > own and own != 0:
            return True
        if order == 0 or own == 0:
            return kind & JOINS != 0 and kinds[before] & LEADS != 0
    return True


@helper
def classify_bytes(text, size, kinds, orders, letters, numbers, spaces, others):
    """Fill the bitmaps. Returns whether the kernel can tokenise the text.

    Args:
        kinds: Bits of each character; see :mod:`tamis.kernels.token_styles`.
        orders: The canonical combining class of each character.
    """
    words = (size + 63) >> 6
    for word in range(words):
        at = word << 6
        here = ~uint64(0) if size - at >= 64 else (uint64(1) << uint64(size - at)) - uint64(1)
        letter, digit, white = _letters(text, at) & here, _digits(text, at) & here, _white(text, at) & here
        letters[word] |= letter
        numbers[word] |= digit
        spaces[word] |= white
        begins = _begins(text, at) & here
        if begins != uint64(0):
            # A character may end in the next word, so the words after this one are cleared first.
            while begins != uint64(0):
                place = at + trailing_zeros(begins)
                begins &= begins - uint64(1)
                code_point, length = character(text, place)
                kind = int64(kinds[code_point])
                if kind & (LETTER | NUMBER | WHITE) != 0:
                    bits = letters if kind & LETTER != 0 else numbers if kind & NUMBER != 0 else spaces
                    set_bits(bits, place, length)
                    over = (place & 63) + length - 64
                    if over > 0:
                        bits[word + 1] |= (uint64(1) << uint64(over)) - uint64(1)
                if kind & (UNKNOWN | COMPOSED | CHECKED) != 0:
                    if kind & (UNKNOWN | COMPOSED) != 0:
                        return False
                    if may_compose(text, place, size, kind, kinds, orders):
                        return False
        others[word] = ~(letters[word] | numbers[word] | spaces[word]) & here
    return True


@helper
def contraction(text, at, size, any_case):
    """The size of "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" at an apostrophe; 0 if there is none."""
    if size - at < 2:
        return 0
    fold = 32 if any_case else 0
    first = text[at + 1] | fold
    if first in (_S, _T, _M, _D):
        return 2
    if size - at < 3:
        return 0
    second = text[at + 2] | fold
    if (second == _E and first in (_R, _V)) or (first == _L and second == _L):
        return 3
    return 3 if any_case and text[at + 1] == _LONG_S[0] and text[at + 2] == _LONG_S[1] else 0


@helper
def is_set(bits, at):
    return (bits[at >> 6] >> uint64(at & 63)) & uint64(1) != uint64(0)


@helper
def is_newline(byte):
    return byte == 10 or byte == 13


@helper
def digits_end(text, at, numbers, most):
    """The end of a run of numbers, of at most so many characters; 0: any number."""
    end = run_end(numbers, at)
    if most > 0 and end - at > most:
        cut = at
        for _ in range(most):
            if cut < end:
                cut += character_size(text[cut])
        return cut
    return end


@helper
def white_end(text, at, size, spaces, cuts_after_newline):
    """The end of a piece of white space: without its last character if more text follows."""
    end = run_end(spaces, at)
    if cuts_after_newline:
        for place in range(end - 1, at - 1, -1):
            if is_newline(text[place]):
                return place + 1
    if end == size or end - at == 1:
        return end
    last = end - 1
    while text[last] & 0xC0 == 0x80:
        last -= 1
    return last if last > at else end


@helper
def piece_end(text, at, size, style, digits, letters, numbers, spaces, others):
    """Where the piece that begins at a byte ends.

    Args:
        style: One of :mod:`tamis.kernels.token_styles`.
        digits: The most characters of a number; 0: any number.
        letters, numbers, spaces, others: The bitmaps.
    """
    if style == WHOLE:
        return size
    byte = text[at]
    # A space and then letters: most pieces of most texts.
    if byte == _SPACE and is_set(letters, at + 1):
        return run_end(letters, at + 1)
    if is_set(letters, at):
        return run_end(letters, at)
    if byte == _APOSTROPHE:
        short = contraction(text, at, size, style != GPT2)
        if short > 0:
            return at + short
    if is_set(numbers, at):
        return digits_end(text, at, numbers, digits)
    if style == GPT2:
        if byte == _SPACE and is_set(numbers, at + 1):
            return run_end(numbers, at + 1)
        if byte == _SPACE and is_set(others, at + 1):
            return run_end(others, at + 1)
        if is_set(others, at):
            return run_end(others, at)
        return white_end(text, at, size, spaces, False)
    if not is_newline(byte):
        after = at + character_size(byte)
        if is_set(letters, after):
            return run_end(letters, after)
    if is_set(others, at) or (byte == _SPACE and is_set(others, at + 1)):
        end = run_end(others, at + 1)
        while end < size and is_newline(text[end]):
            end += 1
        return end
    return white_end(text, at, size, spaces, True)
