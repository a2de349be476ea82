"""Replaces and removes characters of a text.

Each function reads a text, writes the new one and returns its size; -1 if the text stays as it is (then what was
written is undefined). Up to :data:`PADDING` bytes are read after the text, and overwritten after the new one.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import (
    any_of,
    byte_mask,
    copy_64,
    copy_64_replacing,
    helper,
    load64,
    trailing_zeros,
)

__all__ = [
    "collapse_blanks",
    "copy",
    "copy_exactly",
    "normalize_newlines",
    "remove_controls",
    "remove_urls",
    "space_at",
    "unify_quotes",
    "with_label",
]

_quote_leads = byte_mask((0xE2, 0xE2), (0xEF, 0xEF))
_e2, _80, _98_to_9f = byte_mask((0xE2, 0xE2)), byte_mask((0x80, 0x80)), byte_mask((0x98, 0x9F))
_ef, _bc, _82_or_87 = byte_mask((0xEF, 0xEF)), byte_mask((0xBC, 0xBC)), byte_mask((0x82, 0x82), (0x87, 0x87))
_newlines = any_of("\n")
_colons = any_of(":")
_slashes = any_of("/")
_dots = any_of(".")
_w = any_of("wW")
_controls = byte_mask((0, 8), (0x0B, 0x1F), (0x7F, 0x7F), (0xC2, 0xC2))
_maybe_spaces = byte_mask((9, 13), (28, 32), (0xC2, 0xC2), (0xE1, 0xE3))
_blanks = any_of(" \t")
_tabs = any_of("\t")
_spaces = any_of(" ")
_ends = any_of(" \t\n")
_underscores = any_of("_")
_returns = any_of("\r")


@helper
def copy(target, at, source, begin, end):
    """Copy bytes, 64 at a time. Returns the place after them."""
    size = end - begin
    done = 0
    while done < size:
        copy_64(target, at + done, source, begin + done)
        done += 64
    return at + size


@helper
def copy_exactly(target, at, source, begin, end):
    """Copy bytes without reading or writing anything after them."""
    size = end - begin
    whole = size & ~63
    copy(target, at, source, begin, begin + whole)
    for i in range(whole, size):
        target[at + i] = source[begin + i]
    return at + size


@helper
def unify_quotes(text, size, target):
    at = done = written = 0
    while at < size:
        if _quote_leads(text, at) == uint64(0):  # rare enough in most languages for the processor to predict it
            at += 64
            continue
        curly = _e2(text, at) & _80(text, at + 1) & _98_to_9f(text, at + 2)  # U+2018 to U+201F
        wide = _ef(text, at) & _bc(text, at + 1) & _82_or_87(text, at + 2)  # U+FF02 and U+FF07
        found = curly | wide
        while found != uint64(0):
            place = at + trailing_zeros(found)
            found &= found - uint64(1)
            if place + 2 >= size:
                break
            third = text[place + 2]
            written = copy(target, written, text, done, place)
            target[written] = 39 if third == 0x87 or 0x98 <= third <= 0x9B else 34
            written += 1
            done = place + 3
        at += 64
    if done == 0:
        return -1
    return copy(target, written, text, done, size)


@helper
def normalize_newlines(text, size, target):
    at = done = written = 0
    while at < size:
        newlines = _newlines(text, at)
        if newlines != uint64(0):
            newlines &= _newlines(text, at + 1)
        if newlines != uint64(0):
            newlines &= _newlines(text, at + 2)
        place = at + trailing_zeros(newlines)
        if newlines == uint64(0):
            at += 64
        elif place + 2 >= size:
            break
        else:
            written = copy(target, written, text, done, place + 2)
            done = place + 3
            while done < size and text[done] == 10:
                done += 1
            at = done
    # The same for newlines of Windows, in what the first pass left.
    source, limit = text, size
    if done > 0:
        source, limit = target, copy(target, written, text, done, size)
    found = crlf_run(source, 0, limit)
    if found >= limit:
        return limit if done > 0 else -1
    if done == 0:
        copy(target, 0, text, 0, size)
    written = done = 0
    while found < limit:
        for i in range(done, found + 4):
            target[written] = target[i]
            written += 1
        done = found + 6
        while done + 1 < limit and target[done] == 13 and target[done + 1] == 10:
            done += 2
        found = crlf_run(target, done, limit)
    for i in range(done, limit):
        target[written] = target[i]
        written += 1
    return written


@helper
def crlf_run(text, at, size):
    """The first place with three Windows newlines in a row, from a place on; the size if there is none."""
    while at < size:
        found = _returns(text, at)
        while found != uint64(0):
            place = at + trailing_zeros(found)
            found &= found - uint64(1)
            others = load64(text, place) & uint64(0xFFFFFFFFFFFF)
            if place + 5 < size and others == uint64(0x0A0D0A0D0A0D):
                return place
        at += 64
    return size


@helper
def space_at(text, at):
    """How many bytes the white space character at a place has; 0 if there is none."""
    byte = text[at]
    if byte < 0x80:
        return 1 if 9 <= byte <= 13 or 28 <= byte <= 32 else 0
    second, third = text[at + 1], text[at + 2]
    if byte == 0xC2:
        return 2 if second == 0x85 or second == 0xA0 else 0
    if byte == 0xE1:
        return 3 if second == 0x9A and third == 0x80 else 0
    if byte == 0xE2:
        if second == 0x80:  # U+2000 to U+200A, U+2028, U+2029, U+202F
            return 3 if third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF else 0
        return 3 if second == 0x81 and third == 0x9F else 0
    if byte == 0xE3:
        return 3 if second == 0x80 and third == 0x80 else 0
    return 0


@helper
def url_begin(text, colon, least):
    """The beginning of the address whose ``://`` is at a place; -1 if there is none."""
    at = colon
    if at > least and text[at - 1] | 32 == 115:  # 's'
        at -= 1
    elif at > least + 1 and text[at - 1] == 0xBF and text[at - 2] == 0xC5:  # an old 's', which is one in upper case
        at -= 2
    if at - 4 < least:
        return -1
    if text[at - 4] | 32 == 104 and text[at - 3] | 32 == 116 and text[at - 2] | 32 == 116 and text[at - 1] | 32 == 112:
        return at - 4
    return -1


@helper
def next_space(text, at, size):
    while at < size:
        found = _maybe_spaces(text, at)
        while found != uint64(0):
            place = at + trailing_zeros(found)
            found &= found - uint64(1)
            if place >= size:
                return size
            if space_at(text, place) > 0:
                return place
        at += 64
    return size


@helper
def remove_urls(text, size, target):
    at = done = written = 0
    while at < size:
        marks = _colons(text, at)
        if marks != uint64(0):
            marks &= _slashes(text, at + 1) & _slashes(text, at + 2)
        www = _w(text, at)
        if www != uint64(0):
            www &= _w(text, at + 1)
            if www != uint64(0):
                www &= _w(text, at + 2) & _dots(text, at + 3)
        found = marks | www
        if found == uint64(0):
            at += 64
            continue
        place = at + trailing_zeros(found)
        if place >= size:
            break
        if text[place] == 58:
            begin, after = url_begin(text, place, done), place + 3
        else:
            begin, after = place, place + 4
        at = place + 1
        if begin >= 0 and after < size and space_at(text, after) == 0:
            written = copy(target, written, text, done, begin)
            done = at = next_space(text, after, size)
    if done == 0:
        return -1
    return copy(target, written, text, done, size)


@helper
def remove_controls(text, size, target):
    at = done = written = 0
    while at < size:
        found = _controls(text, at)
        if found == uint64(0):
            at += 64
            continue
        place = at + trailing_zeros(found)
        if place >= size:
            break
        at = place + 1
        byte = text[place]
        if byte == 0xC2:
            if text[place + 1] > 0x9F:
                continue
            at += 1
        written = copy(target, written, text, done, place)
        done = at
        if byte == 13:
            target[written] = 10
            written += 1
            if at < size and text[at] == 10:
                done = at = at + 1
    if done == 0:
        return -1
    return copy(target, written, text, done, size)


@helper
def collapse_blanks(text, size, target):
    at = done = written = 0
    while at < size:
        found = _tabs(text, at) | (_spaces(text, at) & _ends(text, at + 1))
        if found == uint64(0):
            at += 64
            continue
        place = at + trailing_zeros(found)
        if place >= size:
            break
        written = copy(target, written, text, done, place)
        done = place + 1
        while done < size and (text[done] == 32 or text[done] == 9):
            done += 1
        at = done
        if done < size and text[done] != 10:
            target[written] = 32
            written += 1
    if done < size and text[size - 1] == 32:
        return copy(target, written, text, done, size - 1)
    if done == 0:
        return -1
    return copy(target, written, text, done, size)


@helper
def with_label(text, size, target, label, label_size):
    """The label, a space, and the text with spaces in place of newlines and of what looks like a label."""
    for i in range(label_size):
        target[i] = label[i]
    target[label_size] = 32
    at = done = 0
    written = label_size + 1
    while at < size:
        copy_64_replacing(target, written + at - done, text, at, 10, 32)
        found = _underscores(text, at)
        if found != uint64(0):
            found &= _underscores(text, at + 1)
        step = 64
        while found != uint64(0):
            place = at + trailing_zeros(found)
            found &= found - uint64(1)
            if is_label(text, place, size):
                written += place - done
                target[written] = 32
                written += 1
                done = place + 9
                step = done - at
                break
        at += step
    return written + max(size - done, 0)


@helper
def is_label(text, at, size):
    if at + 9 > size:
        return False
    if text[at] != 95 or text[at + 1] != 95 or text[at + 7] != 95 or text[at + 8] != 95:
        return False
    word = int64(text[at + 2]) << 32 | int64(text[at + 3]) << 24 | int64(text[at + 4]) << 16
    return word | int64(text[at + 5]) << 8 | int64(text[at + 6]) == 0x6C6162656C  # "label"
