"""A random number for each row that follows from what identifies the row, not from the worker or the time."""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from tamis.stages.column_values import read_column
from tamis.stages.exchange import hash_rows
from tamis.stages.io.arguments import check_names
from tamis.tasks import DocumentBatch, RowNames
from tamis.tasks.storage import format_order

__all__ = ["as_shares", "check_identity", "name_keys", "row_keys", "scrambled"]

Keys = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)


def row_keys(batch: DocumentBatch, id_fields: list[str] | None, seed: int, purpose: str) -> Keys:
    """A 64-bit number for each row, spread evenly: a hash of the seed and of what identifies the row.

    Without ``id_fields`` that is its name: the file it comes from, without the directory, and its position there. It
    is the same on every executor, for any number of workers, however the input is cut into batches. With them it is
    the values of these columns, in whatever file the row is.

    Args:
        batch: The rows.
        id_fields: The columns that identify a row.
        seed: Another seed gives other numbers.
        purpose: What they are for. Numbers for one purpose say nothing about those for another.

    >>> batch = DocumentBatch({"id": ["a", "b"]})
    >>> here, there = row_keys(batch, ["id"], 1, "x"), row_keys(batch.select([1]), ["id"], 1, "x")
    >>> bool(here[1] == there[0]), bool(here[0] == here[1])
    (True, False)
    """
    if id_fields is None:
        return name_keys(batch.names or RowNames.numbered(format_order(batch.order), batch.num_items), purpose, seed)
    for column in id_fields:
        read_column(batch.data, column, purpose)
    begin = xxhash.xxh3_64_intdigest(f"{purpose}\x1f{seed}".encode())
    return scrambled(hash_rows(batch.data, id_fields) + np.uint64(begin))


def name_keys(names: RowNames, purpose: str, seed: int) -> Keys:
    """A 64-bit number for each row that follows from its name.

    >>> name_keys(RowNames.numbered("a/x.jsonl", 1), "p", 0) == name_keys(RowNames.numbered("b/x.jsonl", 1), "p", 0)
    array([ True])
    """
    begins = np.array(
        [_hash(f"{purpose}\x1f{seed}\x1f{source.rpartition('/')[2]}") for source in names.sources], np.uint64
    )
    keys = begins[0 if names.codes is None else names.codes] + names.positions.astype(np.uint64) * _STEP
    if names.parts is not None:
        keys = scrambled(keys) + np.array([_hash(part) if part else 0 for part in names.parts.to_pylist()], np.uint64)
    return scrambled(keys)


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def check_identity(owner: str, id_fields: list[str] | None, seed: int) -> None:
    """Refuse what is not a list of columns, and a seed that is not an integer."""
    check_names(owner, "id_fields", id_fields)
    if not isinstance(seed, int):
        raise TypeError(f"{owner}(seed={seed!r}): must be a whole number")


def scrambled(numbers: Keys) -> Keys:
    """The last step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit depends on every bit."""
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def as_shares(keys: Keys) -> NDArray[np.float64]:
    """Keys as numbers from 0 up to but not 1: the 53 bits that a float holds exactly."""
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
