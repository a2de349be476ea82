"""Token ids of whole columns, by the kernels for WordPiece and for byte-level byte pair encoding.

Both work on Arrow buffers, release the GIL and make no Python object per text. They give the ids that the package
``tokenizers`` gives, or leave a text out: one with characters whose treatment is not in their tables, one that is not
UTF-8, or one with a piece of more than :data:`LONGEST_PIECE` bytes without a place to split it.
"""

from __future__ import annotations

import collections
import contextlib
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.arguments import Argument
from tamis.kernels.buffers import TextBuffers
from tamis.kernels.signatures import longest_text
from tamis.kernels.token_tables import Crossings, HashTable, Trie

__all__ = [
    "LONGEST_PIECE",
    "NO_IDS",
    "NO_LIMIT",
    "BytePairs",
    "PairRules",
    "TokenIds",
    "TokenKernel",
    "WordPieces",
    "WordRules",
]

Ids: TypeAlias = NDArray[np.int32]

LONGEST_PIECE: Final = 32768
NO_LIMIT: Final = 1 << 61
NO_IDS: Final = np.zeros(0, np.int32)

_CACHE_BITS: Final = 17
"""Of the number of pieces whose tokens are kept: 8 MiB for each thread that tokenises at the same time."""
_ROOM: Final = 1 << 20
"""Ids that are collected at once."""
_SLACK: Final = 8


@dataclass(frozen=True)
class TokenIds:
    """What a kernel has found.

    Args:
        counts: How many ids each text has; 0 for those that are left out.
        ids: The ids of all texts, one after the other; empty if they are only counted.
        left_out: Which texts are left out.
    """

    counts: NDArray[np.int64]
    ids: Ids
    left_out: NDArray[np.bool_]


@dataclass(frozen=True)
class PairRules:
    """How byte-level byte pair encoding splits texts and merges pairs.

    Args:
        crossings: Where tokens reach over the boundary of two characters.
        orders: The canonical combining class of each character; only looked at for those that are to be checked.
        style: How a text is split; see :mod:`tamis.kernels.token_styles`.
        digits: The most characters of a number; 0: any number.
        takes_whole: Whether a piece that is a token becomes that token, whatever the pairs are.
        byte_ids: The id of each byte.
        two_byte_ids: The id of each piece of two bytes that becomes one token; -1 for the others.
        byte_ranks: The rank of each pair of bytes; all bits set where there is none.
        pairs: The rank of each pair of ids.
        merged: The id that the pair of a rank becomes.
    """

    crossings: Crossings
    orders: NDArray[np.uint8]
    style: int
    digits: int
    takes_whole: bool
    byte_ids: Ids
    two_byte_ids: Ids
    byte_ranks: NDArray[np.uint32]
    pairs: HashTable
    merged: Ids


@dataclass(frozen=True)
class WordRules:
    """How WordPiece normalises words.

    Args:
        forms: Where in the pool the normalised form of each character begins, times 16, plus its bytes.
        pool: The normalised forms.
        mark_ids: The id of each character that is a word by itself.
        unknown: The id of a word that cannot be cut into tokens.
        longest_word: The most characters of a word that is cut into tokens.
    """

    forms: NDArray[np.uint32]
    pool: NDArray[np.uint8]
    mark_ids: Ids
    unknown: int
    longest_word: int


class TokenKernel:
    """A tokenizer in the form that a kernel takes. Threads may share it: each call has a table of pieces of its own.

    Args:
        trie: The tokens.
        kinds: Bits of each character; see :mod:`tamis.kernels.token_styles`.
    """

    kernel: ClassVar[str]
    _bitmaps: ClassVar[int]

    def __init__(self, trie: Trie, kinds: NDArray[np.uint8]) -> None:
        self._trie, self._kinds = trie, kinds
        self._idle: collections.deque[NDArray[np.uint8]] = collections.deque()

    def is_ready(self) -> bool:
        """Whether the kernel is compiled."""
        return native.load(self.kernel) is not None

    def tokenise(
        self,
        texts: pa.Array,
        left_out: NDArray[np.bool_],
        *,
        before: Ids = NO_IDS,
        after: Ids = NO_IDS,
        limit: int = NO_LIMIT,
        is_kept: bool = True,
    ) -> TokenIds:
        """The ids of each text.

        Args:
            texts: Texts; a null has those of an empty text.
            left_out: Texts that are not to be tokenised.
            before: The ids that are put before each text.
            after: The ids that are put after each text.
            limit: The most ids of a text, besides these.
            is_kept: Whether to keep the ids, or only to count them.
        """
        kernel = native.load(self.kernel)
        if kernel is None:
            raise RuntimeError(f"the kernel {self.kernel} is not compiled")
        if texts.null_count:
            texts = texts.cast(pa.large_string()).fill_null("")
        buffers = TextBuffers.of(texts)
        rows, longest = len(buffers), longest_text(buffers.offsets)
        added = len(before) + len(after) + _SLACK
        ids = np.empty(max(min(_ROOM, buffers.nbytes + rows * added), longest + added), np.int32)
        words = longest // 64 + 2
        bitmaps, tail = np.empty(self._bitmaps * words, np.uint64), buffers.tail()
        counts, skipped = np.zeros(rows, np.int64), left_out.astype(np.uint8)
        cache, pieces = self._table(), np.empty(96, np.int64)
        parts: list[Ids] = []
        row = 0
        while row < rows:
            until = kernel(
                *(buffers.data, buffers.offsets, rows, len(buffers.data), row, tail, bitmaps, words),
                *(
                    pieces,
                    cache,
                    64 - _CACHE_BITS,
                    before,
                    len(before),
                    after,
                    len(after),
                    min(limit, NO_LIMIT),
                    int(is_kept),
                ),
                *(skipped, counts, ids, len(ids), self._trie.edges.slots, self._trie.edges.shift),
                *(self._trie.tokens, len(self._trie.tokens), self._kinds, *self._arguments()),
            )
            if is_kept:
                parts.append(ids[: int(counts[row:until].sum())])
                ids = np.empty(len(ids), np.int32) if until < rows else ids
            row = until
        self._idle.append(cache)
        return TokenIds(counts, np.concatenate(parts) if parts else NO_IDS, skipped.view(np.bool_))

    def forget(self) -> None:
        """Free the tables of pieces of earlier calls."""
        self._idle.clear()

    def _arguments(self) -> tuple[Argument, ...]:
        """The arguments of the kernel after those that both kernels have."""
        raise NotImplementedError

    def _table(self) -> NDArray[np.uint8]:
        """A table of pieces that no other call uses."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        whole = np.zeros((64 << _CACHE_BITS) + 64, np.uint8)
        first = -whole.ctypes.data % 64  # so that an entry is one line of the processor's cache
        return whole[first : first + (64 << _CACHE_BITS)]


class BytePairs(TokenKernel):
    """Byte-level byte pair encoding.

    Args:
        trie: The tokens.
        kinds: Bits of each character; see :mod:`tamis.kernels.token_styles`.
        rules: The pairs that are merged, and how a text is split.
    """

    kernel = "byte_pairs"
    _bitmaps = 4

    def __init__(self, trie: Trie, kinds: NDArray[np.uint8], rules: PairRules) -> None:
        super().__init__(trie, kinds)
        self._rules = rules

    def _arguments(self) -> tuple[Argument, ...]:
        r = self._rules
        links, ranks = np.empty(3 * LONGEST_PIECE, np.int32), np.empty(LONGEST_PIECE * 17 // 16 + 32, np.uint32)
        return (
            *(
                r.crossings.bits,
                r.crossings.shift,
                r.orders,
                r.style,
                r.digits,
                int(r.takes_whole),
                r.byte_ids,
                r.two_byte_ids,
                r.byte_ranks,
            ),
            *(r.pairs.slots, r.pairs.shift, r.merged, len(r.merged), links, ranks, LONGEST_PIECE),
        )


class WordPieces(TokenKernel):
    """WordPiece.

    Args:
        trie: The tokens; those inside a word begin at node 1.
        kinds: The kind of each character; see :mod:`tamis.kernels.token_styles`.
        rules: How words are normalised.
    """

    kernel = "word_pieces"
    _bitmaps = 2

    def __init__(self, trie: Trie, kinds: NDArray[np.uint8], rules: WordRules) -> None:
        super().__init__(trie, kinds)
        self._rules = rules

    def _arguments(self) -> tuple[Argument, ...]:
        r = self._rules
        word = np.empty(4 * r.longest_word + 16, np.uint8)
        return r.forms, r.pool, len(r.pool), r.mark_ids, r.unknown, r.longest_word, word
