"""The files that Megatron-LM trains on: token ids in ``.bin``, and the place of each sequence in ``.idx``.

An index is, little-endian: the magic ``MMIDIDX`` and two zero bytes, the version (uint64, 1), a code for the type of
the ids (uint8), the number of sequences (uint64) and of document bounds (uint64), the length of each sequence in tokens
(int32), its first byte (int64), and the number of the first sequence of each document, closed by the number of
sequences (int64).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.tasks.storage import temporary_beside

__all__ = ["MegatronPair", "merge_file_prefixes", "token_type", "write_index"]

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEAD = struct.Struct("<9sQBQQ")
_TYPES: dict[int, Any] = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float64,
    7: np.float32,
    8: np.uint16,
}


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The type that ids of a vocabulary are written in: two bytes if that is enough, else four.

    >>> token_type(65536), token_type(65537)
    (dtype('uint16'), dtype('int32'))
    """
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


def write_index(
    sink: BinaryIO, lengths: NDArray[np.int64], kind: np.dtype[Any], documents: NDArray[np.int64] | None = None
) -> None:
    """Write the index of sequences that follow one another.

    Args:
        sink: The file.
        lengths: The length of each sequence, in tokens.
        kind: The type of the ids.
        documents: The number of the first sequence of each document, and of sequences; each is a document by default.
    """
    documents = np.arange(len(lengths) + 1) if documents is None else documents
    (code,) = [code for code, known in _TYPES.items() if np.dtype(known) == kind]
    sink.write(_HEAD.pack(_MAGIC, _VERSION, code, len(lengths), len(documents)))
    sink.write(lengths.astype("<i4").tobytes())
    sink.write(((np.cumsum(lengths) - lengths) * kind.itemsize).astype("<i8").tobytes())
    sink.write(documents.astype("<i8").tobytes())


@dataclass(frozen=True)
class MegatronPair:
    """A ``.bin`` and its ``.idx``, to be read.

    Args:
        prefix: Their path without the ending.
        lengths: The length of each sequence, in tokens.
        pointers: The first byte of each sequence.
        documents: The number of the first sequence of each document, followed by the number of sequences.
        tokens: All ids, mapped from the file.
    """

    prefix: str
    lengths: NDArray[np.int32]
    pointers: NDArray[np.int64]
    documents: NDArray[np.int64]
    tokens: NDArray[Any]

    @classmethod
    def open(cls, prefix: str) -> MegatronPair:
        """Open a pair on a local disk; an error if the two files do not match."""
        path = f"{prefix}.idx"
        with open(path, "rb") as file:  # noqa: PTH123 - plain open is enough
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                raise DataError("this is not an index of Megatron-LM", path=path)
            _, version, code, sequences, bounds = _HEAD.unpack(head)
            if version != _VERSION or code not in _TYPES:
                raise DataError(f"version {version} with type {code} is not supported", path=path)
            body = file.read()
        if len(body) != 12 * sequences + 8 * bounds:
            raise DataError(f"its {_HEAD.size + len(body)} bytes do not fit the counts in its header", path=path)
        lengths = np.frombuffer(body, "<i4", sequences)
        pointers = np.frombuffer(body, "<i8", sequences, 4 * sequences)
        documents = np.frombuffer(body, "<i8", bounds, 12 * sequences)
        kind = np.dtype(_TYPES[code]).newbyteorder("<")
        size = os.path.getsize(f"{prefix}.bin")
        if size != int(lengths.sum(dtype=np.int64)) * kind.itemsize:
            raise DataError(f"its {size} bytes do not fit {path}", path=f"{prefix}.bin")
        tokens = np.memmap(f"{prefix}.bin", kind, mode="r") if size else np.zeros(0, kind)
        return cls(prefix, lengths, pointers, documents, tokens)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> NDArray[Any]:
        """The ids of one sequence."""
        start = int(self.pointers[number]) // self.tokens.itemsize
        return self.tokens[start : start + int(self.lengths[number])]


def merge_file_prefixes(prefixes: Sequence[str], output_prefix: str) -> MegatronPair:
    """Join several pairs into one, in the order given. The ids are copied as they are, in bounded memory.

    Args:
        prefixes: Paths of the pairs, without the endings.
        output_prefix: Path of the result, without the ending. It appears when it is complete.
    """
    if isinstance(prefixes, str) or not prefixes:
        raise ValueError(f"merge_file_prefixes(prefixes={prefixes!r}): give a list of paths without .bin and .idx")
    pairs = [MegatronPair.open(prefix) for prefix in prefixes]
    kinds = {pair.tokens.dtype for pair in pairs}
    if len(kinds) > 1:
        raise DataError(
            f"the pairs hold ids of different types: {', '.join(sorted(map(str, kinds)))}",
            hint="They were made with tokenizers of different sizes.",
        )
    before = np.cumsum([0, *(len(pair) for pair in pairs)])
    documents = [pair.documents[:-1] + first for pair, first in zip(pairs, before, strict=False)]
    lengths = np.concatenate([pair.lengths for pair in pairs]).astype(np.int64)
    with temporary_beside(f"{output_prefix}.bin") as ids, temporary_beside(f"{output_prefix}.idx") as index:
        with open(ids, "wb") as sink:  # noqa: PTH123 - plain open is enough
            for prefix in prefixes:
                with open(f"{prefix}.bin", "rb") as file:  # noqa: PTH123 - plain open is enough
                    shutil.copyfileobj(file, sink, 2**20)
        with open(index, "wb") as sink:  # noqa: PTH123 - plain open is enough
            write_index(sink, lengths, kinds.pop(), np.concatenate([*documents, before[-1:]]))
        # The index comes last, and that of an earlier pair is removed first: without an index there is no pair.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{output_prefix}.idx")
        os.replace(ids, f"{output_prefix}.bin")
        os.replace(index, f"{output_prefix}.idx")
    return MegatronPair.open(output_prefix)
