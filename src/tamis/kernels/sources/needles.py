"""The kernel that finds the texts that contain one of some short strings of bytes.

All texts are read as one run of bytes, 64 at a time: for each string, the places among the 64 that may be its beginning
are narrowed down byte by byte, the rarest byte first, until none is left.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.operations import IN_LONG_WORDS, LONG_WORD, NEAR_DIGITS
from tamis.kernels.sources.primitives import PADDING, as_bytes, between_mask, byte_mask, helper, trailing_zeros

__all__ = ["kernel"]

_digits = byte_mask((ord("0"), ord("9")))
_white = byte_mask((0, 32))


@helper
def matching_places(block, at, letters, letter):
    """Which of 64 places may begin a needle, given one of its bytes."""
    here = 4 * letter
    return between_mask(block, at + int64(letters[here]), letters[here + 1], letters[here + 2], letters[here + 3])


@helper
def allowed_places(block, at, where):
    """The places where needles are looked for, which are few in most texts."""
    if where == NEAR_DIGITS:
        return ~uint64(0) if _digits(block, at) | _digits(block, at + 64) != uint64(0) else uint64(0)
    if where == IN_LONG_WORDS:
        here, after = ~_white(block, at), ~_white(block, at + 64)
        length = 1
        while length < LONG_WORD:  # a run that is twice as long each time
            here &= (here >> uint64(length)) | (after << uint64(64 - length))
            after &= after >> uint64(length)
            length *= 2
        return here
    return ~uint64(0)


def kernel(texts, offsets, row_count, readable, letters, sizes, needle_count, where, scratch, found):
    """Mark the texts that contain a needle. Returns how many do.

    Args:
        letters: For each byte that is compared: its place in the needle, bits to set first, the lowest byte that
            matches, and how many more bytes match.
        sizes: For each needle its length, and where its bytes end in ``letters``. It has at least two.
        where: At which places needles are looked for: see :mod:`tamis.kernels.operations`.
        scratch: At least three times :data:`PADDING`.
    """
    begin, end = offsets[0], offsets[row_count]
    block = as_bytes(texts, 0)
    shift = 0
    at = begin
    row = 0  # the row that the byte ``at`` is in
    count = 0
    while at < end:
        if shift == 0 and at + PADDING > readable:
            block, shift = as_bytes(scratch, 0), at
            for i in range(end - at):
                block[i] = texts[at + i]
            for i in range(end - at, end - at + PADDING):
                block[i] = 0
        while offsets[row + 1] <= at:
            row += 1
        if found[row] != 0:
            at = offsets[row + 1]
            continue
        allowed = allowed_places(block, at - shift, where)
        if allowed == uint64(0):
            at += 64
            continue
        # The two rarest bytes of all needles first, without a branch that the processor could not predict.
        some = uint64(0)
        letter = 0
        for needle in range(needle_count):
            some |= matching_places(block, at - shift, letters, letter) & matching_places(
                block, at - shift, letters, letter + 1
            )
            letter = sizes[2 * needle + 1]
        some &= allowed
        if some == uint64(0):
            at += 64
            continue
        letter = 0
        for needle in range(needle_count):
            places = some
            while letter < sizes[2 * needle + 1] and places != uint64(0):
                places &= matching_places(block, at - shift, letters, letter)
                letter += 1
            letter = sizes[2 * needle + 1]
            holder = row
            while places != uint64(0):
                place = at + trailing_zeros(places)
                places &= places - uint64(1)
                if place >= end:
                    break
                while offsets[holder + 1] <= place:
                    holder += 1
                if found[holder] == 0 and place + sizes[2 * needle] <= offsets[holder + 1]:
                    found[holder] = 1
                    count += 1
        at += 64
    return count
