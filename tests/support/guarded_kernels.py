"""Runs a kernel with every array placed against memory that cannot be touched: ``python guarded_kernels.py NAME``.

An access beyond the end or before the begin of an array ends this process. What the kernel gives is compared with what
it gives in ordinary memory. This is done with texts after which nothing follows, so that the kernel must read a copy of
the last ones, and with texts that are followed by as many bytes as it may read.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.kernels import (
    cleaning,
    hamming,
    hashed_words,
    heuristics,
    image_hashes,
    measures,
    minhash,
    native,
    needles,
    operations,
    suspects,
    tokens,
)
from tamis.kernels.bloom import BloomFilter
from tamis.kernels.buffers import PADDING
from tamis.kernels.fasttext import FastTextNetwork
from tamis.kernels.hash_groups import HashGroups
from tamis.kernels.hashing import hash_text_64, hash_text_128
from tamis.kernels.image_measures import count_pixels
from tamis.kernels.languages import LanguageTables, count_letters, quad_hash
from tamis.kernels.lines import line_starts
from tamis.kernels.ngram_features import descend, ngram_vectors
from tamis.kernels.ngram_table import NgramTable, first_keys, longer_keys
from tamis.kernels.resize import RESAMPLINGS, resize
from tamis.kernels.spans import Units, find_anchors, hash_windows, remove_spans
from tamis.kernels.text_units import LINE_BEGIN, LINE_END, UNITS, UNKNOWN, hash_units
from tamis.kernels.token_means import token_means
from tamis.kernels.union_find import Forest, NodeIndex
from tamis.kernels.utf8 import Utf8
from tamis.models.native_tokenizers import SPLITS, NativeTokenizer, native_tokenizer
from tamis.stages.io import json_text
from tamis.stages.io.json_census import Census
from tamis.stages.io.json_flat import parse_flat

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Guarded:
    """Memory between two pages that cannot be touched, with copies of arrays in it."""

    def __init__(self, at_end: bool) -> None:
        self._at_end, self._maps = at_end, []

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A copy directly before the second page, or directly after the first one."""
        whole = -(-max(array.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        size = whole + 2 * mmap.PAGESIZE
        address = _LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        assert address is not None
        assert address != ctypes.c_void_p(-1).value
        self._maps.append((address, size))
        for guard in (address, address + size - mmap.PAGESIZE):
            assert _LIBC.mprotect(guard, mmap.PAGESIZE, 0) == 0
        place = address + mmap.PAGESIZE + (whole - array.nbytes if self._at_end else 0)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * array.nbytes).from_address(place)) if array.nbytes else None
        made = np.ndarray(array.shape, array.dtype, memory) if memory is not None else array.copy()
        made[...] = array
        return made

    def free(self) -> None:
        for address, size in self._maps:
            assert _LIBC.munmap(address, size) == 0


CALLED: set[str] = set()
PLAIN_CALL = native.Kernel.__call__


def guarded_call(kernel: native.Kernel, *arguments: Any) -> int:
    """Call a kernel in guarded memory, and copy what it wrote to where it was meant to be."""
    CALLED.add(kernel.name)
    results = []
    for at_end in (False, True):
        memory = Guarded(at_end)
        copies = [_copied(memory, argument) for argument in arguments]
        results.append(PLAIN_CALL(kernel, *copies))
        if at_end:
            for argument, copy in zip(arguments, copies, strict=True):
                _write_back(argument, copy)
        memory.free()
    assert results[0] == results[1]
    return results[0]


def _copied(memory: Guarded, argument: Any) -> Any:
    if isinstance(argument, list):
        return [None if each is None else memory.copy(each) for each in argument]
    return memory.copy(argument) if isinstance(argument, np.ndarray) else argument


def _write_back(argument: Any, copy: Any) -> None:
    if isinstance(argument, list):
        for one, other in zip(argument, copy, strict=True):
            _write_back(one, other)
    elif isinstance(argument, np.ndarray) and argument.flags.writeable:
        argument[...] = copy


PIECES = (
    *("a", "b", " ", " ", "\n", "\n\n\n", "\t", "\r\n", "word ", "the ", "http://x.io/", "www.", "lorem ipsum "),
    *("#", "...", "…", "é", "日本", "\u2019", "\u201c", "\uff02", "\u00a0", "\u3000", "\U0001f600", "\u212a", "•"),
    *("&amp;", "<", "&", "**b**", "_i_", "[x](y)", '"', "\\", "__label__", "1234", "e\u0301", "\x00", "\x7f", "\x85"),
    *("privacy policy", "â€™"),
)


def texts_for(chance: random.Random) -> Iterator[list[str]]:
    """Lists of texts: short ones of every size, and long ones."""
    for size in (*range(10), *(around + i for around in (16, 64, 128, 192, 256) for i in (-1, 0, 1))):
        yield ["a" * chance.randint(0, 70), ("x" * 40 + "ab cd\n" * 40)[:size]]
    for _ in range(20):
        yield ["".join(chance.choices(PIECES, k=chance.randint(0, 60))) for _ in range(chance.randint(0, 6))]


def column_of(texts: list[str], padding: int) -> pa.Array:
    """Texts in a buffer that ends so many bytes after them."""
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    data = b"".join(encoded) + (b"\0" + b"\xe2" * 1000)[:padding]
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(data))


def run_heuristics(column: pa.Array) -> Any:
    single = [heuristics.Check(measure) for measure in range(measures.HASH_SIGNS)]
    ngrams = [f(n) for n in (1, 2, 5, 20) for f in (measures.top_ngram_characters, measures.repeated_ngram_characters)]
    texts, rows = Utf8.from_arrow(column), np.arange(len(column))
    results = []
    for checks in (single, [heuristics.Check(ngram, measures.CHARACTERS) for ngram in ngrams]):
        checked = heuristics.run_checks(texts, rows, checks)
        assert checked is not None
        results.append((checked.scores.tolist(), checked.failed.tolist()))
    return results


CLEANINGS = [
    *map(cleaning.Cleaning, (*range(operations.LINES), operations.QUOTED)),
    cleaning.remove_lines(["", "a", "ab cd", "x" * 59]),
    cleaning.remove_lines([chr(97 + i) * (i + 1) for i in range(20)]),
    cleaning.put_label("__label__x"),
    *(
        cleaning.take_slice(left, right, inclusive, inclusive, strip=True)
        for left, right in (("a", "b"), (2, -3), (None, "cd"), ("\n", None), ("", ""))
        for inclusive in (False, True)
    ),
]


def run_cleaning(column: pa.Array) -> Any:
    return [cleaning.clean_array(column, each).to_pylist() for each in CLEANINGS]


NEEDLES = [
    needles.Needles.of(needles.exactly("b"), needles.any_case("the word"), where=operations.ANYWHERE),
    needles.Needles.of(needles.digits(4), where=operations.NEAR_DIGITS),
    needles.Needles.of(needles.exactly("x" * 64), needles.exactly("a"), where=operations.IN_LONG_WORDS),
]


def run_needles(column: pa.Array) -> Any:
    return [needles.rows_with(column, each).tolist() for each in NEEDLES]


def _characters(members: str) -> np.ndarray:
    mask = np.zeros(suspects.KINDS, np.bool_)
    mask[[min(ord(member), suspects.KINDS - 1) for member in members]] = True
    return mask


PATTERNS = suspects.Patterns.of(
    [[_characters("â"), _characters("€"), _characters("™")], [_characters("ab"), _characters("é")]], [False, True]
)


def run_suspects(column: pa.Array) -> Any:
    return [
        suspects.find_lines(column, PATTERNS, marks, entities, longest).tolist()
        for marks in (None, suspects.marks_of("NFC"))
        for entities in (0, 1, 2)
        for longest in (10, 1 << 40)
    ]


class Lines:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: memoryview) -> None:
        self.written += bytes(data)


def run_json_text(column: pa.Array) -> Any:
    sink = Lines()
    nulls = pa.array([None if i % 3 == 1 else i for i in range(len(column))], pa.int64())
    table = pa.table({"text": column, "n": nulls, "other": column})
    assert json_text.write_rows(table, sink, lambda table: memoryview(b""))
    return sink.written


def run_xxh3(column: pa.Array) -> Any:
    return hash_text_64(column).tolist(), hash_text_128(column).tolist()


SCHEMES = [
    minhash.MinHash(num_hashes, ngram, unit, scheme, bits=bits)
    for num_hashes, scheme, bits in ((20, "fast", 32), (100, "fast", 64), (33, "classic", 32), (5, "classic", 64))
    for ngram, unit in ((5, "character"), (200, "character"), (1, "word"), (3, "word"))
]


def run_minhash(column: pa.Array) -> Any:
    minhash._ROOM = 64  # so that texts are taken in several parts
    return [each.signatures(column).tolist() for each in SCHEMES]


def run_shingles(column: pa.Array) -> Any:
    minhash._ROOM = 64
    return [each.shingles(column).to_pylist() for each in SCHEMES[:4]]


def run_jaccard(column: pa.Array) -> Any:
    minhash._ROOM = 64
    return [each.jaccard(column, column[::-1]).tolist() for each in SCHEMES[:4]]


def run_hashed_words(column: pa.Array) -> Any:
    vectors = [hashed_words.HashedWords(dim).vectors(column).tolist() for dim in (1, 6, 64)]
    return vectors, np.flatnonzero(hashed_words.fit_rarity([column])).tolist()


def run_token_means(column: pa.Array) -> Any:
    texts = Utf8.from_arrow(column)
    rng = np.random.default_rng(len(texts.data))
    found = []
    for dim, most_tokens in ((1, 1 << 40), (7, 10), (64, 1)):
        table = rng.standard_normal((97, dim)).astype(np.float32)
        counted = (np.arange(97) % 5 > 0).astype(np.uint8)
        for normalize in (False, True):
            ids = texts.data.astype(np.int32) - 9
            means = token_means(ids, texts.offsets, table, counted, most_tokens=most_tokens, normalize=normalize)
            found.append([part.tolist() for part in means])
    return found


def run_bands(column: pa.Array) -> Any:
    values = np.arange(6 * len(column)).reshape(-1, 6)
    return [minhash.band_hashes(values.astype(kind), 2).tolist() for kind in (np.uint32, np.uint64)]


def units_of(column: pa.Array) -> Iterator[Units]:
    texts = Utf8.from_arrow(column)
    yield Units(texts.data, texts.offsets)
    yield Units(texts.data.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), texts.offsets)


def run_anchors(column: pa.Array) -> Any:
    found = [
        anchors
        for units in units_of(column)
        for window, room in ((1, 1000), (5, 40), (64, 1000), (300, 1000))
        for anchors in find_anchors(units, window, room)
    ]
    return [[part.tolist() for part in (a.keys, a.spans, a.starts, a.counts)] for a in found]


def run_window_hashes(column: pa.Array) -> Any:
    results = []
    for units in units_of(column):
        for window in (1, 7, 70):
            has_windows = np.diff(units.offsets) >= window
            starts, counts = units.offsets[:-1][has_windows], np.diff(units.offsets)[has_windows] - window + 1
            results.append(hash_windows(units, window, starts, counts).tolist())
    return results


def run_hash_order(column: pa.Array) -> Any:
    hashes = hash_text_64(pa.concat_arrays([column, column]))
    groups = [HashGroups.of(keys) for keys in ((hashes,), (hashes >> np.uint64(62), hashes))]
    return [(each.order.tolist(), each.is_new.tolist()) for each in groups]


def run_span_removal(column: pa.Array) -> Any:
    texts = Utf8.from_arrow(column)
    begins, ends = texts.offsets[:-1], texts.offsets[1:]
    spans = [(begins[:0], ends[:0]), (begins, ends), (begins, (begins + ends) // 2), ((begins + ends) // 2, ends)]
    return [[part.tolist() for part in remove_spans(texts.data, texts.offsets, *each)] for each in spans]


def json_lines_of(column: pa.Array) -> Iterator[bytes]:
    rows = [{"text": text, "n": i, "f": i / 7, "b": None, "é": True} for i, text in enumerate(column.to_pylist())]
    plain = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    escaped = "\n \r\n".join(json.dumps(row) for row in rows)
    nested = "\n".join(json.dumps({"text": [row, [[row]]], "é": row}) for row in rows)
    for whole in (plain, escaped, nested):
        yield whole.encode()
        yield whole.encode()[: -len(whole) // 3]
        yield whole.encode() + b" " * 200


def on_lines(run: Callable[[bytes], Any]) -> Callable[[pa.Array], Any]:
    return lambda column: [run(data) for data in json_lines_of(column)]


def run_json_rows(data: bytes) -> Any:
    tables = [parse_flat(data, fields) for fields in (None, ["n", "text"])]
    return [None if table is None else table.to_pylist() for table in tables]


def run_json_census(data: bytes) -> Any:
    return Census.of(data), Census.of(data, [b"text", "é".encode()])


def edges_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Edges between 40 nodes, as many as there are bytes."""
    data = np.frombuffer("".join(column.to_pylist()).encode(), np.uint8).astype(np.int64)
    return data % 40, np.roll(data, 1) // 3 % 40


def run_components(dtype: type[np.integer[Any]]) -> Callable[[pa.Array], Any]:
    def run(column: pa.Array) -> Any:
        forest = Forest(40)
        forest._parents = forest._parents.astype(dtype)  # the wide kernel is for more nodes than a test has
        return forest.join(*edges_of(column)).tolist(), forest.roots().tolist()

    return run


def run_node_index(column: pa.Array) -> Any:
    index = NodeIndex()
    rows = np.arange(2000, dtype=np.uint64) * np.uint64(len(column) + 1)  # more than its first table holds
    return index.number(edges_of(column)[0].astype(np.uint64)).tolist(), index.number(rows).tolist(), len(index)


def run_bloom(column: pa.Array) -> Any:
    return BloomFilter(len(column) + 1, 0.1).add(hash_text_64(column)).tolist()


@functools.cache
def native_tokenizers(name: str) -> list[NativeTokenizer]:
    """Small tokenizers of all kinds for a kernel."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokens._CACHE_BITS = 6  # so that little is kept
    pattern = next(pattern for pattern, (_, digits) in SPLITS.items() if digits == 3)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    byte_level = functools.partial(pre_tokenizers.ByteLevel, add_prefix_space=False)
    made = []
    for variant in range(3):
        if name == "word_pieces":
            inner = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=(100, 5, 0)[variant]))
            inner.normalizer = normalizers.BertNormalizer(lowercase=variant > 0, clean_text=variant < 2)
            inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            trainer: Any = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]"], show_progress=False)
        else:
            inner = Tokenizer(models.BPE(ignore_merges=variant == 1))
            inner.normalizer = normalizers.NFC() if variant == 1 else None
            splits = byte_level(use_regex=variant == 0)
            inner.pre_tokenizer = pre_tokenizers.Sequence([split, splits]) if variant == 1 else splits
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
        inner.train_from_iterator(list(PIECES) * 3, trainer)
        inner.post_processor = processors.TemplateProcessing("a $A a a", None, [("a", 1)])
        found = native_tokenizer(inner)
        assert found is not None
        made.append(found)
    return made


def run_tokens(name: str) -> Callable[[pa.Array], Any]:
    def run(column: pa.Array) -> Any:
        results = []
        for tokenizer in native_tokenizers(name):
            for is_special, most, is_kept in ((False, None, True), (True, 3, True), (True, None, False)):
                found = tokenizer.tokenise(column, is_special, most, is_kept)
                results.append((found.counts.tolist(), found.ids.tolist(), found.left_out.tolist()))
        return results

    return run


def run_image_measures(column: pa.Array) -> Any:
    data = np.frombuffer("".join(column.to_pylist()).encode() or b"abc", np.uint8)
    pictures = [np.resize(data, (height, width, 3)) for height in (1, 2, 5) for width in (1, 3, 40)]
    counted = [count_pixels(picture // shades * shades) for picture in pictures for shades in (1, 100)]
    return [[part.tolist() for part in (each.luma, each.spread, each.colors, each.sums)] for each in counted]


def run_text_units(column: pa.Array) -> Any:
    return [[part.tolist() for part in hash_units(column, unit, marks)] for unit in UNITS for marks in (False, True)]


def run_ngram_features(column: pa.Array) -> Any:
    found = [ngram_vectors(column, unit, longest, 12) for unit, longest in (("token", 2), ("character", 5))]
    return [(each.slots.tolist(), each.values.tolist(), each.ends.tolist()) for each in found]


def run_sparse_product(column: pa.Array) -> Any:
    vectors = ngram_vectors(column, "token", 2, 12)
    weights = np.arange(3 * 4096, dtype=np.float32).reshape(-1, 3)
    return vectors.times(weights).tolist()


def run_sparse_step(column: pa.Array) -> Any:
    vectors = ngram_vectors(column, "token", 2, 10)
    weights, squares = np.ones((1024, 2), np.float32), np.zeros((1024, 2), np.float32)
    rows = np.arange(len(vectors))[::-1].copy()
    descend(vectors, rows, np.linspace(-1, 1, 2 * len(rows)).reshape(-1, 2), weights, squares, 0.5, 0.01)
    return weights.tolist(), squares.tolist()


def run_ngram_scores(column: pa.Array) -> Any:
    marks = np.array([LINE_END, UNKNOWN, LINE_BEGIN], np.uint64)
    units = np.append(np.unique(hash_units(pa.array(["a b word the x"]), "token")[0]), marks)
    pairs = longer_keys(np.repeat(first_keys(units), len(units)), np.tile(units, len(units)))
    keys = np.concatenate([first_keys(units), pairs[::2]])
    logs = -np.linspace(0.1, 5, len(keys))
    tables = [
        NgramTable.build(3, keys, logs, logs / 7, closed, exact) for closed in (True, False) for exact in (True, False)
    ]
    return [[part.tolist() for part in table.score(*hash_units(column, "token", line_marks=True))] for table in tables]


def network(buckets: int, word_ngrams: int, kept: bool, sums_words: bool) -> FastTextNetwork:
    """A fastText model with made weights, of 12 words and 3 labels; ``sums_words`` as for a softmax."""
    words = [
        b"</s>",
        b"word",
        b"the",
        "é".encode(),
        b"ab",
        b"x" * 40,
        b"http://x.io/word",
        b"cd",
        b"1234",
        b"b",
        b"#",
        b"a",
    ]
    entries = [*words, b"__label__x", b"__label__y", b"__label__" + b"z" * 20]
    chance = np.random.default_rng(buckets)
    numbers = chance.integers(-1, buckets - 3, buckets).astype(np.int32) if kept else None
    return FastTextNetwork(
        words=np.frombuffer(b"".join(entries) + bytes(8), np.uint8),
        word_ends=np.cumsum([len(entry) for entry in entries]),
        word_count=len(words),
        least=1,
        most=3,
        word_ngrams=word_ngrams,
        buckets=buckets,
        kept=numbers,
        vectors=chance.standard_normal((len(words) + buckets - (3 if kept else 0), 24), np.float32),
        weights=chance.standard_normal((24, 3), np.float32),
        scales=np.ones(3, np.float32),
        sums_words=sums_words,
    )


def run_fasttext(column: pa.Array) -> Any:
    texts = Utf8.from_arrow(column)
    ends = np.minimum(texts.offsets[1:], texts.offsets[:-1] + 500)
    return [
        [(outputs.tolist(), counts.tolist()) for outputs, counts in each.outputs(texts.data, texts.offsets, ends)]
        for each in (network(50, 1, False, True), network(7, 3, False, False), network(50, 2, True, True))
    ]


def language_tables() -> LanguageTables:
    """Tables with made values, in which every kind of character occurs."""
    chance = np.random.default_rng(0)
    characters = np.arange(0x10000, dtype=np.uint32)
    code_points = np.arange(0x10000)
    kinds = np.where(code_points < 0x300, 1, 2 + code_points % 7)
    is_letter = (code_points >= 0x80) | np.isin(
        code_points, list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    )
    characters |= (kinds << 16 | np.where(kinds == 3, 5, 0) << 20).astype(np.uint32)
    characters[0x41:0x5B] += 32
    characters[~is_letter] = 0
    slots, key_mask = np.zeros(64, np.uint32), 0xFFFFFC00
    for place, quad in enumerate((b"word", b"the", b"ab", b"cd", b"xxxx", "é".encode(), b"lore", b"ipsu"), start=1):
        for is_first, is_last in ((True, True), (True, False), (False, True), (False, False)):
            value = quad_hash(quad, is_first, is_last)
            slots[4 * (value + (value >> 12) & 15) + place % 4] = value & key_mask | place
    return LanguageTables(
        codes=("zh", "zh-Hant", "ja", "ko", "a", "b", "c", "und"),
        characters=characters,
        slots=slots,
        key_mask=key_mask,
        values=chance.integers(0, 1 << 32, 1 << 10, np.uint32),
        languages=(np.arange(512) % 8).astype(np.int32),
    )


def run_languages(column: pa.Array) -> Any:
    column = pa.concat_arrays([column, pa.array(["ab cd é " * 200 + "x" * 900], column.type)])
    texts = Utf8.from_arrow(column)
    found = count_letters(texts.data, texts.offsets, texts.offsets[1:], language_tables())
    return [part.tolist() for part in (found.language, found.nbytes, found.letters, found.is_sure)]


def run_resize(column: pa.Array) -> Any:
    data = np.frombuffer("".join(column.to_pylist()).encode()[:30_000] + b"some more", np.uint8)
    found = []
    for width in (1, 5, 40):
        pixels = data[: len(data) // (3 * width) * 3 * width].reshape(-1, width, 3)
        if len(pixels):
            sizes = ((1, 1), (7, 30), (70, 9), (width, 3))
            found += [resize(pixels, *size, way).tolist() for size in sizes for way in RESAMPLINGS]
            found.append(resize(pixels, 40, 50, crop=(3, 4, 37, 21)).tolist())
    return found


def pictures_of(column: pa.Array) -> Iterator[np.ndarray]:
    """Pictures of some shapes from the bytes of texts."""
    data = np.frombuffer(("".join(column.to_pylist()) + "picture" * 9).encode(), np.uint8)
    for height, width in ((1, 1), (3, len(data) // 9), (len(data) // 9, 3), (40, 33)):
        yield np.resize(data, (height, width, 3))


def run_image_hashes(column: pa.Array) -> Any:
    return [image_hashes.image_hash(pixels, kind) for pixels in pictures_of(column) for kind in image_hashes.KINDS]


def run_hamming(column: pa.Array) -> Any:
    hamming._ROOM, hamming._LARGE_ROOM, hamming._MOST_IN_RUN = 5, 2, 9
    hashes = np.resize(hash_text_64(column), 24) & np.uint64(0xFF00FF00FF0F) if len(column) else np.zeros(0, np.uint64)
    return [[part.tolist() for part in hamming.similar_pairs(hashes, distance)] for distance in (0, 3)]


RUNS: dict[str, Callable[[pa.Array], Any]] = {
    "heuristics": run_heuristics,
    "cleaning": run_cleaning,
    "needles": run_needles,
    "byte_pairs": run_tokens("byte_pairs"),
    "word_pieces": run_tokens("word_pieces"),
    "suspects": run_suspects,
    "json_text": run_json_text,
    "bloom": run_bloom,
    "components": run_components(np.int64),
    "components_32": run_components(np.int32),
    "node_index": run_node_index,
    "xxh3": run_xxh3,
    "shingles": run_shingles,
    "minhash": run_minhash,
    "jaccard": run_jaccard,
    "bands": run_bands,
    "hashed_words": run_hashed_words,
    "resize": run_resize,
    "token_means": run_token_means,
    "anchors": run_anchors,
    "window_hashes": run_window_hashes,
    "hash_order": run_hash_order,
    "span_removal": run_span_removal,
    "text_units": run_text_units,
    "ngram_features": run_ngram_features,
    "sparse_product": run_sparse_product,
    "sparse_step": run_sparse_step,
    "ngram_scores": run_ngram_scores,
    "fasttext": run_fasttext,
    "fasttext_words": run_fasttext,
    "languages": run_languages,
    "image_measures": run_image_measures,
    "json_rows": on_lines(run_json_rows),
    "json_census": on_lines(run_json_census),
    "grey_thumbnail": run_image_hashes,
    "dct_hash": run_image_hashes,
    "hamming_order": run_hamming,
    "hamming_pairs": run_hamming,
    "line_starts": on_lines(lambda data: line_starts(data).tolist()),
}
"""How each kernel is reached."""


def main(name: str) -> None:
    run, every = RUNS[name], 3 if name.startswith(("json", "byte_pairs", "word_pieces")) else 1
    for texts in list(texts_for(random.Random(name)))[::every]:
        native.Kernel.__call__ = PLAIN_CALL
        expected = run(column_of(texts, 1000))
        native.Kernel.__call__ = guarded_call
        for padding in (0, PADDING):
            assert run(column_of(texts, padding)) == expected
    print(*sorted(CALLED))  # noqa: T201 - what the test looks at


if __name__ == "__main__":
    main(sys.argv[1])
