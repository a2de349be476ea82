"""The kernel that tells the languages of texts from groups of four letters and from scripts."""

from __future__ import annotations

from numpy import int64, uint32, uint64

from tamis.kernels.sources.hashing import FULL
from tamis.kernels.sources.primitives import helper, load64, prefetch
from tamis.kernels.sources.shingles import readable_text

__all__ = ["kernel"]

_LATIN, _OTHER, _ONE, _HAN, _SIMPLIFIED, _TRADITIONAL, _KANA, _HANGUL = range(1, 9)
_LONGEST_WORD = 200
_PENDING = 64
_QUADS_PER_CHUNK = 20
_BEFORE, _AFTER = uint32(0x00004444), uint32(0x44440000)
_SPACE = 32
_RELIABLE = 41

# What is counted of a text.
_HAN_BYTES, _SIMPLIFIED_LETTERS, _TRADITIONAL_LETTERS, _KANA_BYTES, _HANGUL_BYTES = range(5)
# What is counted of its Latin letters, and then of those of other alphabets.
_SCRIPT, _LETTERS, _CHUNK_BEGIN, _HITS, _TOUCHED, _LAST, _BEFORE_LAST = 8, 0, 1, 2, 3, 4, 5


@helper
def _close_chunk(script, end, tote, touched, languages, counts, found):
    """Give the bytes of a chunk to the language with most points. They are weak if another has nearly as many."""
    own, first = _SCRIPT * (script + 1), 256 * script
    top = best = second = int64(0)
    for i in range(first, first + counts[own + _TOUCHED]):
        language = touched[i]
        points = tote[language]
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
def _add_quads(
    pending, count, slots, bucket_mask, key_mask, values, weights, tote, touched, languages, counts, found
):
    """Look up the groups of letters that wait, and add the points they give to languages."""
    hits = int64(0)
    for i in range(count):
        value = uint32(pending[3 * i])
        own = _SCRIPT * (pending[3 * i + 1] + 1)
        at = 4 * int64((value + (value >> uint32(12))) & uint32(bucket_mask))
        for j in range(4):
            slot = slots[at + j]
            if (slot ^ value) & uint32(key_mask) == uint32(0):
                if slot != uint32(0) and int64(value) != counts[own + _LAST] and int64(value) != counts[own + _BEFORE_LAST]:
                    counts[own + _BEFORE_LAST] = counts[own + _LAST]
                    counts[own + _LAST] = int64(value)
                    place = int64(slot & ~uint32(key_mask))
                    prefetch(values, place)
                    pending[3 * hits], pending[3 * hits + 1] = place, pending[3 * i + 1]
                    pending[3 * hits + 2] = pending[3 * i + 2]
                    hits += 1
                break
    for i in range(hits):
        value, script = values[pending[3 * i]], pending[3 * i + 1]
        own = _SCRIPT * (script + 1)
        if counts[own + _HITS] == _QUADS_PER_CHUNK:
            _close_chunk(script, pending[3 * i + 2], tote, touched, languages, counts, found)
        counts[own + _HITS] += 1
        weight = 3 * int64(value & uint32(255))
        for j in range(3):
            language = int64((value >> uint32(8 * (j + 1))) & uint32(255))
            if language != 0:
                language += 256 * script
                if tote[language] == 0:
                    touched[256 * script + counts[own + _TOUCHED]] = language
                    counts[own + _TOUCHED] += 1
                tote[language] += int64(weights[weight + j])
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


def kernel(
    texts, offsets, ends, row_count, readable, sample, pieces, characters, vowels, slots, bucket_mask, key_mask, values,
    value_count, weights, languages, language_count, scratch, word, pending, tote, touched, counts, found, results,
):  # fmt: skip
    """Count the bytes of letters in each language.

    A text of more than ``sample`` bytes is read in pieces, at equal distances. Han characters are in the first language
    if they are simplified, in the second if traditional, in the third with Kana; Hangul is in the fourth.

    Args:
        ends: Where to stop reading each text.
        characters: For each of the first 65,536 characters, its lower case, four bits for its kind, and from bit 20 on
            the language of a script that only one uses.
        vowels: Which bytes a group of letters does not begin with, inside a word.
        slots: Buckets of four: the upper bits of a hash, and in the others a place among the values.
        values: A place among the weights, and three languages that a group of letters speaks for.
        languages: The number of each language, by script and number in the script.
        results: For each text the language with most bytes, its bytes, those of them that are weak, and the bytes of
            all letters.
    """
    for row in range(row_count):
        size = ends[row] - offsets[row]
        text = readable_text(texts, offsets[row], ends[row], readable, scratch)
        for i in range(24):
            counts[i] = 0
        for i in range(2 * language_count):
            found[i] = 0
        waiting = at = single = int64(0)
        piece = size
        stride = size
        if size > sample:
            piece, stride = sample // pieces, size // pieces
        stop, begin = piece, int64(0)
        while at < size:
            if at >= stop:
                begin += stride
                if begin >= size:
                    break
                at, stop = max(at, begin), begin + piece
                while at < size and text[at] & 0xC0 == 0x80:
                    at += 1
                while at < size and text[at] != _SPACE and at < stop:
                    at += 1  # to the next word
                continue
            kind, end, is_ascii = int64(0), int64(1), True
            while at < size and end < _LONGEST_WORD:
                character, width = _next_letter(text, at, characters)
                own = int64(character >> uint32(16)) & 15
                if own != kind:
                    if kind != 0:
                        break
                    kind = own
                at += width
                if own == 0:
                    if at >= stop:
                        break
                    continue
                if own <= _OTHER:
                    counts[_SCRIPT * own] += width
                    lower = int64(character & uint32(0xFFFF))
                    if width == 1:
                        word[end] = lower
                    elif width == 2:
                        word[end], word[end + 1] = 0xC0 | lower >> 6, 0x80 | lower & 63
                        is_ascii = False
                    else:
                        word[end], word[end + 1] = 0xE0 | lower >> 12, 0x80 | (lower >> 6) & 63
                        word[end + 2] = 0x80 | lower & 63
                        is_ascii = False
                    end += width
                elif own == _ONE:
                    found[2 * int64(character >> uint32(20))] += width
                    single += width
                elif own <= _TRADITIONAL:
                    counts[_HAN_BYTES] += width
                    counts[_SIMPLIFIED_LETTERS] += 1 if own == _SIMPLIFIED else 0
                    counts[_TRADITIONAL_LETTERS] += 1 if own == _TRADITIONAL else 0
                elif own == _KANA:
                    counts[_KANA_BYTES] += width
                else:
                    counts[_HANGUL_BYTES] += width
                if own > _OTHER and at >= stop:
                    break
            if end > 1:
                before = counts[_SCRIPT * kind] - (end - 1)
                waiting = _push_word(
                    word, end, kind - 1, before, is_ascii, vowels, slots, bucket_mask, pending, waiting
                )
                if waiting >= _PENDING:
                    _add_quads(
                        pending, waiting, slots, bucket_mask, key_mask, values, weights, tote, touched, languages,
                        counts, found,
                    )  # fmt: skip
                    waiting = int64(0)
        _add_quads(
            pending, waiting, slots, bucket_mask, key_mask, values, weights, tote, touched, languages, counts, found
        )
        letters = single + counts[_HAN_BYTES] + counts[_KANA_BYTES] + counts[_HANGUL_BYTES]
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
        for i in range(1, language_count):
            if found[2 * i] > found[2 * top]:
                top = i
        results[4 * row] = top
        results[4 * row + 1] = found[2 * top]
        results[4 * row + 2] = found[2 * top + 1]
        results[4 * row + 3] = letters
    return 0
