"""The kernel that turns texts into vectors by hashing their words: no model, no vocabulary.

A text is folded first: letters in lower case, everything that is neither a letter, a digit nor a mark as a space, and
characters of scripts without spaces between words as words of their own. Each word, the begin of each longer word and
each pair of neighbouring words is counted in the bucket that its hash chooses. Each bucket that has counted something
then adds its weight to one entry of the vector, with a sign. All of this is done in whole numbers, so that no order of
additions matters.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import float32, int64, uint8, uint32, uint64

from tamis.kernels.hashed_words_definition import BUCKETS, COUNTED, KEPT, PREFIX, SEPARATE
from tamis.kernels.sources.hashing import K0, K1, mix, piece_hash
from tamis.kernels.sources.primitives import BYTES, byte_mask, helper, load64, trailing_zeros
from tamis.kernels.sources.shingles import readable_text
from tamis.kernels.sources.unit_length import write_unit

__all__ = ["kernel"]

_SHIFT = uint64(64 - (BUCKETS - 1).bit_length())
_HIGH_BITS = uint64(0x8080808080808080)
_LENGTHS = uint64(0x4322111111111111)  # of characters, by the upper half of their first byte
_SPACE = uint8(32)
_BLOCKS = 0x1100

_high = byte_mask((0x80, 0xFF))
_spaces = byte_mask((32, 32))

_BYTE = ir.IntType(8)
_BLOCK = ir.VectorType(_BYTE, 64)


@intrinsic
def _fold_64(typing_context, target, at, source, index):
    """Fold 64 ASCII characters."""

    def same(value):
        return ir.Constant(_BLOCK, [value] * 64)

    def generate(context, builder, signature, arguments):
        target, at, source, index = arguments
        block = builder.load(builder.bitcast(builder.gep(source, [index]), _BLOCK.as_pointer()), align=1)
        lower = builder.or_(block, same(32))  # digits have this bit
        is_letter = builder.icmp_unsigned("<=", builder.sub(lower, same(97)), same(25))
        is_digit = builder.icmp_unsigned("<=", builder.sub(block, same(48)), same(9))
        folded = builder.select(builder.or_(is_letter, is_digit), lower, same(32))
        builder.store(folded, builder.bitcast(builder.gep(target, [at]), _BLOCK.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(BYTES, types.int64, BYTES, types.int64), generate


@intrinsic
def _store_4(typing_context, target, at, value):
    """Write four bytes."""

    def generate(context, builder, signature, arguments):
        target, at, value = arguments
        place = builder.bitcast(builder.gep(target, [at]), ir.IntType(32).as_pointer())
        builder.store(value, place, align=1)
        return context.get_dummy_value()

    return types.void(BYTES, types.int64, types.uint32), generate


@helper
def _block_of(character, length):
    """The number of a character of so many bytes."""
    first = character & uint64(0xFF)
    second = (character >> uint64(8)) & uint64(0x3F)
    third = (character >> uint64(16)) & uint64(0x3F)
    if length == 2:
        return int64((first & uint64(0x1F)) << uint64(6) | second)
    if length == 3:
        return int64((first & uint64(0x0F)) << uint64(12) | second << uint64(6) | third)
    fourth = (character >> uint64(24)) & uint64(0x3F)
    return int64((first & uint64(0x07)) << uint64(18) | second << uint64(12) | third << uint64(6) | fourth)


@helper
def _fold(text, size, blocks, folds, folded):
    """Fold a text; returns how long it is then."""
    at = made = 0
    first_block = int64(blocks[0]) << 8
    while at < size:
        if size - at >= 64 and _high(text, at) == uint64(0):
            _fold_64(folded, made, text, at)
            at += 64
            made += 64
            continue
        stop = min(at + 64, size)
        while at < stop:
            word = load64(text, at)
            length = int64((_LENGTHS >> ((word & uint64(0xF0)) >> uint64(2))) & uint64(7))
            if length == 1:
                # Bytes that cannot begin a character are kept, as letters are.
                byte = int64(word & uint64(0xFF))
                folded[made] = uint8(folds[first_block + byte]) if byte < 128 else uint8(byte)
                at += 1
                made += 1
                continue
            length = min(length, size - at)
            number = _block_of(word, length)
            fold = folds[(int64(blocks[number >> 8]) << 8) + (number & 255)] if number >> 8 < _BLOCKS else uint32(KEPT)
            at += length
            if fold == uint32(KEPT):
                _store_4(folded, made, uint32(word))
                made += length
            elif fold == uint32(SEPARATE):
                folded[made] = _SPACE
                _store_4(folded, made + 1, uint32(word))
                folded[made + 1 + length] = _SPACE
                made += length + 2
            else:
                _store_4(folded, made, fold)
                made += int64((_LENGTHS >> ((uint64(fold) & uint64(0xF0)) >> uint64(2))) & uint64(7))
    for i in range(made, made + 128):
        folded[i] = _SPACE
    return made


@helper
def _begin(folded, start, end):
    """How many of the first characters of a word are looked at, and where they end."""
    if end - start >= PREFIX and load64(folded, start) & _HIGH_BITS == uint64(0):
        return PREFIX, start + PREFIX
    characters, at = 0, start
    while at < end and characters < PREFIX:
        lead = uint64(folded[at])
        at += int64((_LENGTHS >> ((lead & uint64(0xF0)) >> uint64(2))) & uint64(7))
        characters += 1
    return characters, min(at, end)


@helper
def _count(bucket, size, counts, touched, found):
    """Count in a bucket; remember it, and the size of the word, the first time."""
    count = counts[bucket]
    counts[bucket] = count + uint32(1)
    touched[found] = bucket | size << 32
    return found + 1 if count == uint32(0) else found


@helper
def _count_words(folded, size, counts, touched):
    """Count the words of a folded text; returns how many buckets that touches."""
    found = 0
    start = int64(-1)
    previous, previous_size = uint64(0), 0
    at = 0
    while at <= size:
        spaces = _spaces(folded, at)
        outside = uint64(1) if start < 0 else uint64(0)
        changes = spaces ^ (spaces << uint64(1) | outside)
        while changes != uint64(0):
            edge = at + trailing_zeros(changes)
            changes &= changes - uint64(1)
            if start < 0:
                start = edge
                continue
            word = piece_hash(folded, start, edge - start)
            characters, end = _begin(folded, start, edge)
            found = _count(int64(word >> _SHIFT), characters, counts, touched, found)
            if characters == PREFIX:
                begin = piece_hash(folded, start, end - start)
                found = _count(BUCKETS + int64(begin >> _SHIFT), characters, counts, touched, found)
            if previous_size > 0:
                pair = mix(previous * K0 + word, K1)
                both = min(previous_size, characters)
                found = _count(2 * BUCKETS + int64(pair >> _SHIFT), both, counts, touched, found)
            previous, previous_size = word, characters
            start = -1
        at += 64
    return found


@helper
def _project(counts, touched, found, roots, sizes, table, sums):
    """Add what the buckets weigh to the entries that they belong to; the counts are zero again."""
    for i in range(found):
        bucket = touched[i] & 0xFFFFFFFF
        count = min(int64(counts[bucket]), COUNTED - 1)
        counts[bucket] = uint32(0)
        entry = int64(table[bucket])
        weight = roots[count] * sizes[touched[i] >> 32] * (entry >> 17)
        sign = -(entry & 1)
        sums[(entry >> 1) & 0xFFFF] += (weight ^ sign) - sign


def kernel(
    texts,
    offsets,
    row_count,
    readable,
    scratch,
    blocks,
    folds,
    folded,
    counts,
    touched,
    roots,
    sizes,
    table,
    dim,
    sums,
    vectors,
    frequencies,
    counting,
):
    """Make the vector of each text, or count in how many texts each bucket has something. Returns 0.

    Args:
        scratch: For a copy of a text at the end of the buffer.
        blocks, folds: What each character becomes: ``folds[256 * blocks[c >> 8] + (c & 255)]``.
        folded: For a folded text.
        counts: Zeros, which stay zeros.
        touched: For the buckets that a text touches.
        roots: The weights of counts.
        sizes: The weights of sizes of words.
        table: For each bucket its weight, the entry it belongs to, and its sign.
        sums: Zeros, which stay zeros.
        frequencies: The number of texts for each bucket, if ``counting`` is 1.
    """
    for row in range(row_count):
        begin = offsets[row]
        size = offsets[row + 1] - begin
        text = readable_text(texts, begin, offsets[row + 1], readable, scratch)
        found = _count_words(folded, _fold(text, size, blocks, folds, folded), counts, touched)
        if counting == 1:
            for i in range(found):
                bucket = touched[i] & 0xFFFFFFFF
                frequencies[bucket] += uint32(1)
                counts[bucket] = uint32(0)
        else:
            _project(counts, touched, found, roots, sizes, table, sums)
            if not write_unit(sums, dim, vectors, row * dim) and found > 0:
                # All entries cancel each other out, which happens to some texts of one word: take the first alone.
                vectors[row * dim + ((int64(table[touched[0] & 0xFFFFFFFF]) >> 1) & 0xFFFF)] = float32(1)
            for i in range(dim):
                sums[i] = 0
    return int64(0)
