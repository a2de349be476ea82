"""The kernel of the heuristic filters: scores texts and applies a chain of checks to them, all in one pass.

A check is ``numerator / denominator``, two of :mod:`tamis.kernels.measures`, with bounds. After a text fails a check,
nothing more is computed for it. Words, lines and so on are found once, when a check first needs them.
"""

from __future__ import annotations

from tamis.kernels.measures import (
    DIGITS,
    ELLIPSES,
    LETTER_WORDS,
    LINES,
    MEASURES,
    NEWLINES,
    PARAGRAPHS,
    POLICY_PARAGRAPHS,
    URL_CHARACTERS,
    WORDS,
)
from tamis.kernels.sources.lines import find_lines, find_paragraphs, table_size
from tamis.kernels.sources.ngrams import LONGEST_SHORT, find_ngrams, hash_prefixes
from tamis.kernels.sources.phrases import count_ellipses, count_policies, find_urls
from tamis.kernels.sources.primitives import PADDING, as_bytes, as_ints, as_words, helper
from tamis.kernels.sources.scan import classify, scan
from tamis.kernels.sources.words import find_words

__all__ = ["kernel"]

_CLASSES, _WORDS, _LINES, _PARAGRAPHS, _POLICIES, _URLS, _NGRAMS, _ELLIPSES = 1, 2, 4, 8, 16, 32, 64, 128


@helper
def part_of(measure):
    """What has to be computed for a measure, in addition to the first pass."""
    if measure < DIGITS:
        return 0
    if measure <= WORDS:
        return _CLASSES
    if measure == LETTER_WORDS:
        return _CLASSES
    if measure < LINES:
        return _CLASSES | _WORDS
    if measure < PARAGRAPHS:
        return _CLASSES | _LINES
    if measure < POLICY_PARAGRAPHS:
        return _CLASSES | _PARAGRAPHS
    if measure < URL_CHARACTERS:
        return _CLASSES | _PARAGRAPHS | _POLICIES
    if measure < ELLIPSES:
        return _URLS
    if measure < MEASURES:
        return _ELLIPSES
    return _CLASSES | _WORDS | _NGRAMS


def kernel(
    texts,
    offsets,
    rows,
    row_count,
    first_row,
    check_count,
    operands,
    parameters,
    ngrams,
    ngram_count,
    blocks,
    flags,
    vocabulary,
    phrases,
    phrase_ends,
    phrase_count,
    anchor_count,
    scratch,
    scratch_bytes,
    scores,
    failed,
    needed,
):
    """Check texts. Returns the row to continue with once there is more scratch memory, or the number of rows.

    Args:
        operands: For each check its numerator and denominator; -1 where there is none.
        parameters: For each check: the score if the denominator is zero, the highest possible score, the lowest and
            highest score that are kept, and 1 if the other scores are kept instead.
        ngrams: For each requested n, in ascending order: n, and whether the most frequent n-gram is wanted. Their
            measures are ``MEASURES`` and up: characters of the most frequent one, then those of repeated ones.
        scores: For each check and each row the score, up to the check that the row failed.
        failed: For each row the check that it failed; -1 if it failed none.
    """
    counts = as_ints(scratch, 0)
    for row in range(first_row, row_count):
        start = offsets[rows[row]]
        size = offsets[rows[row] + 1] - start
        bitmap = ((size >> 6) + 3) * 8
        at = (MEASURES + 2 * ngram_count + 7) // 8 * 64
        text = as_bytes(scratch, at)
        at += (size + PADDING + 63) // 64 * 64
        spare = as_bytes(scratch, at)
        at += (size + PADDING + 63) // 64 * 64
        maps = at
        at += 5 * bitmap
        if at > scratch_bytes:
            needed[0] = at
            return row
        for i in range(size):
            text[i] = texts[start + i]
        for i in range(size, size + PADDING):
            text[i] = 0
        spaces, letters = as_words(scratch, maps), as_words(scratch, maps + bitmap)
        continued, newlines = as_words(scratch, maps + 2 * bitmap), as_words(scratch, maps + 3 * bitmap)
        continued_before = as_ints(scratch, maps + 4 * bitmap)
        is_ascii = scan(text, size, spaces, letters, continued, newlines, counts)
        # The layout of the rest depends on the number of words.
        after_maps = at
        words = 0
        table = as_words(scratch, at)
        edges, hashes, before = as_ints(scratch, at), as_words(scratch, at), as_ints(scratch, at)
        prefixes, slots, active = as_words(scratch, at), as_ints(scratch, at), as_ints(scratch, at)
        ngram_hashes = as_words(scratch, at)

        known = 0
        found_ngrams, smaller, places = 0, 0, -1
        failed[row] = -1
        for check in range(check_count):
            numerator, denominator = operands[2 * check], operands[2 * check + 1]
            wanted = part_of(numerator) | (part_of(denominator) if denominator >= 0 else 0)
            missing = wanted & ~(known & ~_NGRAMS)
            if missing & _CLASSES:
                classify(text, size, is_ascii, blocks, flags, spaces, letters, continued, continued_before, counts)
                words = counts[WORDS]
                room, _ = table_size(words if ngram_count > 0 else 0)
                line_room, _ = table_size(counts[NEWLINES] + 1)
                at = after_maps + max(16 * room, 8 * line_room)
                # Eight numbers for each word; four if no n-grams are wanted.
                end = at + 8 * ((8 if ngram_count > 0 else 4) * words + 9)
                if end > scratch_bytes:
                    needed[0] = end
                    return row
                edges = as_ints(scratch, at)
                hashes = as_words(scratch, at + 8 * (2 * words + 2))
                before = as_ints(scratch, at + 8 * (3 * words + 3))
                prefixes = as_words(scratch, at + 8 * (4 * words + 5))
                slots = as_ints(scratch, at + 8 * (5 * words + 6))
                active = as_ints(scratch, at + 8 * (6 * words + 7))
                ngram_hashes = as_words(scratch, at + 8 * (7 * words + 8))
            if missing & _WORDS:
                find_words(
                    text, size, is_ascii, spaces, continued, continued_before, vocabulary, counts, edges, hashes, before
                )
            if missing & _LINES:
                find_lines(
                    text, size, is_ascii, blocks, flags, spaces, continued, newlines, continued_before, counts, table
                )
            if missing & _PARAGRAPHS:
                find_paragraphs(text, size, is_ascii, continued, newlines, continued_before, counts, table)
            if missing & _POLICIES:
                count_policies(text, size, is_ascii, phrases, phrase_ends, phrase_count, anchor_count, spare, counts)
            if missing & _URLS:
                find_urls(text, size, counts)
            if missing & _ELLIPSES:
                count_ellipses(text, size, counts)
            if missing & _NGRAMS:
                while found_ngrams <= (numerator - MEASURES) >> 1:
                    n = ngrams[2 * found_ngrams]
                    if smaller <= LONGEST_SHORT < n:
                        hash_prefixes(hashes, words, prefixes)
                    places = find_ngrams(
                        text,
                        size,
                        n,
                        smaller,
                        places,
                        ngrams[2 * found_ngrams + 1],
                        edges,
                        hashes,
                        prefixes,
                        before,
                        ngram_hashes,
                        slots,
                        active,
                        table,
                        spare,
                        counts,
                        MEASURES + 2 * found_ngrams,
                    )
                    smaller = n
                    found_ngrams += 1
            known |= missing

            score = float(counts[numerator])
            if denominator >= 0:
                if counts[denominator] > 0:
                    score = score / float(counts[denominator])
                else:
                    score = parameters[5 * check]
            score = min(score, parameters[5 * check + 1])
            scores[check * row_count + row] = score
            is_kept = parameters[5 * check + 2] <= score <= parameters[5 * check + 3]
            if is_kept == (parameters[5 * check + 4] != 0.0):
                failed[row] = check
                break
    return row_count
