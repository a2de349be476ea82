"""The kernel that tells the languages of texts from groups of four letters and from scripts."""

from __future__ import annotations

from numpy import int64, uint32, uint64

from tamis.kernels.sources.hashing import FULL
from tamis.kernels.sources.primitives import (
    byte_mask,
    copy_64_with_bit_5,
    helper,
    ints_from,
    load64,
    prefetch,
    trailing_zeros,
)
from tamis.kernels.sources.shingles import readable_text

__all__ = ["kernel"]

# Kinds of letters. Han characters have one, too, if they are neither simplified nor traditional.
_LATIN, _OTHER, _ONE, _SIMPLIFIED, _TRADITIONAL, _KANA, _HANGUL = 1, 2, 3, 5, 6, 7, 8
_LONGEST_WORD = 200
_PENDING = 64
_QUADS_PER_CHUNK = 20
_BEFORE, _AFTER = uint32(0x00004444), uint32(0x44440000)
_SPACE, _WIDE = 32, 0xE0
_RESULTS = 6
_RELIABLE = 41

_letters = byte_mask((ord("a"), ord("z")), (ord("A"), ord("Z")))
_beyond_ascii = byte_mask((0x80, 0xFF))

# What is counted of a text.
_HAN_BYTES, _SIMPLIFIED_LETTERS, _TRADITIONAL_LETTERS, _KANA_BYTES, _HANGUL_BYTES, _SINGLE_BYTES, _WAITING = range(7)
# What is counted of its Latin letters, and then of those of other alphabets; first the bytes of all.
_SCRIPT, _CHUNK_BEGIN, _HITS, _TOUCHED, _LAST, _BEFORE_LAST = 8, 1, 2, 3, 4, 5


@helper
def _close_chunk(script, end, tote, touched, languages, counts, found):
    """Give the bytes of a chunk to the language with most points. They are weak if another has nearly as many."""
    own, first = _SCRIPT * (script + 1), 256 * script
    top = best = second = int64(0)
    for i in range(first, first + counts[own + _TOUCHED]):
        language = touched[i]
        points = tote[language] if language != first else int64(0)
        tote[language] = 0
        if points > best:
            second, best, top = best, points, language
        elif points > second:
            second = points
    size = end - counts[own + _CHUNK_BEGIN]
    least = min(max(counts[own + _HITS] * 5 // 8, int64(3)), int64(16))
    if best > 0:
        place = 2 * int64(languages[top])
        found[place] += size
        if 100 * (best - second) < _RELIABLE * least:
            found[place + 1] += size
    counts[own + _TOUCHED] = counts[own + _HITS] = 0
    counts[own + _CHUNK_BEGIN] = end
    return 0


@helper
def _add_quads(pending, count, slots, bucket_mask, key_mask, values, weights, tote, touched, languages, counts, found):
    """Look up the groups of letters that wait, and add the points they give to languages.

    Most of it is without branches, which the processor could not predict.
    """
    hits = int64(0)
    for i in range(count):
        value = uint32(pending[3 * i])
        script, end = pending[3 * i + 1], pending[3 * i + 2]
        own = _SCRIPT * (script + 1)
        at = 4 * int64((value + (value >> uint32(12))) & uint32(bucket_mask))
        slot = uint32(0)
        for j in range(4):
            one = slots[at + j]
            slot |= one if (one ^ value) & uint32(key_mask) == uint32(0) else uint32(0)
        last, before_last = counts[own + _LAST], counts[own + _BEFORE_LAST]
        is_hit = slot != uint32(0) and int64(value) != last and int64(value) != before_last
        place = int64(slot & ~uint32(key_mask))
        prefetch(values, place)
        pending[3 * hits], pending[3 * hits + 1], pending[3 * hits + 2] = place, script, end
        counts[own + _BEFORE_LAST] = last if is_hit else before_last
        counts[own + _LAST] = int64(value) if is_hit else last
        hits += 1 if is_hit else 0
    for i in range(hits):
        value, script = values[pending[3 * i]], pending[3 * i + 1]
        own, first = _SCRIPT * (script + 1), 256 * script
        if counts[own + _HITS] == _QUADS_PER_CHUNK:
            _close_chunk(script, pending[3 * i + 2], tote, touched, languages, counts, found)
        counts[own + _HITS] += 1
        weight = 3 * int64(value & uint32(255))
        count_touched = counts[own + _TOUCHED]
        for j in range(3):
            language = first + int64((value >> uint32(8 * (j + 1))) & uint32(255))
            points = tote[language]
            touched[first + count_touched] = language
            count_touched += 1 if points == 0 else 0
            tote[language] = points + int64(weights[weight + j])
        counts[own + _TOUCHED] = count_touched
    return 0


@helper
def _next_letter(text, at, characters):
    """What the table says of a character, and its bytes."""
    lead = text[at]
    if lead < 0x80:
        return characters[int64(lead)], int64(1)
    if lead < 0xE0:
        return characters[(int64(lead) & 31) << 6 | int64(text[at + 1]) & 63], int64(2)
    if lead < 0xF0:
        second, third = int64(text[at + 1]) & 63, int64(text[at + 2]) & 63
        return characters[(int64(lead) & 15) << 12 | second << 6 | third], int64(3)
    return uint32(0), int64(4)


@helper
def _width(byte):
    return 1 if byte < 0x80 else (2 if byte < 0xE0 else 3)


@helper
def _push_word(word, end, script, letters, is_ascii, vowels, slots, bucket_mask, pending, waiting):
    """Let the groups of four letters of a word be looked up: every second one, and those at its end."""
    at = int64(1)
    while at < end:
        if is_ascii:
            middle, last = min(at + 2, end), min(at + 4, end)
        else:
            last = at
            middle = at
            for i in range(4):
                if last < end:
                    last += _width(word[last])
                if i == 1:
                    middle = last
        length = last - at
        first = load64(word, at)
        rest = uint64(0)
        if length < 8:
            first &= FULL >> uint64(64 - 8 * length)
        elif length > 8:
            rest = load64(word, at + 8) & (FULL >> uint64(128 - 8 * length))
        one, two, three = uint32(first), uint32(first >> uint64(32)), uint32(rest)
        value = one ^ (one >> uint32(3))
        if at == 1:
            value ^= _BEFORE
        if last == end:
            value ^= _AFTER
        value = uint32(value + (two ^ (two << uint32(4))) + (three ^ (three << uint32(2))))
        prefetch(slots, 4 * int64((value + (value >> uint32(12))) & uint32(bucket_mask)))
        pending[3 * waiting], pending[3 * waiting + 1], pending[3 * waiting + 2] = int64(value), script, letters
        waiting += 1
        at = end if last == end else middle
        if at < end and vowels[word[at]] != 0:
            at += 1
    return waiting


@helper
def _has_others(text, begin, end):
    """Whether a run has bytes beyond ASCII."""
    at = begin
    while at < end:
        others = _beyond_ascii(text, at)
        if end - at < 64:
            others &= (uint64(1) << uint64(end - at)) - uint64(1)
        if others != uint64(0):
            return True
        at += 64
    return False


@helper
def _read_run(
    text, begin, end, characters, vowels, slots, bucket_mask, key_mask, values, weights, languages, word, pending, tote,
    touched, counts, found,
):  # fmt: skip
    """Count a run of letters: of ASCII, or of any characters beyond it."""
    is_ascii = not _has_others(text, begin, end)
    at = begin
    while at < end:
        size, kind = int64(1), int64(0)
        if is_ascii:
            kind = int64(_LATIN)
            length = min(end - at, int64(_LONGEST_WORD))
            for i in range(0, length, 64):
                copy_64_with_bit_5(word, 1 + i, text, at + i)
            at += length
            size += length
            counts[_SCRIPT] += length
        while at < end and size < _LONGEST_WORD and not is_ascii:
            character, width = _next_letter(text, at, characters)
            own = int64(character >> uint32(16)) & 15
            if own != kind and kind != 0:
                break
            if at + width > end:
                at = end
                break
            kind = own
            at += width
            if own in (_LATIN, _OTHER):
                counts[_SCRIPT * own] += width
                lower = int64(character & uint32(0xFFFF))
                if width == 1:
                    word[size] = lower
                elif width == 2:
                    word[size], word[size + 1] = 0xC0 | lower >> 6, 0x80 | lower & 63
                else:
                    word[size], word[size + 1] = 0xE0 | lower >> 12, 0x80 | (lower >> 6) & 63
                    word[size + 2] = 0x80 | lower & 63
                size += width
            elif own == _ONE:
                found[2 * int64(character >> uint32(20))] += width
                counts[_SINGLE_BYTES] += width
            elif own == _KANA:
                counts[_KANA_BYTES] += width
            elif own == _HANGUL:
                counts[_HANGUL_BYTES] += width
            elif own != 0:
                counts[_HAN_BYTES] += width
                counts[_SIMPLIFIED_LETTERS] += 1 if own == _SIMPLIFIED else 0
                counts[_TRADITIONAL_LETTERS] += 1 if own == _TRADITIONAL else 0
        if size > 1:
            before = counts[_SCRIPT * kind] - (size - 1)
            waiting = _push_word(
                word, size, kind - 1, before, is_ascii, vowels, slots, bucket_mask, pending, counts[_WAITING]
            )
            if waiting >= _PENDING:
                _add_quads(
                    pending, waiting, slots, bucket_mask, key_mask, values, weights, tote, touched, languages, counts,
                    found,
                )  # fmt: skip
                waiting = int64(0)
            counts[_WAITING] = waiting
    return 0


@helper
def _count_text(
    text, size, pieces, sample, characters, vowels, slots, bucket_mask, key_mask, values, weights, languages, unknown,
    word, pending, tote, touched, counts, found, result,
):  # fmt: skip
    """Count the bytes of letters in each language of a text, or of some pieces of it at equal distances."""
    for i in range(24):
        counts[i] = 0
    for i in range(2 * unknown + 2):
        found[i] = 0
    piece, stride = sample // pieces, size // pieces
    first = int64(0)
    while first < size:
        at, stop = first, min(first + piece, size)
        while at > 0 and at < stop and text[at] != _SPACE and text[at] < _WIDE:
            at += 1  # to the next word, or to a character that words without spaces have
        first += stride
        start, previous = int64(-1), uint64(0)
        while at < stop:
            run = _letters(text, at) | _beyond_ascii(text, at)
            if stop - at < 64:
                run &= (uint64(1) << uint64(stop - at)) - uint64(1)
            changes = run ^ ((run << uint64(1)) | previous)
            previous = run >> uint64(63)
            while changes != uint64(0):
                place = at + trailing_zeros(changes)
                changes &= changes - uint64(1)
                if start < 0:
                    start = place
                    continue
                _read_run(
                    text, start, place, characters, vowels, slots, bucket_mask, key_mask, values, weights,
                    languages, word, pending, tote, touched, counts, found,
                )  # fmt: skip
                start = int64(-1)
            at += 64
        if start >= 0:
            _read_run(
                text, start, stop, characters, vowels, slots, bucket_mask, key_mask, values, weights, languages,
                word, pending, tote, touched, counts, found,
            )  # fmt: skip
    _add_quads(
        pending, counts[_WAITING], slots, bucket_mask, key_mask, values, weights, tote, touched, languages, counts,
        found,
    )  # fmt: skip
    letters = counts[_SINGLE_BYTES] + counts[_HAN_BYTES] + counts[_KANA_BYTES] + counts[_HANGUL_BYTES]
    for script in range(2):
        bytes_of_script = counts[_SCRIPT * (script + 1)]
        _close_chunk(script, bytes_of_script, tote, touched, languages, counts, found)
        letters += bytes_of_script
    han, kana, hangul = counts[_HAN_BYTES], counts[_KANA_BYTES], counts[_HANGUL_BYTES]
    reader = int64(1) if counts[_TRADITIONAL_LETTERS] > counts[_SIMPLIFIED_LETTERS] else int64(0)
    if 10 * kana >= han and kana >= hangul:
        reader = int64(2)
    elif hangul > han:
        reader = int64(3)
    found[2 * reader] += han
    found[4] += kana
    found[6] += hangul
    top = int64(0)
    for i in range(1, unknown):
        if found[2 * i] > found[2 * top]:
            top = i
    second = int64(0)
    for i in range(unknown):
        second = max(second, found[2 * i] if i != top else int64(0))
    result[0], result[1], result[2], result[3], result[4] = top, found[2 * top], found[2 * top + 1], second, letters
    return 0


@helper
def _is_sure(result, percent, least_letters):
    """Whether the first language has so many more of the bytes than the one after it, without those that are weak."""
    lead = result[1] - result[2] - result[3]
    return result[4] >= least_letters and result[1] > 0 and 100 * lead >= percent * result[4]


def kernel(
    texts, offsets, ends, row_count, readable, pieces, sample, sample_percent, percent, least_letters, characters,
    vowels, slots, bucket_mask, key_mask, values, value_count, weights, languages, unknown, scratch, word, pending,
    tote, touched, counts, found, results,
):  # fmt: skip
    """Count the bytes of letters in each language.

    Of a text of more than ``sample`` bytes, so many are read first, in pieces at equal distances, and all of it only if
    they leave doubt. Han characters are in the first language if they are simplified, in the second if traditional, in
    the third with Kana; Hangul is in the fourth.

    Args:
        ends: Where to stop reading each text.
        sample_percent: How far the first language must be ahead of the second for a sample to do, in percent of the
            letters; ``percent`` for a whole text.
        least_letters: The fewest bytes of letters that do.
        characters: For each of the first 65,536 characters, its lower case, four bits for its kind, and from bit 20 on
            the language of a script that only one uses.
        vowels: Which bytes a group of letters does not begin with, inside a word.
        slots: Buckets of four: the upper bits of a hash, and in the others a place among the values.
        values: A place among the weights, and three languages that a group of letters speaks for.
        languages: The number of each language, by script and number in the script. ``unknown`` is the last number.
        results: For each text the language with most bytes, its bytes, those of them that are weak, the bytes of the
            language after it, those of all letters, and whether this leaves no doubt.
    """
    for row in range(row_count):
        size = ends[row] - offsets[row]
        text = readable_text(texts, offsets[row], ends[row], readable, scratch)
        result = ints_from(results, _RESULTS * row)
        is_sure = False
        if size > sample:
            _count_text(
                text, size, pieces, sample, characters, vowels, slots, bucket_mask, key_mask, values, weights,
                languages, unknown, word, pending, tote, touched, counts, found, result,
            )  # fmt: skip
            is_sure = _is_sure(result, sample_percent, least_letters)
        if not is_sure:
            _count_text(
                text, size, 1, size, characters, vowels, slots, bucket_mask, key_mask, values, weights, languages,
                unknown, word, pending, tote, touched, counts, found, result,
            )  # fmt: skip
            is_sure = _is_sure(result, percent, least_letters)
        result[5] = 1 if is_sure else 0
    return 0
