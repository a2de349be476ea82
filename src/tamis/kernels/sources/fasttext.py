"""The kernel that computes what a fastText model says of texts, before it becomes probabilities."""

from __future__ import annotations

from numpy import float32, int8, int32, int64, uint32, uint64

from tamis.kernels.sources.fasttext_words import find_word, place_of, tag_of, up_to_8
from tamis.kernels.sources.primitives import (
    byte_mask,
    copy_64,
    floats_from,
    helper,
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

_SHORT = 16
_QUEUED = 32
_FLOATS_PER_LINE = 16
_FIELDS = 8
_BEGIN, _LENGTH, _FIRST, _TAG, _PLACE, _END, _KIND = range(7)
_DIRECT, _KNOWN_SUM, _NEW_SUM = 0, 1, 2
_WAITING = 512
_SUMS = 2048

_spaces = byte_mask((0, 0), (9, 13), (32, 32))
_beyond_ascii = byte_mask((0x80, 0xFF))
_add_8 = row_adder(8)
_add_16 = row_adder(16)


@helper
def _hashed(value, byte):
    """FNV-1a as fastText has it: bytes are signed."""
    return uint32((value ^ uint32(int32(int8(byte)))) * _FACTOR)


@helper
def _prefetch_row(vectors, row, dim):
    prefetch(vectors, row)
    more = _FLOATS_PER_LINE
    while more < dim:
        prefetch(vectors, row + more)
        more += _FLOATS_PER_LINE


@helper
def _add_rows(rows, begin, end, word_count, kept, is_pruned, vectors, dim, sums):
    """Add rows of the input matrix, and count them. Negative ones are n-grams that quantising may have dropped."""
    count = end
    if begin < end and is_pruned:
        count = begin
    for i in range(count, end):
        row = rows[i]
        if row < 0:
            row = int64(kept[-1 - row])
            if row < 0:
                continue
            row = (word_count + row) * dim
            _prefetch_row(vectors, row, dim)
        rows[count] = row
        count += 1
    first = int64(0)
    while first + 16 <= dim:
        _add_16(vectors, rows, begin, count, first, sums, first)
        first += 16
    if first < dim:
        _add_8(vectors, rows, begin, count, first, sums, first)
    return count - begin


@helper
def _add_sum(sums, at, dim, hidden):
    for i in range(dim):
        hidden[i] += sums[at + i]


@helper
def _push_bucket(bucket, word_count, kept, is_pruned, vectors, dim, rows, waiting):
    """Let the vector of an n-gram be added later: it takes a while to come from memory."""
    if is_pruned:
        prefetch(kept, bucket)
        rows[waiting] = -1 - bucket
    else:
        row = (word_count + bucket) * dim
        _prefetch_row(vectors, row, dim)
        rows[waiting] = row
    return waiting + 1


@helper
def _push_subwords(
    word, size, begin, is_ascii, least, most, buckets, inverse, word_count, kept, is_pruned, vectors, dim, rows, waiting
):
    """The n-grams that begin with a character of a word in ``<`` and ``>``. Returns how many rows wait."""
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
            waiting = _push_bucket(bucket, word_count, kept, is_pruned, vectors, dim, rows, waiting)
    return waiting


@helper
def _add_queued(queue, first, last, word_count, kept, is_pruned, vectors, dim, rows, hidden, sums, sum_keys):
    """Add the rows of some words, and count them."""
    added = begin = int64(0)
    for i in range(first, last):
        entry = i * _FIELDS
        end, kind = int64(queue[entry + _END]), int64(queue[entry + _KIND])
        if kind == _DIRECT:
            if i + 1 < last and int64(queue[entry + _FIELDS + _KIND]) == _DIRECT:
                continue  # the rows of neighbours are added together
            added += _add_rows(rows, begin, end, word_count, kept, is_pruned, vectors, dim, hidden)
        else:
            place = int64(queue[entry + _PLACE] >> uint64(53))
            if kind == _NEW_SUM:
                for k in range(dim):
                    sums[place * dim + k] = float32(0)
                count = _add_rows(
                    rows, begin, end, word_count, kept, is_pruned, vectors, dim, floats_from(sums, place * dim)
                )
                sum_keys[4 * place + 2] = uint64(count)
            added += int64(sum_keys[4 * place + 2])
            _add_sum(sums, place * dim, dim, hidden)
        begin = end
    return added


@helper
def _is_label(text, start, length):
    """Whether a word begins with ``__label__``."""
    return length > 8 and load64(text, start) == _LABEL and text[start + 8] == 95


@helper
def _copy_word(text, begin, length, word):
    """The word in ``<`` and ``>``; returns whether it is ASCII."""
    beyond = uint64(0)
    word[0] = 60
    for at in range(0, length, 64):
        copy_64(word, 1 + at, text, begin + at)
        high = _beyond_ascii(text, begin + at)
        beyond |= high if length - at >= 64 else high & ((uint64(1) << uint64(length - at)) - uint64(1))
    word[length + 1] = 62
    return beyond == uint64(0)


@helper
def _add_words(
    text, queue, queued, tokens, slots, mask, words, word_ends, word_count, hashes, sizes, is_summed, least, most,
    word_ngrams, buckets, inverse, kept, is_pruned, vectors, dim, word, text_hashes, rows, hidden, sums, sum_keys,
):  # fmt: skip
    """Add the vectors of the words in the queue, and count them. Returns also how many words of the text there are.

    The rows of all words are found before the first is added, so that they come from memory meanwhile.
    """
    added = waiting = first = int64(0)
    for i in range(queued):
        entry = i * _FIELDS
        begin, length = int64(queue[entry + _BEGIN]), int64(queue[entry + _LENGTH])
        one, tag, place = queue[entry + _FIRST], queue[entry + _TAG], queue[entry + _PLACE]
        queue[entry + _KIND], queue[entry + _END] = uint64(_DIRECT), uint64(waiting)
        number = find_word(text, begin, length, one, tag, place, slots, mask, words, word_ends)
        if number >= word_count or (number < 0 and _is_label(text, begin, length)):
            continue
        if word_ngrams > 1:
            value = _FIRST_HASH
            if number >= 0:
                value = hashes[number]
            else:
                for k in range(length):
                    value = _hashed(value, text[begin + k])
            text_hashes[tokens] = value
            tokens += 1
        has_subwords = most > 0
        if number >= 0:
            _prefetch_row(vectors, number * dim, dim)
            rows[waiting] = number * dim
            waiting += 1
            if has_subwords and sizes[number] > 0:
                added += int64(sizes[number]) - 1
                has_subwords = False
        elif has_subwords and is_summed and length <= _SHORT:
            other = up_to_8(text, begin + 8, length - 8)
            held = 4 * int64(place >> uint64(53))
            if sum_keys[held] == one and sum_keys[held + 1] == other and sum_keys[held + 3] != uint64(0):
                queue[entry + _KIND] = uint64(_KNOWN_SUM)
                has_subwords = False
            else:
                # Words after this one may find its sum: it is made before theirs are added.
                queue[entry + _KIND] = uint64(_NEW_SUM)
                sum_keys[held], sum_keys[held + 1], sum_keys[held + 3] = one, other, uint64(1)
        if has_subwords:
            is_ascii = _copy_word(text, begin, length, word)
            is_apart = length > _SHORT
            if is_apart:
                queue[entry + _END] = uint64(waiting)
                added += _add_queued(
                    queue, first, i + 1, word_count, kept, is_pruned, vectors, dim, rows, hidden, sums, sum_keys
                )
                first, waiting = i + 1, int64(0)
                target = floats_from(sums, _SUMS * dim) if is_summed and number < 0 else floats_from(hidden, 0)
                if is_summed and number < 0:
                    for k in range(dim):
                        target[k] = float32(0)
            for at in range(length + 2):
                if word[at] & 0xC0 == 0x80:
                    continue
                if is_apart and waiting >= _WAITING:
                    added += _add_rows(rows, 0, waiting, word_count, kept, is_pruned, vectors, dim, target)
                    waiting = int64(0)
                waiting = _push_subwords(
                    word, length + 2, at, is_ascii, least, most, buckets, inverse, word_count, kept, is_pruned,
                    vectors, dim, rows, waiting,
                )  # fmt: skip
            if is_apart:
                added += _add_rows(rows, 0, waiting, word_count, kept, is_pruned, vectors, dim, target)
                waiting = int64(0)
                if is_summed and number < 0:
                    _add_sum(sums, _SUMS * dim, dim, hidden)
        queue[entry + _END] = uint64(waiting)
        if waiting >= _WAITING:
            added += _add_queued(
                queue, first, i + 1, word_count, kept, is_pruned, vectors, dim, rows, hidden, sums, sum_keys
            )
            first, waiting = i + 1, int64(0)
    added += _add_queued(queue, first, queued, word_count, kept, is_pruned, vectors, dim, rows, hidden, sums, sum_keys)
    return added, tokens


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
    is_summed,
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
    queue,
    rows,
    sums,
    sum_keys,
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
        is_summed: Whether the vectors of a word are summed before they are added to those of a text.
        line_end: The number of the word ``</s>``; ``word_count`` if it is not among them.
        least: The fewest characters of a subword; ``most``: the most.
        kept: For each bucket of n-grams its number, or -1, if quantising has dropped some.
        weights: The output matrix, transposed. Products with its row are multiplied by its scale.
        scratch: For a copy of a text at the end of the buffer; ``word``: for the bytes of a word.
        text_hashes: For the hashes of the words of a text.
        queue: For words that are looked up together; ``rows``: for where their vectors begin.
        sums: For the sums of the vectors of words that are not known; ``sum_keys``: for these words, all zero.
        counts: How many vectors the mean of each text is of.
    """
    mask = slot_count - 1
    inverse = uint64(0xFFFFFFFFFFFFFFFF) // uint64(buckets) + uint64(1) if buckets > 0 else uint64(0)
    for row in range(row_count):
        for i in range(dim):
            hidden[i] = float32(0)
        total = tokens = queued = int64(0)
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
                one, tag = up_to_8(text, begin, length), tag_of(text, begin, length)
                if one == _LINE_END and length == 4:
                    is_over = True  # nothing after the end of a line counts
                    break
                entry, spread = queued * _FIELDS, place_of(one, tag)
                prefetch(slots, 2 * int64(spread & uint64(mask)))
                queue[entry + _BEGIN], queue[entry + _LENGTH] = uint64(begin), uint64(length)
                queue[entry + _FIRST], queue[entry + _TAG], queue[entry + _PLACE] = one, tag, spread
                queued += 1
                if queued == _QUEUED:
                    added, tokens = _add_words(
                        text, queue, queued, tokens, slots, mask, words, word_ends, word_count, hashes, sizes,
                        is_summed, least, most, word_ngrams, buckets, inverse, kept, is_pruned, vectors, dim, word,
                        text_hashes, rows, hidden, sums, sum_keys,
                    )  # fmt: skip
                    total += added
                    queued = int64(0)
            if is_over:
                break
        added, tokens = _add_words(
            text, queue, queued, tokens, slots, mask, words, word_ends, word_count, hashes, sizes,
            is_summed, least, most, word_ngrams, buckets, inverse, kept, is_pruned, vectors, dim, word,
            text_hashes, rows, hidden, sums, sum_keys,
        )  # fmt: skip
        total += added
        waiting = int64(0)
        if line_end < word_count:
            rows[0] = line_end * dim
            waiting = int64(1)
        if word_ngrams > 1:
            text_hashes[tokens] = _LINE_END_HASH
            tokens += 1
            for first in range(tokens):
                joined = uint64(int64(int32(text_hashes[first])))
                for last in range(first + 1, min(tokens, first + word_ngrams)):
                    joined = joined * _WORD_FACTOR + uint64(int64(int32(text_hashes[last])))
                    if waiting >= _WAITING:
                        total += _add_rows(rows, 0, waiting, word_count, kept, is_pruned, vectors, dim, hidden)
                        waiting = int64(0)
                    bucket = int64(joined % uint64(buckets))
                    waiting = _push_bucket(bucket, word_count, kept, is_pruned, vectors, dim, rows, waiting)
        total += _add_rows(rows, 0, waiting, word_count, kept, is_pruned, vectors, dim, hidden)
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
