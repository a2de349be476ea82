"""The kernel that computes what a fastText model says of texts, before it becomes probabilities."""

from __future__ import annotations

from numpy import float32, int8, int32, int64, uint32, uint64

from tamis.kernels.sources.fasttext_words import find_word
from tamis.kernels.sources.primitives import (
    byte_mask,
    copy_64,
    helper,
    ints_from,
    load64,
    multiply_high,
    prefetch,
    row_adder,
    trailing_zeros,
)
from tamis.kernels.sources.shingles import readable_text

__all__ = ["kernel"]

_FIRST_HASH = uint32(2166136261)
_FACTOR = uint32(16777619)
_WORD_FACTOR = uint64(116049371)
_LINE_END = uint64(0x3E732F3C)  # </s>
_LINE_END_HASH = uint32(3617362777)
_LABEL = uint64(0x5F6C6562616C5F5F)  # __label_
_PENDING = 128

_spaces = byte_mask((0, 0), (9, 13), (32, 32))
_beyond_ascii = byte_mask((0x80, 0xFF))
_add_8 = row_adder(8)
_add_16 = row_adder(16)


@helper
def _hashed(value, byte):
    """FNV-1a as fastText has it: bytes are signed."""
    return uint32((value ^ uint32(int32(int8(byte)))) * _FACTOR)


@helper
def _add_rows(rows, waiting, word_count, kept, vectors, dim, hidden):
    """Add the rows that wait, and count them. Those that are negative are of n-grams that quantising may have dropped."""
    count = int64(0)
    for i in range(waiting):
        row = rows[i]
        if row < 0:
            row = int64(kept[-1 - row])
            if row < 0:
                continue
            row += word_count
            prefetch(vectors, row * dim)
        rows[count] = row
        count += 1
    first = int64(0)
    while first + 16 <= dim:
        _add_16(vectors, rows, count, dim, first, hidden)
        first += 16
    if first < dim:
        _add_8(vectors, rows, count, dim, first, hidden)
    return count


@helper
def _push_subwords(word, size, is_ascii, least, most, buckets, inverse, word_count, kept, is_pruned, vectors, dim, rows, waiting, begin):
    """Let the n-grams be added that begin with a character of a word in ``<`` and ``>``. Returns how many rows wait.

    A row takes a while to come from memory, so it is added later.
    """
    value, end, characters = _FIRST_HASH, begin, int64(0)
    if is_ascii:
        while end < size and characters < least - 1:
            value = _hashed(value, word[end])
            end += 1
            characters += 1
    while end < size and characters < most:
        value = _hashed(value, word[end])
        end += 1
        characters += 1
        if not is_ascii:
            while end < size and word[end] & 0xC0 == 0x80:
                value = _hashed(value, word[end])
                end += 1
        if characters >= least and (characters > 1 or (begin > 0 and end < size)):
            # The remainder without a division (Lemire, Kaser and Kurz, "Faster remainder by direct computation").
            bucket = int64(multiply_high(inverse * uint64(value), uint64(buckets)))
            if is_pruned:
                prefetch(kept, bucket)
                rows[waiting] = -1 - bucket
            else:
                prefetch(vectors, (word_count + bucket) * dim)
                rows[waiting] = word_count + bucket
            waiting += 1
    return waiting


@helper
def _is_ascii(text, begin, length):
    for at in range(0, length, 64):
        beyond = _beyond_ascii(text, begin + at)
        if length - at < 64:
            beyond &= (uint64(1) << uint64(length - at)) - uint64(1)
        if beyond != uint64(0):
            return False
    return True


@helper
def _is_label(text, start, length):
    """Whether a word begins with ``__label__``."""
    return length > 8 and load64(text, start) == _LABEL and text[start + 8] == 95


def kernel(
    texts,
    offsets,
    ends,
    row_count,
    readable,
    longest,
    slots,
    slot_count,
    words,
    word_ends,
    entry_count,
    word_count,
    hashes,
    sizes,
    line_end,
    least,
    most,
    word_ngrams,
    buckets,
    kept,
    is_pruned,
    vectors,
    vector_count,
    dim,
    weights,
    scales,
    output_count,
    scratch,
    word,
    text_hashes,
    rows,
    hidden,
    outputs,
    counts,
):
    """Compute the outputs of each text: the products of the mean of its vectors with those of the output matrix.

    Sums are made in the order in which fastText makes them, so that they are the same.

    Args:
        ends: Where to stop reading each text.
        longest: The bytes of the longest text that is read, or more.
        slots: The table that the kernel :mod:`tamis.kernels.sources.fasttext_words` makes of the words and labels.
        words: Their bytes, and eight more; ``word_ends`` says where each ends.
        word_count: How many are words. The others are labels.
        hashes: Those of the words, as fastText computes them.
        sizes: Of how many vectors, those of its subwords, the row of each word is the sum; zero if of none.
        line_end: The number of the word ``</s>``; ``word_count`` if it is not among them.
        least: The fewest characters of a subword; ``most``: the most.
        kept: For each bucket of n-grams its number, or -1, if quantising has dropped some.
        weights: The output matrix, transposed. Products with its row are multiplied by its scale.
        scratch: For a copy of a text at the end of the buffer; ``word``: for the bytes of a word.
        text_hashes: For the hashes of the words of a text; ``rows``: for rows of the matrix that are added later.
        counts: How many vectors the mean of each text is of; in the last place, a count of the kernel's own.
    """
    mask = slot_count - 1
    used = ints_from(counts, row_count)
    inverse = uint64(0xFFFFFFFFFFFFFFFF) // uint64(buckets) + uint64(1) if buckets > 0 else uint64(0)
    for row in range(row_count):
        for i in range(dim):
            hidden[i] = float32(0)
        used[0] = 0
        waiting = tokens = int64(0)
        size = ends[row] - offsets[row]
        text = readable_text(texts, offsets[row], ends[row], readable, scratch)
        start, previous, is_over = int64(-1), uint64(1), False
        for block in range((size >> 6) + 1):
            at = block << 6
            space = _spaces(text, at)
            if size - at < 64:
                space |= ~uint64(0) << uint64(size - at)
            changes = space ^ ((space << uint64(1)) | previous)
            previous = space >> uint64(63)
            while changes != uint64(0):
                place = at + trailing_zeros(changes)
                changes &= changes - uint64(1)
                if start < 0:
                    start = place
                    continue
                begin, length = start, place - start
                start = int64(-1)
                if length == 4 and load64(text, begin) & uint64(0xFFFFFFFF) == _LINE_END:
                    is_over = True  # nothing after the end of a line counts
                    break
                number = find_word(text, begin, length, slots, mask, words, word_ends)
                if number >= word_count or (number < 0 and _is_label(text, begin, length)):
                    continue
                if number >= 0:
                    prefetch(vectors, number * dim)
                    rows[waiting] = number
                    waiting += 1
                    used[0] += max(int64(0), int64(sizes[number]) - 1)
                if most > 0 and (number < 0 or sizes[number] == 0):
                    word[0] = 60
                    for i in range(0, length, 64):
                        copy_64(word, 1 + i, text, begin + i)
                    word[length + 1] = 62
                    is_ascii = _is_ascii(text, begin, length)
                    for first in range(length + 2):
                        if waiting >= _PENDING:
                            used[0] += _add_rows(rows, waiting, word_count, kept, vectors, dim, hidden)
                            waiting = int64(0)
                        if word[first] & 0xC0 != 0x80:
                            waiting = _push_subwords(
                                *(word, length + 2, is_ascii, least, most, buckets, inverse, word_count, kept),
                                *(is_pruned, vectors, dim, rows, waiting, first),
                            )
                if waiting >= _PENDING:
                    used[0] += _add_rows(rows, waiting, word_count, kept, vectors, dim, hidden)
                    waiting = int64(0)
                if word_ngrams > 1:
                    if number >= 0:
                        text_hashes[tokens] = hashes[number]
                    else:
                        value = _FIRST_HASH
                        for i in range(length):
                            value = _hashed(value, text[begin + i])
                        text_hashes[tokens] = value
                    tokens += 1
            if is_over:
                break
        if line_end < word_count:
            rows[waiting] = line_end
            waiting += 1
        if word_ngrams > 1:
            text_hashes[tokens] = _LINE_END_HASH
            tokens += 1
            for first in range(tokens):
                joined = uint64(int64(int32(text_hashes[first])))
                for last in range(first + 1, min(tokens, first + word_ngrams)):
                    joined = joined * _WORD_FACTOR + uint64(int64(int32(text_hashes[last])))
                    bucket = int64(joined % uint64(buckets))
                    if waiting >= _PENDING:
                        used[0] += _add_rows(rows, waiting, word_count, kept, vectors, dim, hidden)
                        waiting = int64(0)
                    if is_pruned:
                        prefetch(kept, bucket)
                        rows[waiting] = -1 - bucket
                    else:
                        prefetch(vectors, (word_count + bucket) * dim)
                        rows[waiting] = word_count + bucket
                    waiting += 1
        used[0] += _add_rows(rows, waiting, word_count, kept, vectors, dim, hidden)
        total = used[0]
        counts[row] = total
        place = row * output_count
        for j in range(output_count):
            outputs[place + j] = float32(0)
        if total == 0:
            continue
        share = float32(1.0 / float(total))
        for i in range(dim):
            factor = hidden[i] * share
            line = i * output_count
            for j in range(output_count):
                outputs[place + j] += weights[line + j] * factor
        for j in range(output_count):
            outputs[place + j] *= scales[j]
    return 0
