"""The kernel that copies texts without some spans of them."""

from __future__ import annotations

__all__ = ["kernel"]


def kernel(texts, offsets, row_count, begins, ends, span_count, made, made_offsets):
    """Copy the texts without the spans. Returns how many bytes are left.

    Args:
        begins, ends: The bytes of each span, in ascending order, without overlaps, each within one text.
        made: The bytes of the new texts.
        made_offsets: Where each of them begins, and where the last one ends.
    """
    filled, span = 0, 0
    for row in range(row_count):
        made_offsets[row] = filled
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            is_cut = span < span_count and begins[span] < end
            stop = max(begins[span], at) if is_cut else end
            for i in range(stop - at):
                made[filled + i] = texts[at + i]
            filled += stop - at
            at = stop
            if is_cut:
                at = max(ends[span], at)
                span += 1
    made_offsets[row_count] = filled
    return filled
