"""The kernel that scores sentences with an n-gram model. See :mod:`tamis.kernels.ngram_table`."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import helper, prefetch
from tamis.kernels.sources.text_units import settled

__all__ = ["kernel"]

_STEP = uint64(0x9E3779B97F4A7C15)
_LOW = uint64(0xFFFFFFFF)
_SHORT = uint64(0xFFFF)
_AHEAD = 6  # units: the entries of a later n-gram come from memory while earlier ones are scored


@helper
def look_up(table, slots, width, key):
    """The codes of an n-gram: that of its probability in the upper half, of its back-off in the lower; 0 if unknown."""
    place = int64(((key & _LOW) * uint64(slots)) >> uint64(32))
    check = key >> uint64(32)
    for _ in range(slots):
        entry = table[width * place + width - 1]
        if entry == uint64(0):
            break
        if width == 1:
            if entry >> uint64(32) == check:
                return ((entry >> uint64(16)) & _SHORT) << uint64(32) | entry & _SHORT
        elif table[2 * place] == key:
            return entry
        place = place + 1 if place + 1 < slots else 0
    return uint64(0)


@helper
def fetch(hashes, at, begin, order, table, slots, width):
    """Prefetch the entries of the n-grams that end at a unit."""
    key = _STEP + hashes[at]
    for n in range(min(order, at - begin + 1)):
        key = settled(key if n == 0 else key + hashes[at - n] * _STEP)
        prefetch(table, int64(((key & _LOW) * uint64(slots)) >> uint64(32)) * width)


def kernel(
    hashes,
    counts,
    row_count,
    marks,
    order,
    table,
    slots,
    width,
    is_closed,
    likely,
    likely_count,
    backoffs,
    backoff_count,
    context,
    state,
    logs,
    units,
    unknown,
):
    """The sum of the logarithms of the probabilities of the units of each text. Returns 0.

    Args:
        hashes, counts: The units of all texts, each line followed by the mark of its end; how many each text has.
        marks: What stands for the end of a line, for its beginning, and for a unit that the model does not know.
        order: The largest n.
        table, slots, width: The n-grams: ``slots`` entries of one word or two.
        is_closed: 1 if with every n-gram the one without its first unit is in the table.
        likely, backoffs: The numbers that codes stand for; how many is a power of two.
        context, state: Memory for the units before the current one, and the back-off of each length of context.
        logs, units, unknown: For each text the sum, the number of units and line ends, and of units not known.
    """
    begin = 0
    line_end, line_begin, stranger = marks[0], marks[1], marks[2]
    first = look_up(table, slots, width, settled(_STEP + line_begin))
    for row in range(row_count):
        total, missing, known = 0.0, 0, 0
        at_begin = True
        end = begin + counts[row]
        for i in range(begin, min(begin + _AHEAD, end)):
            fetch(hashes, i, begin, order, table, slots, width)
        for i in range(begin, end):
            if i + _AHEAD < end:
                fetch(hashes, i + _AHEAD, begin, order, table, slots, width)
            if at_begin:
                known = min(order - 1, 1)
                context[0] = line_begin
                state[1] = backoffs[int64(first & _LOW) & (backoff_count - 1)]
                at_begin = False
            unit = hashes[i]
            key = settled(_STEP + unit)
            codes = look_up(table, slots, width, key)
            if codes == uint64(0):
                unit = stranger
                missing += 1
                key = settled(_STEP + unit)
                codes = look_up(table, slots, width, key)
            best, value = 1, codes
            state[order + 1] = backoffs[int64(codes & _LOW) & (backoff_count - 1)]
            for n in range(2, known + 2):
                key = settled(key + context[n - 2] * _STEP)
                codes = look_up(table, slots, width, key)
                if codes == uint64(0) and is_closed == 1:
                    for m in range(n, known + 2):
                        state[order + m] = 0.0
                    break
                if codes != uint64(0):
                    best, value = n, codes
                    state[order + n] = backoffs[int64(codes & _LOW) & (backoff_count - 1)]
                else:
                    state[order + n] = 0.0
            total += likely[int64(value >> uint64(32)) & (likely_count - 1)]
            for n in range(best, known + 1):
                total += state[n]
            known = min(order - 1, known + 1)
            for n in range(known - 1, 0, -1):
                context[n] = context[n - 1]
            context[0] = unit
            for n in range(1, known + 1):
                state[n] = state[order + n]
            if unit == line_end:
                at_begin = True
        logs[row], units[row], unknown[row] = total, counts[row], missing
        begin = end
    return int64(0)
