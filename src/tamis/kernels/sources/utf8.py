"""Whether bytes are UTF-8, 64 at a time."""

from __future__ import annotations

from numpy import uint64

from tamis.kernels.sources.primitives import byte_mask, helper

__all__ = ["is_utf8"]

_high = byte_mask((0x80, 0xFF))
_continuations = byte_mask((0x80, 0xBF))
_leads_of_2 = byte_mask((0xC2, 0xDF))
_leads_of_3 = byte_mask((0xE0, 0xEF))
_leads_of_4 = byte_mask((0xF0, 0xF4))

# Leads that not every continuation may follow, and the continuations that may not.
_particular = byte_mask((0xE0, 0xE0), (0xED, 0xED), (0xF0, 0xF0), (0xF4, 0xF4))
_e0, _not_after_e0 = byte_mask((0xE0, 0xE0)), byte_mask((0x80, 0x9F))
_ed, _not_after_ed = byte_mask((0xED, 0xED)), byte_mask((0xA0, 0xBF))
_f0, _not_after_f0 = byte_mask((0xF0, 0xF0)), byte_mask((0x80, 0x8F))
_f4, _not_after_f4 = byte_mask((0xF4, 0xF4)), byte_mask((0x90, 0xBF))


@helper
def is_utf8(text, begin, end):
    """Whether the bytes of a text are UTF-8 as Unicode defines it: no surrogates, no overlong forms."""
    at = begin
    awaited = uint64(0)  # where in the next 64 bytes continuations of a character before them have to be
    while at < end:
        high = _high(text, at)
        inside = ~uint64(0)
        if end - at < 64:
            inside = (uint64(1) << uint64(end - at)) - uint64(1)
            high &= inside
        if high == uint64(0):
            if awaited != uint64(0):
                return False
            at += 64
            continue
        fours = _leads_of_4(text, at) & inside
        threes = _leads_of_3(text, at) & inside | fours  # and longer
        leads = _leads_of_2(text, at) & inside | threes
        continuations = _continuations(text, at) & inside
        awaited |= leads << uint64(1) | threes << uint64(2) | fours << uint64(3)
        if awaited != continuations or leads | continuations != high:
            return False
        if _particular(text, at) & inside != uint64(0):
            wrong = _e0(text, at) & _not_after_e0(text, at + 1)
            wrong |= _ed(text, at) & _not_after_ed(text, at + 1)
            wrong |= _f0(text, at) & _not_after_f0(text, at + 1)
            wrong |= _f4(text, at) & _not_after_f4(text, at + 1)
            if wrong & inside != uint64(0):
                return False
        awaited = leads >> uint64(63) | threes >> uint64(62) | fours >> uint64(61)
        at += 64
    return awaited == uint64(0)
