"""Phrases in a text, in upper or lower case, and URLs."""

from __future__ import annotations

from numpy import int64, uint8, uint64

from tamis.kernels.measures import ELLIPSES, PARAGRAPHS, POLICY_PARAGRAPHS, PORNOGRAPHIC_URLS, URL_CHARACTERS
from tamis.kernels.sources.primitives import any_of, equal_mask, folded_mask, helper, trailing_zeros

__all__ = ["count_ellipses", "count_policies", "find_urls"]

_colons = any_of(":")
_e2_leads = any_of("\xe2")
_dots = any_of(".")
_SLASH, _PERCENT = 47, 37


@helper
def is_phrase(text, at, phrases, start, length):
    """Whether a phrase in lower case is at a place of the text, in any case."""
    for i in range(length):
        byte = text[at + i]
        if 65 <= byte <= 90:
            byte |= uint8(32)
        if byte != phrases[start + i]:
            return False
    return True


@helper
def has_phrase(text, begin, end, phrases, start, length):
    """Whether a phrase is in a part of the text."""
    first, middle, last = phrases[start], phrases[start + length // 2], phrases[start + length - 1]
    at = begin
    while at + length <= end:
        hits = (
            folded_mask(text, at, first)
            & folded_mask(text, at + length - 1, last)
            & folded_mask(text, at + length // 2, middle)
        )
        while hits != uint64(0):
            place = at + trailing_zeros(hits)
            hits &= hits - uint64(1)
            if place + length <= end and is_phrase(text, place, phrases, start, length):
                return True
        at += 64
    return False


@helper
def count_ellipses(text, size, counts):
    """How often there are three dots, or the one character for them."""
    found = after = 0
    for word in range((size + 63) >> 6):
        at = word << 6
        hits = _dots(text, at) & _dots(text, at + 1) & _dots(text, at + 2)
        while hits != uint64(0):
            place = at + trailing_zeros(hits)
            hits &= hits - uint64(1)
            if place >= after:
                found += 1
                after = place + 3
        leads = _e2_leads(text, at)
        while leads != uint64(0):
            place = at + trailing_zeros(leads)
            leads &= leads - uint64(1)
            found += 1 if text[place + 1] == 0x80 and text[place + 2] == 0xA6 else 0
    counts[ELLIPSES] = found


@helper
def with_plain_kelvin(text, size, spare):
    """Copy the text with "k" for the Kelvin sign, the one character beyond ASCII whose lower case is in a phrase.

    Returns the size of the copy; 0 if there is no Kelvin sign and so no copy.
    """
    found = False
    at = 0
    while at < size and not found:
        hits = _e2_leads(text, at)
        while hits != uint64(0):
            place = at + trailing_zeros(hits)
            hits &= hits - uint64(1)
            if place + 2 < size and text[place + 1] == 0x84 and text[place + 2] == 0xAA:
                found = True
        at += 64
    if not found:
        return 0
    at, length = 0, 0
    while at < size:
        if at + 2 < size and text[at] == 0xE2 and text[at + 1] == 0x84 and text[at + 2] == 0xAA:
            spare[length] = 107
            at += 3
        else:
            spare[length] = text[at]
            at += 1
        length += 1
    return length


@helper
def any_phrase(text, begin, end, phrases, phrase_ends, first, last):
    """Whether one of the phrases from the first up to the last is in a part of the text."""
    for i in range(first, last):
        start = phrase_ends[i - 1] if i > 0 else 0
        if has_phrase(text, begin, end, phrases, start, phrase_ends[i] - start):
            return True
    return False


@helper
def count_policies(text, size, is_ascii, phrases, phrase_ends, phrase_count, anchor_count, spare, counts):
    """How many paragraphs hold a phrase; all of them if one holds "lorem ipsum".

    The first phrases are anchors: every later phrase contains one. "lorem ipsum" comes right after the anchors.
    """
    counts[POLICY_PARAGRAPHS] = 0
    body = text
    if not is_ascii:
        length = with_plain_kelvin(text, size, spare)
        if length > 0:
            body, size = spare, length
    if not any_phrase(body, 0, size, phrases, phrase_ends, 0, anchor_count):
        return
    if any_phrase(body, 0, size, phrases, phrase_ends, anchor_count, anchor_count + 1):
        # The phrase has no newline, so it is in one paragraph.
        counts[POLICY_PARAGRAPHS] = counts[PARAGRAPHS]
        return
    if not any_phrase(body, 0, size, phrases, phrase_ends, anchor_count + 1, phrase_count):
        return
    start = at = found = 0
    while at <= size:
        is_end = at == size
        if is_end or (at + 1 < size and body[at] == 10 and body[at + 1] == 10):
            found += 1 if any_phrase(body, start, at, phrases, phrase_ends, anchor_count + 1, phrase_count) else 0
            if is_end:
                break
            start = at = at + 2
        else:
            at += 1
    counts[POLICY_PARAGRAPHS] = found


@helper
def is_url_byte(byte):
    """Whether a byte may be in a URL by itself: letters, digits and $-_@.&+/:=?#~!*(),"""
    if 97 <= byte | 32 <= 122:
        return True
    if 48 <= byte <= 58 or 35 <= byte <= 36 or byte == 38 or 40 <= byte <= 47:  # 0-9 : # $ & ( ) * + , - . /
        return True
    return byte == 33 or byte == 61 or byte == 63 or byte == 64 or byte == 95 or byte == 126  # ! = ? @ _ ~


@helper
def is_hex(byte):
    return 48 <= byte <= 57 or 97 <= byte | 32 <= 102


@helper
def find_urls(text, size, counts):
    """Count the characters of http and https addresses, and see whether one has "porn" in it."""
    characters = pornographic = last_end = at = 0
    while at < size:
        hits = _colons(text, at) & equal_mask(text, at + 1, uint8(_SLASH)) & equal_mask(text, at + 2, uint8(_SLASH))
        while hits != uint64(0):
            colon = at + trailing_zeros(hits)
            hits &= hits - uint64(1)
            start = colon - 4
            if start >= 0 and text[colon - 1] == 115:  # s
                start -= 1
            if start < last_end or colon + 2 >= size:
                continue
            if text[start] != 104 or text[start + 1] != 116 or text[start + 2] != 116 or text[start + 3] != 112:
                continue
            end = colon + 3
            while end < size:
                byte = int64(text[end])
                if is_url_byte(byte):
                    end += 1
                elif (
                    byte == _PERCENT
                    and end + 2 < size
                    and is_hex(int64(text[end + 1]))
                    and is_hex(int64(text[end + 2]))
                ):
                    end += 3
                else:
                    break
            if end > colon + 3:
                characters += end - start
                last_end = end
                for i in range(start, end - 3):
                    if text[i] == 112 and text[i + 1] == 111 and text[i + 2] == 114 and text[i + 3] == 110:
                        pornographic = 1
        at += 64
    counts[URL_CHARACTERS] = characters
    counts[PORNOGRAPHIC_URLS] = pornographic
