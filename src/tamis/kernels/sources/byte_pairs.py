"""The kernel that tokenises with byte-level byte pair encoding, as GPT-2, Llama 3 and Qwen do.

A text is split into pieces, and each piece becomes tokens. Those of short pieces are kept in a table.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.crossings import part_end
from tamis.kernels.sources.merging import merge_piece
from tamis.kernels.sources.pretokens import classify_bytes, piece_end
from tamis.kernels.sources.primitives import helper, ints_from, prefetch, words_from
from tamis.kernels.sources.token_cache import AHEAD, KEPT_BYTES, KEPT_IDS, keep_ids, kept_ids, place_of
from tamis.kernels.sources.token_rows import SLACK, child_of, put_ids, readable_row
from tamis.kernels.sources.utf8 import is_utf8

__all__ = ["kernel"]

_PART = 64  # the tag of a piece that is a part of another: it is never taken whole


@helper
def token_of(text, start, size, trie, shift, tokens):
    """The id of a piece that is a token; -1 if it is none."""
    node = int64(0)
    for i in range(start, start + size):
        node = child_of(trie, shift, node, text[i])
        if node == 0:
            return int64(-1)
    return int64(tokens[node])


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
    crossings,
    crossing_shift,
    orders,
    style,
    digits,
    takes_whole,
    byte_ids,
    two_byte_ids,
    byte_ranks,
    pairs,
    pair_shift,
    merged,
    merge_count,
    links,
    ranks,
    most,
):
    """Tokenise texts until there is no room for the next one. Returns the row of that one.

    Args:
        first_row: The first text.
        scratch: For a copy of a text near the end of the buffer.
        bitmaps: Four times ``bitmap_words`` words: one bit for each byte of a text and some more.
        pieces: Room for twice as many numbers as pieces are looked at ahead.
        cache, cache_shift: See :mod:`tamis.kernels.sources.token_cache`.
        before, after: The ids that are put before and after each text.
        limit: The most ids of a text, besides these.
        is_kept: Whether the ids are kept, not only counted. If not, those of a text overwrite those before.
        left_out: One for each text that is not to be tokenised. The kernel sets it for those that it cannot tokenise.
        counts: The number of ids of each text; 0 for those left out.
        ids, room: The ids of all texts, and how many there may be.
        trie, trie_shift, tokens: The tokens as a trie, and the id of each node, -1 where no token ends. The edges are
            in a hash table (see :mod:`tamis.kernels.sources.buckets`): a node and a byte are a key, and the node after
            them is its number.
        crossings, crossing_shift: See :mod:`tamis.kernels.sources.crossings`.
        kinds, orders, style, digits: How texts are split: see :mod:`tamis.kernels.sources.pretokens`.
        takes_whole: Whether a piece that is a token becomes that token, whatever the pairs are.
        two_byte_ids: The id of each piece of two bytes that is one token; -1 for the others.
        byte_ids, byte_ranks, pairs, pair_shift, merged, links, ranks, most: See :mod:`tamis.kernels.sources.merging`.
    """
    letters, numbers = words_from(bitmaps, 0), words_from(bitmaps, bitmap_words)
    spaces, others = words_from(bitmaps, 2 * bitmap_words), words_from(bitmaps, 3 * bitmap_words)
    ends, places = ints_from(pieces, 0), ints_from(pieces, AHEAD)
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
        words = ((size + 63) >> 6) + 1
        for word in range(words):
            letters[word] = numbers[word] = spaces[word] = others[word] = uint64(0)
        if not is_utf8(text, 0, size) or not classify_bytes(
            text, size, kinds, orders, letters, numbers, spaces, others
        ):
            left_out[row] = 1
            continue
        begin = put_ids(ids, used, before, before_count)
        count = 0
        at = 0
        while at < size and 0 <= count < limit:
            # The places of some pieces are fetched before the first of them is looked at.
            some = 0
            end = at
            while end < size and some < AHEAD:
                start = end
                end = piece_end(text, start, size, style, digits, letters, numbers, spaces, others)
                ends[some] = end
                if end - start <= KEPT_BYTES:
                    place = place_of(cache_shift, text, start, end - start)
                    prefetch(cache, place)
                    places[some] = place
                some += 1
            for i in range(some):
                if count >= limit:
                    break
                end = ends[i]
                length = end - at
                if length <= 2:
                    first = ids[begin + count] = byte_ids[text[at]]
                    if length == 2:
                        both = two_byte_ids[(int64(text[at]) << 8) | int64(text[at + 1])]
                        ids[begin + count] = both if both >= 0 else first
                        ids[begin + count + 1] = byte_ids[text[at + 1]]
                        count += 1 if both < 0 else 0
                    count += 1
                    at = end
                    continue
                found = int64(-1)
                if length <= KEPT_BYTES:
                    found = kept_ids(cache, places[i], text, at, length, 0, ids, begin + count)
                if found < 0 and takes_whole:
                    token = token_of(text, at, length, trie, trie_shift, tokens)
                    if token >= 0:
                        ids[begin + count] = token
                        found = int64(1)
                        if length <= KEPT_BYTES:
                            keep_ids(cache, places[i], text, at, length, 0, ids, begin + count, found)
                if found < 0:
                    found = int64(0)
                    while at < end:
                        until = part_end(text, at, end, crossings, crossing_shift)
                        part = until - at
                        is_kept_part = part <= KEPT_BYTES and part < length
                        place = int64(0)
                        made = int64(-1)
                        if is_kept_part:
                            place = place_of(cache_shift, text, at, part)
                            made = kept_ids(cache, place, text, at, part, _PART, ids, begin + count + found)
                        if made < 0:
                            if part > most:
                                found = int64(-1)
                                break
                            made = merge_piece(
                                *(text, at, part, byte_ids, byte_ranks, pairs, pair_shift, merged),
                                *(links, ranks, most, ids, begin + count + found),
                            )
                            if is_kept_part and made <= KEPT_IDS:
                                keep_ids(cache, place, text, at, part, _PART, ids, begin + count + found, made)
                        found += made
                        at = until
                    if found < 0:
                        count = -1
                        break
                    if length <= KEPT_BYTES and found <= KEPT_IDS:
                        keep_ids(cache, places[i], text, end - length, length, 0, ids, begin + count, found)
                count += found
                at = end
        if count < 0:
            left_out[row] = 1
            continue
        end = put_ids(ids, begin + min(count, limit), after, after_count)
        counts[row] = end - used
        if is_kept:
            used = end
    return row_count
