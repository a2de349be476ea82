"""The kernel of pHash: the lowest frequencies of a grey picture of 32 x 32 pixels, compared with their median.

In a picture that is flat in one direction most frequencies are zero but for errors of rounding, and these decide bits.
So sums and products are in the order of FFTPACK's cosine transform, as SciPy has it: in steps of 2, 4 and 4.
"""

from __future__ import annotations

from numpy import uint64

from tamis.kernels.sources.primitives import helper

__all__ = ["kernel"]

_SIDE = 32
_LOW = 8
_SQRT_2 = 1.414213562373095048801688724209698


@helper
def two(source, target, waves):
    """The first step: two halves of 16 numbers."""
    target[0] = source[0] + source[31]
    target[16] = source[0] - source[31]
    target[15] = 2.0 * source[15]
    target[31] = -2.0 * source[16]
    for i in range(2, 16, 2):
        j = 32 - i
        real, imaginary = source[i - 1] - source[j - 1], source[i] + source[j]
        target[i - 1] = source[i - 1] + source[j - 1]
        target[i] = source[i] - source[j]
        cosine, sine = waves[i - 2], waves[i - 1]
        target[16 + i] = cosine * imaginary + sine * real
        target[15 + i] = cosine * real - sine * imaginary
    return 0


@helper
def four(source, target, part, parts, width, waves):
    """A later step for one of the parts: four numbers of each place become one in each quarter."""
    begin, step = 4 * width * part, width * parts
    a, b, c, d = begin, begin + width, begin + 2 * width, begin + 3 * width
    out = width * part
    last = width - 1
    total, difference = source[a] + source[d + last], source[a] - source[d + last]
    twice_b, twice_c = 2.0 * source[b + last], 2.0 * source[c]
    target[out] = total + twice_b
    target[out + 2 * step] = total - twice_b
    target[out + 3 * step] = difference + twice_c
    target[out + step] = difference - twice_c
    if width % 2 == 0:
        plus, minus = source[d] + source[b], source[d] - source[b]
        total, difference = source[a + last] + source[c + last], source[a + last] - source[c + last]
        target[out + last] = total + total
        target[out + last + step] = _SQRT_2 * (difference - plus)
        target[out + last + 2 * step] = minus + minus
        target[out + last + 3 * step] = -_SQRT_2 * (difference + plus)
    for i in range(2, width, 2):
        j = width - i
        real_sum, real_gap = source[a + i - 1] + source[d + j - 1], source[a + i - 1] - source[d + j - 1]
        other_sum, other_gap = source[a + i] + source[d + j], source[a + i] - source[d + j]
        inner_sum, inner_gap = source[c + i] + source[b + j], source[c + i] - source[b + j]
        even_sum, even_gap = source[c + i - 1] + source[b + j - 1], source[c + i - 1] - source[b + j - 1]
        target[out + i - 1] = real_sum + even_sum
        target[out + i] = other_gap + inner_gap
        for quarter in range(1, 4):
            if quarter == 1:
                real, imaginary = real_gap - inner_sum, other_sum + even_gap
            elif quarter == 2:
                real, imaginary = real_sum - even_sum, other_gap - inner_gap
            else:
                real, imaginary = real_gap + inner_sum, other_sum - even_gap
            at = (quarter - 1) * last + i
            cosine, sine = waves[at - 2], waves[at - 1]
            target[out + quarter * step + i] = cosine * imaginary + sine * real
            target[out + quarter * step + i - 1] = cosine * real - sine * imaginary
    return 0


@helper
def cosine_transform(line, room, first_waves, second_waves, turns):
    """Replace 32 numbers by their cosine transform of the second kind."""
    line[0] *= 2.0
    line[31] *= 2.0
    for i in range(1, 31, 2):
        low, high = line[i], line[i + 1]
        line[i + 1] = high - low
        line[i] = low + high
    two(line, room, first_waves)
    four(room, line, 0, 2, 4, second_waves)
    four(room, line, 1, 2, 4, second_waves)
    for part in range(8):
        four(line, room, part, 8, 1, second_waves)
    line[0] = room[0]
    for i in range(1, 16):
        j = 32 - i
        one = turns[i - 1] * room[j] + turns[j - 1] * room[i]
        other = turns[i - 1] * room[i] - turns[j - 1] * room[j]
        line[i] = 0.5 * (one + other)
        line[j] = 0.5 * (one - other)
    line[16] = room[16] * turns[15]
    return 0


@helper
def median(values, room):
    """The mean of the two numbers in the middle of 64."""
    for i in range(_LOW * _LOW):
        value = values[i]
        at = i
        while at > 0 and room[at - 1] > value:
            room[at] = room[at - 1]
            at -= 1
        room[at] = value
    return (room[31] + room[32]) / 2.0


def kernel(thumbnail, first_waves, second_waves, turns, low, line, room, hashes):
    """Write the hash into ``hashes``. Returns 0.

    Args:
        thumbnail: The grey values, row by row.
        first_waves, second_waves: Cosines and sines of the steps.
        turns: Cosines of the last step.
        low: Room for the lowest eight rows of frequencies.
        line, room: Room for a line, and for 64 numbers.
    """
    for column in range(_SIDE):
        for row in range(_SIDE):
            line[row] = float(thumbnail[row * _SIDE + column])
        cosine_transform(line, room, first_waves, second_waves, turns)
        for row in range(_LOW):
            low[row * _SIDE + column] = line[row]
    for row in range(_LOW):
        for column in range(_SIDE):
            line[column] = low[row * _SIDE + column]
        cosine_transform(line, room, first_waves, second_waves, turns)
        for column in range(_LOW):
            low[row * _LOW + column] = line[column]  # rows that are still needed are further back
    middle = median(low, room)
    found = uint64(0)
    for i in range(_LOW * _LOW):
        found = found << uint64(1) | uint64(1 if low[i] > middle else 0)
    hashes[0] = found
    return 0
