"""The kernel that hashes the n-grams of texts, and the pass over a text that other kernels share.

A text is a sequence of items: characters, each the number that its UTF-8 bytes make, or the hashes of words. The hash
of an n-gram is a polynomial in its items modulo 2 ** 64, which can be rolled, and then mixed. A text is taken in parts
of limited size, so that the memory for its hashes does not grow with it.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import int64, uint64

from tamis.kernels.sources.hashing import FULL, K1, mix, piece_hash
from tamis.kernels.sources.primitives import (
    BYTES,
    PADDING,
    WORDS,
    as_bytes,
    byte_mask,
    helper,
    load64,
    trailing_zeros,
    words_from,
)

__all__ = ["begin_text", "kernel", "next_shingles", "power_of", "readable_text"]

# The state of the pass over a text.
AT, HELD, MADE, WORD, IS_ASCII = 0, 1, 2, 3, 4

_HIGH_BITS = uint64(0x8080808080808080)
_LENGTHS = uint64(0x4322111111111111)  # of characters, by the upper half of their first byte

_high = byte_mask((0x80, 0xFF))
_ascii_spaces = byte_mask((9, 13), (28, 32))
_leads_of_spaces = byte_mask((0xC2, 0xC2), (0xE1, 0xE3))
_c2, _e1, _e2, _e3 = (byte_mask((lead, lead)) for lead in (0xC2, 0xE1, 0xE2, 0xE3))
_80, _81, _9a, _9f = (byte_mask((byte, byte)) for byte in (0x80, 0x81, 0x9A, 0x9F))
_second_of_two = byte_mask((0x85, 0x85), (0xA0, 0xA0))
_third_after_e2_80 = byte_mask((0x80, 0x8A), (0xA8, 0xA9), (0xAF, 0xAF))


def _widen(count):
    """A function that writes so many bytes as one word each."""
    small, large = ir.VectorType(ir.IntType(8), count), ir.VectorType(ir.IntType(64), count)

    @intrinsic
    def widen(typing_context, target, at, source, index):
        def generate(context, builder, signature, arguments):
            target, at, source, index = arguments
            block = builder.load(builder.bitcast(builder.gep(source, [index]), small.as_pointer()), align=1)
            place = builder.bitcast(builder.gep(target, [at]), large.as_pointer())
            builder.store(builder.zext(block, large), place, align=8)
            return context.get_dummy_value()

        return types.void(WORDS, types.int64, BYTES, types.int64), generate

    return widen


_widen_8, _widen_64 = _widen(8), _widen(64)


@helper
def readable_text(texts, begin, end, readable, scratch):
    """A text of which :data:`PADDING` bytes after its end can be read: a copy if it is the last of its buffer."""
    if end + PADDING <= readable:
        return as_bytes(texts, begin)
    for i in range(end - begin):
        scratch[i] = texts[begin + i]
    for i in range(end - begin, end - begin + PADDING):
        scratch[i] = 0
    return as_bytes(scratch, 0)


@helper
def power_of(multiplier, exponent):
    result = uint64(1)
    for _ in range(exponent):
        result *= multiplier
    return result


@helper
def begin_text(text, size, state):
    """Prepare the pass over a text."""
    state[AT] = state[HELD] = state[MADE] = 0
    state[WORD] = -1
    state[IS_ASCII] = 1
    at = 0
    while at < size:
        found = _high(text, at)
        if size - at < 64:
            found &= (uint64(1) << uint64(size - at)) - uint64(1)
        if found != uint64(0):
            state[IS_ASCII] = 0
            return
        at += 64


@helper
def take_characters(text, size, state, items, room):
    """Decode characters until there is no room for more."""
    at, held = state[AT], state[HELD]
    while at < size and held < room:
        if at + 64 <= size and held + 64 <= room and _high(text, at) == uint64(0):
            _widen_64(items, held, text, at)
            at += 64
            held += 64
            continue
        stop = min(at + 64, size)
        while at < stop and held < room:
            word = load64(text, at)
            if word & _HIGH_BITS == uint64(0) and at + 8 <= size and held + 8 <= room:
                _widen_8(items, held, text, at)
                at += 8
                held += 8
            else:
                length = min(int64((_LENGTHS >> ((word & uint64(0xF0)) >> uint64(2))) & uint64(7)), size - at)
                items[held] = word & (FULL >> uint64(64 - 8 * length))
                at += length
                held += 1
    state[AT], state[HELD] = at, held


@helper
def wide_spaces(text, at):
    """Which of 64 bytes begin a space of two bytes, and which one of three."""
    two = _c2(text, at) & _second_of_two(text, at + 1)
    after_80 = _80(text, at + 1)
    three = _e1(text, at) & _9a(text, at + 1) & _80(text, at + 2)
    three |= _e2(text, at) & after_80 & _third_after_e2_80(text, at + 2)
    three |= _e2(text, at) & _81(text, at + 1) & _9f(text, at + 2)
    three |= _e3(text, at) & after_80 & _80(text, at + 2)
    return two, three


@helper
def take_words(text, size, is_ascii, state, items, room):
    """Hash words until there is no room for those of another 64 bytes."""
    at, held, start = state[AT], state[HELD], state[WORD]
    reaching = uint64(0)  # a space of several bytes that begins in the 64 bytes before may end in the next ones
    if not is_ascii and at > 0:
        two, three = wide_spaces(text, at - 64)
        reaching = two >> uint64(63) | three >> uint64(63) | three >> uint64(62)
    while at <= size and held + 33 <= room:
        spaces = _ascii_spaces(text, at)
        if not is_ascii:
            spaces |= reaching
            reaching = uint64(0)
            if _leads_of_spaces(text, at) != uint64(0):
                two, three = wide_spaces(text, at)
                spaces |= two | two << uint64(1) | three | three << uint64(1) | three << uint64(2)
                reaching = two >> uint64(63) | three >> uint64(63) | three >> uint64(62)
        if size - at < 64:
            spaces |= FULL << uint64(size - at)
        outside = uint64(1) if start < 0 else uint64(0)
        changes = spaces ^ (spaces << uint64(1) | outside)
        while changes != uint64(0):
            edge = at + trailing_zeros(changes)
            changes &= changes - uint64(1)
            if start < 0:
                start = edge
            else:
                items[held] = piece_hash(text, start, edge - start)
                held += 1
                start = -1
        at += 64
    state[AT], state[HELD], state[WORD] = at, held, start


@helper
def roll(items, first, count, ngram, multiplier, power, key, hashes):
    """The hashes of the n-grams that begin at so many items: four runs at once, so that none waits for another."""
    run = count >> 2
    a, b, c = first + run, first + 2 * run, first + 3 * run
    h0 = h1 = h2 = h3 = uint64(0)
    for i in range(ngram):
        h0 = h0 * multiplier + uint64(items[first + i])
        h1 = h1 * multiplier + uint64(items[a + i])
        h2 = h2 * multiplier + uint64(items[b + i])
        h3 = h3 * multiplier + uint64(items[c + i])
    for i in range(run):
        hashes[i] = mix(h0 ^ key, K1)
        hashes[run + i] = mix(h1 ^ key, K1)
        hashes[2 * run + i] = mix(h2 ^ key, K1)
        hashes[3 * run + i] = mix(h3 ^ key, K1)
        h0 = h0 * multiplier + (uint64(items[first + i + ngram]) - uint64(items[first + i]) * power)
        h1 = h1 * multiplier + (uint64(items[a + i + ngram]) - uint64(items[a + i]) * power)
        h2 = h2 * multiplier + (uint64(items[b + i + ngram]) - uint64(items[b + i]) * power)
        h3 = h3 * multiplier + (uint64(items[c + i + ngram]) - uint64(items[c + i]) * power)
    for i in range(4 * run, count):
        h = uint64(0)
        for k in range(ngram):
            h = h * multiplier + uint64(items[first + i + k])
        hashes[i] = mix(h ^ key, K1)


@helper
def short_text(items, count, multiplier, key):
    """The hash of a text with fewer items than an n-gram."""
    h = uint64(count + 1)
    for i in range(count):
        h = h * multiplier + uint64(items[i])
    return mix(h ^ key, K1)


@helper
def next_shingles(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes):
    """The hashes of the next n-grams of a text, at most ``room``; returns their number, 0 at the end."""
    if by_words == 0 and state[IS_ASCII] == 1:
        at = state[AT]
        if size < ngram:
            if state[MADE] > 0:
                return 0
            state[MADE] = 1
            hashes[0] = short_text(text, size, multiplier, key)
            return 1
        count = min(room, size - ngram + 1 - at)
        if count > 0:
            roll(text, at, count, ngram, multiplier, power, key, hashes)
            state[AT] = at + count
        return count
    if by_words == 0:
        take_characters(text, size, state, items, room + ngram - 1)
    else:
        take_words(text, size, state[IS_ASCII] == 1, state, items, room + ngram - 1)
    held = state[HELD]
    if held < ngram:
        if state[MADE] > 0:
            return 0
        state[MADE] = 1
        hashes[0] = short_text(items, held, multiplier, key)
        return 1
    count = held - ngram + 1
    roll(items, 0, count, ngram, multiplier, power, key, hashes)
    for i in range(ngram - 1):
        items[i] = items[count + i]
    state[HELD] = ngram - 1
    state[MADE] = 1
    return count


def kernel(texts, offsets, row_count, readable, by_words, ngram, mixing, room, scratch, items, state, hashes, counts):
    """Hash the n-grams of each text, in order, one text after another. Returns how many there are.

    Args:
        by_words: 1 for n-grams of words, 0 for characters.
        mixing: The multiplier of the polynomial and the key of the mixing.
        room: How many n-grams of a text are hashed at a time; at least 64.
        scratch: For a copy of a text at the end of the buffer.
        items: ``room + ngram`` words, for characters or hashes of words.
        counts: The number of n-grams of each text.
    """
    power = power_of(mixing[0], ngram)
    total = 0
    for row in range(row_count):
        begin = offsets[row]
        size = offsets[row + 1] - begin
        text = readable_text(texts, begin, offsets[row + 1], readable, scratch)
        begin_text(text, size, state)
        before = total
        while True:
            rest = words_from(hashes, total)
            count = next_shingles(text, size, by_words, ngram, mixing[0], power, mixing[1], state, items, room, rest)
            if count == 0:
                break
            total += count
        counts[row] = total - before
    return int64(total)
