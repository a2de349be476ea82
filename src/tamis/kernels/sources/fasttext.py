"""The kernel that computes what a fastText model says of texts, before it becomes probabilities."""

from __future__ import annotations

from numpy import float32, int8, int32, int64, uint32, uint64

from tamis.kernels.sources.primitives import helper, multiply_high, prefetch

__all__ = ["kernel"]

_FIRST_HASH = uint32(2166136261)
_FACTOR = uint32(16777619)
_WORD_FACTOR = uint64(116049371)
_SPACES = uint64(0x100003E01)  # NUL, tab to carriage return, and the space
_PENDING = 32
_FLOATS_PER_LINE = 16

_USED, _RING = 0, 1


@helper
def _is_space(byte):
    return byte <= 32 and (_SPACES >> uint64(byte)) & uint64(1) != uint64(0)


@helper
def _hashed(value, byte):
    """FNV-1a as fastText has it: bytes are signed."""
    return uint32((value ^ uint32(int32(int8(byte)))) * _FACTOR)


@helper
def _find(texts, start, length, value, slots, mask, words, word_ends):
    """The number of a word, a label included; -1 for one that is not known."""
    place = int64(value) & mask
    while slots[place] != uint64(0):
        slot = slots[place]
        if uint32(slot >> uint64(32)) == value:
            number = int64(slot & uint64(0xFFFFFFFF)) - 1
            begin = word_ends[number - 1] if number > 0 else int64(0)
            if word_ends[number] - begin == length:
                same = 0
                while same < length and words[begin + same] == texts[start + same]:
                    same += 1
                if same == length:
                    return number
        place = (place + 1) & mask
    return int64(-1)


@helper
def _starts_with_label(texts, start, length):
    if length < 9 or texts[start] != 95 or texts[start + 1] != 95 or texts[start + 2] != 108:
        return False
    if texts[start + 3] != 97 or texts[start + 4] != 98 or texts[start + 5] != 101 or texts[start + 6] != 108:
        return False
    return texts[start + 7] == 95 and texts[start + 8] == 95


@helper
def _add(vectors, row, dim, hidden):
    begin = row * dim
    for i in range(dim):
        hidden[i] += vectors[begin + i]


@helper
def _push(row, vectors, dim, hidden, state):
    """Add a row of the input matrix, some rows later: it takes a while to come from memory."""
    used = state[_USED]
    place = _RING + (used & (_PENDING - 1))
    if used >= _PENDING:
        _add(vectors, state[place], dim, hidden)
    state[place] = row
    state[_USED] = used + 1
    first = row * dim
    for line in range(0, dim, _FLOATS_PER_LINE):
        prefetch(vectors, first + line)


@helper
def _push_ngram(bucket, word_count, kept, is_pruned, vectors, dim, hidden, state):
    """Add the vector of an n-gram, unless quantising has dropped it."""
    if is_pruned:
        bucket = int64(kept[bucket])
        if bucket < 0:
            return
    _push(word_count + bucket, vectors, dim, hidden, state)


@helper
def _push_subwords(
    word, size, least, most, buckets, inverse, word_count, kept, is_pruned, vectors, dim, hidden, state
):
    """Add the n-grams of characters of a word in ``<`` and ``>``."""
    for begin in range(size):
        if word[begin] & 0xC0 == 0x80:
            continue
        value = _FIRST_HASH
        end, characters = begin, 1
        while end < size and characters <= most:
            value = _hashed(value, word[end])
            end += 1
            while end < size and word[end] & 0xC0 == 0x80:
                value = _hashed(value, word[end])
                end += 1
            if characters >= least and not (characters == 1 and (begin == 0 or end == size)):
                # The remainder without a division (Lemire, Kaser and Kurz, "Faster remainder by direct computation").
                bucket = int64(multiply_high(inverse * uint64(value), uint64(buckets)))
                _push_ngram(bucket, word_count, kept, is_pruned, vectors, dim, hidden, state)
            characters += 1


def kernel(
    texts,
    begins,
    ends,
    row_count,
    longest,
    slots,
    slot_count,
    words,
    word_ends,
    entry_count,
    word_count,
    line_end,
    line_end_hash,
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
    hashes,
    state,
    hidden,
    outputs,
    counts,
):
    """Compute the outputs of each text: the products of the mean of its vectors with those of the output matrix.

    Sums are made in the order in which fastText makes them, so that they are the same.

    Args:
        longest: The bytes of the longest text, or more.
        slots: A hash table of the words and labels: the hash, and the number plus one; 0 is empty.
        words: The bytes of all words and labels; ``word_ends`` says where each ends.
        word_count: How many are words. The others are labels.
        line_end: The number of the word ``</s>``; ``word_count`` if it is not among them. Its hash follows.
        least: The fewest characters of a subword; ``most``: the most.
        kept: For each bucket of n-grams its number, or -1, if quantising has dropped some.
        weights: The output matrix, transposed. Products with its row are multiplied by its scale.
        scratch: For the bytes of a word; ``hashes``: for those of the words of a text.
        counts: How many vectors the mean of each text is of.
    """
    mask = slot_count - 1
    inverse = uint64(0xFFFFFFFFFFFFFFFF) // uint64(buckets) + uint64(1) if buckets > 0 else uint64(0)
    for row in range(row_count):
        for i in range(dim):
            hidden[i] = float32(0)
        state[_USED] = 0
        tokens = int64(0)
        at, end = begins[row], ends[row]
        while True:
            while at < end and _is_space(texts[at]):
                at += 1
            if at >= end:
                break
            start, value = at, _FIRST_HASH
            while at < end and not _is_space(texts[at]):
                value = _hashed(value, texts[at])
                at += 1
            length = at - start
            if (
                length == 4
                and texts[start] == 60
                and texts[start + 1] == 47
                and texts[start + 2] == 115
                and texts[start + 3] == 62
            ):
                break  # nothing after the end of a line counts
            number = _find(texts, start, length, value, slots, mask, words, word_ends)
            if number >= word_count or (number < 0 and _starts_with_label(texts, start, length)):
                continue
            if number >= 0:
                _push(number, vectors, dim, hidden, state)
            if most > 0:
                scratch[0] = 60
                for i in range(length):
                    scratch[i + 1] = texts[start + i]
                scratch[length + 1] = 62
                _push_subwords(
                    scratch, length + 2, least, most, buckets, inverse,
                    word_count, kept, is_pruned, vectors, dim, hidden, state,
                )  # fmt: skip
            if word_ngrams > 1:
                hashes[tokens] = value
                tokens += 1
        if line_end < word_count:
            _push(line_end, vectors, dim, hidden, state)
        if word_ngrams > 1:
            hashes[tokens] = uint32(line_end_hash)
            tokens += 1
            for first in range(tokens):
                joined = uint64(int64(int32(hashes[first])))
                for last in range(first + 1, min(tokens, first + word_ngrams)):
                    joined = joined * _WORD_FACTOR + uint64(int64(int32(hashes[last])))
                    bucket = int64(joined % uint64(buckets))
                    _push_ngram(bucket, word_count, kept, is_pruned, vectors, dim, hidden, state)
        used = state[_USED]
        counts[row] = used
        for i in range(max(int64(0), used - _PENDING), used):
            _add(vectors, state[_RING + (i & (_PENDING - 1))], dim, hidden)
        place = row * output_count
        for j in range(output_count):
            outputs[place + j] = float32(0)
        if used == 0:
            continue
        share = float32(1.0 / float(used))
        for i in range(dim):
            factor = hidden[i] * share
            line = i * output_count
            for j in range(output_count):
                outputs[place + j] += weights[line + j] * factor
        for j in range(output_count):
            outputs[place + j] *= scales[j]
    return 0
