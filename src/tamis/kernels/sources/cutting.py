"""Cuts parts out of a text: markup, lines, ends. The functions are as in :mod:`tamis.kernels.sources.replacing`."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import (
    any_of,
    as_bytes,
    byte_mask,
    copy_64,
    count_ones,
    equal_mask,
    helper,
    leading_zeros,
    load64,
    trailing_zeros,
)
from tamis.kernels.sources.replacing import copy, space_at

__all__ = ["keep_slice", "remove_lines", "remove_markdown", "remove_quotes"]

_marks = any_of("*_[")
_newlines = any_of("\n")
_continuations = byte_mask((0x80, 0xBF))

_NONE, _NUMBER = 0, 1


@helper
def line_end(text, at, size):
    while at < size:
        found = _newlines(text, at)
        if found != uint64(0):
            return min(at + trailing_zeros(found), size)
        at += 64
    return size


@helper
def without_bold(line, size):
    """``**x**`` becomes ``x``, in place."""
    written = at = 0
    while at < size:
        if at + 3 < size and line[at] == 42 and line[at + 1] == 42:
            end = at + 2
            while end + 1 < size and not (line[end] == 42 and line[end + 1] == 42):
                end += 1
            if end + 1 < size:
                for i in range(at + 2, end):
                    line[written] = line[i]
                    written += 1
                at = end + 2
                continue
            break
        line[written] = line[at]
        written += 1
        at += 1
    while at < size:
        line[written] = line[at]
        written += 1
        at += 1
    return written


@helper
def without_pairs(line, size, mark, count):
    """Pairs of a mark are removed, in place."""
    left = count & ~1
    written = 0
    for i in range(size):
        byte = line[i]
        if byte == mark and left > 0:
            left -= 1
        else:
            line[written] = byte
            written += 1
    return written


@helper
def without_links(line, size):
    """``[x](y)`` becomes ``y``, in place."""
    written = at = 0
    while at < size:
        if line[at] == 91:
            middle = at + 1
            while middle + 1 < size and not (line[middle] == 93 and line[middle + 1] == 40):
                middle += 1
            end = middle + 2
            while end < size and line[end] != 41:
                end += 1
            if end >= size:
                break
            for i in range(middle + 2, end):
                line[written] = line[i]
                written += 1
            at = end + 1
        else:
            line[written] = line[at]
            written += 1
            at += 1
    while at < size:
        line[written] = line[at]
        written += 1
        at += 1
    return written


@helper
def without_markdown(line, size):
    """A line without its markup, in place."""
    stars = underscores = brackets = 0
    for i in range(size):
        byte = line[i]
        stars += byte == 42
        underscores += byte == 95
        brackets += byte == 91
    if stars >= 4:
        size = without_bold(line, size)
        stars = 0
        for i in range(size):
            stars += line[i] == 42
    if stars >= 2:
        size = without_pairs(line, size, 42, stars)
    if underscores >= 2:
        size = without_pairs(line, size, 95, underscores)
    if brackets > 0:
        size = without_links(line, size)
    return size


@helper
def remove_markdown(text, size, target):
    at = done = written = 0
    changed = False
    while at < size:
        found = _marks(text, at)
        if found == uint64(0):
            at += 64
            continue
        place = at + trailing_zeros(found)
        if place >= size:
            break
        begin = place
        while begin > done and text[begin - 1] != 10:
            begin -= 1
        end = line_end(text, place, size)
        written = copy(target, written, text, done, begin)
        copy(target, written, text, begin, end)
        kept = without_markdown(as_bytes(target, written), end - begin)
        changed = changed or kept != end - begin
        written += kept
        done = at = end
    if not changed:
        return -1
    return copy(target, written, text, done, size)


@helper
def key_of(text, at, size):
    """The first eight bytes of a line and, mixed in, its size."""
    start = load64(text, at)
    if size < 8:
        start &= (uint64(1) << uint64(8 * size)) - uint64(1)
    return start ^ (uint64(size) << uint64(48))


@helper
def is_listed(text, at, size, listed, numbers, keys):
    key = key_of(text, at, size)
    low, high = 0, numbers[0]
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    while low < numbers[0] and keys[low] == key:
        begin = numbers[low + 2]
        if numbers[low + 3] - begin == size:
            i = 0
            while i < size and listed[begin + i] == text[at + i]:
                i += 1
            if i == size:
                return True
        low += 1
    return False


@helper
def remove_lines(text, size, target, listed, numbers, keys):
    """Leave out the listed lines.

    A line of a given size lies between two newlines at that distance, which are found for 64 places at a time. So few
    lines have to be compared, unless there are very many sizes.

    ``numbers``: how many lines are listed; how many sizes they have, 0 if too many or too large; where each line begins
    in ``listed``, and where the last ends; the sizes. ``keys``: those of the lines, in ascending order.
    """
    sizes = numbers[0] + 3  # where the sizes are
    if numbers[0] == 0:
        return -1
    has_empty = is_listed(text, 0, 0, listed, numbers, keys)
    at = kept = written = 0  # kept: where the lines begin that are not yet copied
    end = line_end(text, 0, size)
    if is_listed(text, 0, end, listed, numbers, keys):
        if end == size:
            return 0 if size > 0 else -1
        at, kept = end, end + 1
    while at < size:
        newlines = _newlines(text, at)
        if size - at < 64:
            newlines &= (uint64(1) << uint64(size - at)) - uint64(1)
        found = newlines
        if newlines != uint64(0) and numbers[1] != 0:
            found = uint64(0)
            for i in range(sizes, sizes + numbers[1]):
                found |= newlines & _newlines(text, at + numbers[i] + 1)
        copy_64(target, written, text, kept)
        following = at + 64
        while found != uint64(0):
            begin = at + trailing_zeros(found) + 1
            found &= found - uint64(1)
            if begin < size and text[begin] == 10:
                end, is_found = begin, has_empty
            else:
                end = line_end(text, begin, size)
                is_found = is_listed(text, begin, end - begin, listed, numbers, keys)
            if is_found:
                written += begin - kept
                if end == size:
                    return max(written - 1, 0)  # without the newline before it
                kept = end + 1
                if end >= following:
                    following = end  # whose newline is the one before the next line
                    break
                copy_64(target, written, text, kept)
        written += max(following - kept, 0)
        kept = max(kept, following)
        at = following
    written -= at - size
    if numbers[1] != 0:  # the last line, which no newline need follow
        begin = size
        while begin > 0 and size - begin <= numbers[sizes + numbers[1] - 1] and text[begin - 1] != 10:
            begin -= 1
        if begin > 0 and text[begin - 1] == 10 and is_listed(text, begin, size - begin, listed, numbers, keys):
            return max(written - (size - begin) - 1, 0)
    return written if written < size else -1


@helper
def remove_quotes(text, size, target):
    if size <= 2 or text[0] != 34 or text[size - 1] != 34:
        return -1
    end = line_end(text, 0, size)
    if end < size and text[end - 1] == 34:
        return -1
    return copy(target, 0, text, 1, size - 1)


@helper
def find(text, size, needle, needle_size):
    """Where a text first occurs; -1 if nowhere."""
    if needle_size == 0:
        return 0
    at = 0
    while at < size:
        found = equal_mask(text, at, needle[0])
        if needle_size > 1 and found != uint64(0):
            found &= equal_mask(text, at + 1, needle[1])
        while found != uint64(0):
            place = at + trailing_zeros(found)
            found &= found - uint64(1)
            if place + needle_size > size:
                return -1
            i = 0
            while i < needle_size and text[place + i] == needle[i]:
                i += 1
            if i == needle_size:
                return place
        at += 64
    return -1


@helper
def find_last(text, size, needle, needle_size):
    """Where a text last occurs; -1 if nowhere."""
    if needle_size == 0:
        return size
    at = (size - 1) >> 6 << 6
    while at >= 0:
        found = equal_mask(text, at, needle[0])
        while found != uint64(0):
            highest = 63 - leading_zeros(found)
            found &= ~(uint64(1) << uint64(highest))
            place = at + highest
            if place + needle_size > size:
                continue
            i = 0
            while i < needle_size and text[place + i] == needle[i]:
                i += 1
            if i == needle_size:
                return place
        at -= 64
    return -1


@helper
def place_of(text, size, characters):
    """The byte at which the character with this index begins; as in Python, negative ones count from the end."""
    if characters < 0:
        at = 0
        while at < size:
            continued = _continuations(text, at)
            if size - at < 64:
                continued &= (uint64(1) << uint64(size - at)) - uint64(1)
            characters += min(size - at, 64) - count_ones(continued)
            at += 64
        if characters < 0:
            return 0
    at = 0
    while at < size:
        begins = ~_continuations(text, at)
        count = count_ones(begins)
        if count > characters:
            for _ in range(characters):
                begins &= begins - uint64(1)
            return min(at + trailing_zeros(begins), size)
        characters -= count
        at += 64
    return size


@helper
def keep_slice(text, size, target, needles, numbers):
    """Keep a part.

    ``numbers``: for the left and the right end how it is given (0 not at all, 1 a number, 2 a text), the number or the
    size of the text, and whether the text belongs to the part; then whether to strip it. Both texts are in ``needles``.
    """
    left, right = 0, size
    if numbers[0] == _NUMBER:
        left = place_of(text, size, numbers[1])
    elif numbers[0] != _NONE:
        left = find(text, size, needles, numbers[1])
        if left < 0:
            return 0 if size > 0 else -1
        if numbers[2] == 0:
            left += numbers[1]
    if numbers[3] == _NUMBER:
        right = place_of(text, size, numbers[4])
    elif numbers[3] != _NONE:
        skipped = numbers[1] if numbers[0] > _NUMBER else 0
        right = find_last(text, size, as_bytes(needles, skipped), numbers[4])
        if right < 0:
            return 0 if size > 0 else -1
        if numbers[5] != 0:
            right += numbers[4]
    if numbers[6] != 0:
        while left < right:
            space = space_at(text, left)
            if space == 0 or left + space > right:
                break
            left += space
        while left < right:
            begin = right - 1
            while begin > left and text[begin] & 0xC0 == 0x80:
                begin -= 1
            if space_at(text, begin) != right - begin:
                break
            right = begin
    if left == 0 and right == size:
        return -1
    if left >= right:
        return int64(0)
    return copy(target, 0, text, left, right)
