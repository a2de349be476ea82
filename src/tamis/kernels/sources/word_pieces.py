"""The kernel that tokenises with WordPiece, as BERT does.

A text is split into words, which are normalised and cut into the longest tokens of the vocabulary, from left to right.
The tokens of short words are kept in a table under the bytes of the text, so that most words are not even normalised.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import byte_mask, helper, ints_from, prefetch, trailing_zeros, words_from
from tamis.kernels.sources.scan import character, set_bits
from tamis.kernels.sources.token_cache import AHEAD, KEPT_BYTES, KEPT_IDS, keep_ids, kept_ids, place_of
from tamis.kernels.sources.token_rows import SLACK, child_of, put_ids, readable_row, run_end
from tamis.kernels.sources.utf8 import is_utf8
from tamis.kernels.token_styles import ISOLATED, UNKNOWN, WORD

__all__ = ["kernel"]

_CONTINUES = 1  # the node from which tokens within a word are looked for

_letters = byte_mask((ord("a"), ord("z")), (ord("A"), ord("Z")), (ord("0"), ord("9")))
_marks = byte_mask((33, 47), (58, 64), (91, 96), (123, 126))
_others = byte_mask((0, 31), (127, 127), (0xC0, 0xFF))  # a continuation is looked at with its lead


@helper
def classify_bytes(text, size, kinds, words, marks):
    """Fill the bitmaps: the bytes of words, and the first bytes of characters that are words by themselves.

    Returns whether the kernel can tokenise the text.
    """
    for block in range((size + 63) >> 6):
        at = block << 6
        here = ~uint64(0) if size - at >= 64 else (uint64(1) << uint64(size - at)) - uint64(1)
        words[block] |= _letters(text, at) & here
        marks[block] |= _marks(text, at) & here
        others = _others(text, at) & here
        while others != uint64(0):
            place = at + trailing_zeros(others)
            others &= others - uint64(1)
            code_point, length = int64(text[place]), 1
            if code_point >= 0x80:
                code_point, length = character(text, place)
            kind = int64(kinds[code_point])
            if kind == WORD:
                set_bits(words, place, length)
                over = (place & 63) + length - 64
                if over > 0:
                    words[block + 1] |= (uint64(1) << uint64(over)) - uint64(1)
            elif kind == ISOLATED:
                set_bits(marks, place, 1)
            elif kind == UNKNOWN:
                return False
    return True


@helper
def normalise(text, start, size, forms, pool, most, word):
    """Write the normalised characters of a word. Returns its size; -1 if it has too many characters."""
    end = start + size
    at = start
    written = characters = 0
    while at < end:
        code_point, length = int64(text[at]), 1
        if code_point >= 0x80:
            code_point, length = character(text, at)
        form = int64(forms[code_point])
        begin, count = form >> 4, form & 15
        for i in range(begin, begin + count):
            byte = pool[i]
            word[written] = byte
            written += 1
            characters += 1 if byte & 0xC0 != 0x80 else 0
        if characters > most:
            return -1
        at += length
    return written


@helper
def cut_word(word, size, trie, shift, tokens, unknown, ids, at):
    """Write the ids of the longest tokens, and return their number."""
    begin = count = 0
    while begin < size:
        node = _CONTINUES if begin > 0 else 0
        found, found_end = -1, begin
        place = begin
        while place < size:
            node = child_of(trie, shift, node, word[place])
            if node == 0:
                break
            place += 1
            if tokens[node] >= 0:
                found, found_end = int64(tokens[node]), place
        if found < 0:
            ids[at] = unknown
            return 1
        ids[at + count] = found
        count += 1
        begin = found_end
    return count


def kernel(
    texts,
    offsets,
    row_count,
    readable,
    first_row,
    scratch,
    bitmaps,
    bitmap_words,
    pieces,
    cache,
    cache_shift,
    before,
    before_count,
    after,
    after_count,
    limit,
    is_kept,
    left_out,
    counts,
    ids,
    room,
    trie,
    trie_shift,
    tokens,
    node_count,
    kinds,
    forms,
    pool,
    pool_bytes,
    mark_ids,
    unknown,
    most,
    word,
):
    """Tokenise texts until there is no room for the next one. Returns the row of that one.

    Args:
        texts to node_count: See :mod:`tamis.kernels.sources.byte_pairs`; there are two bitmaps, and the tokens that
            continue a word begin at node 1.
        kinds: The kind of each character; see :mod:`tamis.kernels.token_styles`.
        forms: Where in the pool the normalised form of each character begins, times 16, plus its bytes.
        pool, pool_bytes: The normalised forms.
        mark_ids: The id of each character that is a word by itself.
        unknown: The id of words that have no tokens.
        most: The most characters of a word that is cut into tokens.
        word: Room for a normalised word.
    """
    inside, marks = words_from(bitmaps, 0), words_from(bitmaps, bitmap_words)
    begins, lengths, places = ints_from(pieces, 0), ints_from(pieces, AHEAD), ints_from(pieces, 2 * AHEAD)
    used = 0
    for row in range(first_row, row_count):
        start = offsets[row]
        size = offsets[row + 1] - start
        if used + min(size, limit + most) + before_count + after_count + SLACK > room:
            return row
        counts[row] = 0
        if left_out[row] != 0:
            continue
        text = readable_row(texts, start, size, readable, scratch)
        blocks = (size + 63) >> 6
        for block in range(blocks + 1):
            inside[block] = marks[block] = uint64(0)
        if not is_utf8(text, 0, size) or not classify_bytes(text, size, kinds, inside, marks):
            left_out[row] = 1
            continue
        begin = put_ids(ids, used, before, before_count)
        count = 0
        carried = uint64(0)
        block = 0
        waiting = uint64(0)  # the words of the block that begin later
        while count < limit:
            # The places of some words are fetched before the first of them is looked at.
            some = 0
            while some < AHEAD:
                while waiting == uint64(0) and block < blocks:
                    run = inside[block]
                    waiting = run & ~((run << uint64(1)) | carried) | marks[block]
                    carried = run >> uint64(63)
                    block += 1
                if waiting == uint64(0):
                    break
                at = ((block - 1) << 6) + trailing_zeros(waiting)
                is_mark = marks[block - 1] & waiting & (~waiting + uint64(1)) != uint64(0)
                waiting &= waiting - uint64(1)
                begins[some] = at
                lengths[some] = 0
                if not is_mark:
                    length = run_end(inside, at) - at
                    lengths[some] = length
                    if length <= KEPT_BYTES:
                        place = place_of(cache_shift, text, at, length)
                        prefetch(cache, place)
                        places[some] = place
                some += 1
            if some == 0:
                break
            for i in range(some):
                if count >= limit:
                    break
                at, length = begins[i], lengths[i]
                if length == 0:
                    code_point = int64(text[at])
                    if code_point >= 0x80:
                        code_point = character(text, at)[0]
                    ids[begin + count] = mark_ids[code_point]
                    count += 1
                    continue
                found = int64(-1)
                if length <= KEPT_BYTES:
                    found = kept_ids(cache, places[i], text, at, length, 0, ids, begin + count)
                if found < 0:
                    made = normalise(text, at, length, forms, pool, most, word)
                    if made < 0:
                        ids[begin + count] = unknown
                        found = int64(1)
                    else:
                        found = cut_word(word, made, trie, trie_shift, tokens, unknown, ids, begin + count)
                    if length <= KEPT_BYTES and found <= KEPT_IDS:
                        keep_ids(cache, places[i], text, at, length, 0, ids, begin + count, found)
                count += found
        end = put_ids(ids, begin + min(count, limit), after, after_count)
        counts[row] = end - used
        if is_kept:
            used = end
    return row_count
