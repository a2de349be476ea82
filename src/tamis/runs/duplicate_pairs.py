"""Duplicates at another threshold, from the pairs that a run compared: no text is read again."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.kernels.components import Components
from tamis.kernels.hashing import hash_text_64
from tamis.runs import figures
from tamis.runs.duplicate_sources import parts_of
from tamis.runs.pages.run_view import RunView
from tamis.runs.ranked_pairs import ranked_removals

__all__ = ["Rethresholded", "recorded_pairs", "rethresholded"]

_MEMORY: Final = 2**30
_COLUMNS: Final = ("left", "right", "similarity", "left_rank", "right_rank")

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Rethresholded:
    """What another threshold would remove.

    Args:
        threshold: The least similarity of a pair that is joined.
        rows: The rows that would be removed: ``removed`` and ``kept``, the name of the row kept in its place.
        newly_kept: The names of rows that were removed and would stay.
        newly_removed: The names of rows that stayed and would be removed: for example because the row that stays of
            their group is another one.
    """

    threshold: float
    rows: pa.Table
    newly_kept: pa.Array
    newly_removed: pa.Array

    @property
    def removed(self) -> int:
        """How many rows would be removed."""
        return int(self.rows.num_rows)

    def __repr__(self) -> str:
        return (
            f"Rethresholded(at {self.threshold:g}: {figures.number(self.removed)} rows removed, "
            f"{figures.number(len(self.newly_kept))} newly kept, "
            f"{figures.number(len(self.newly_removed))} newly removed)"
        )


def recorded_pairs(view: RunView, stages: Sequence[str], threshold: float, pairs: str = "") -> tuple[str, str]:
    """The folder of the pairs that a run compared, and which rows remove others, if they are ranked.

    That is ``"kept"`` or ``"all"``; an empty text where similar rows form groups.

    Raises:
        DataError: There are none, or the threshold is below the one of the run: less similar pairs were not recorded.
    """
    if not 0 < threshold <= 1:
        raise DataError(f"threshold={threshold}: a similarity is more than 0 and at most 1")
    found: dict[str, dict[str, Any]] = {}
    for vertex in view.outline.get("vertices", ()):
        parameters = vertex["parameters"]
        if "pairs_path" in parameters and "threshold" in parameters:
            names = ("pairs_path", "threshold", "compare_with")
            values = {name: _literal(parameters.get(name, "''")) for name in names}
            found[str(vertex["name"]).removesuffix(" (compare)")] = values
    own = {name: values for name, values in found.items() if name in stages and values["pairs_path"]}
    if not pairs:
        if len(own) != 1:
            problem = "several stages recorded pairs: name one" if own else "the run recorded no pairs of documents"
            hint = (
                "FuzzyDeduplication(verify=0.6, pairs_path=...) and SemanticDeduplication(pairs_path=...) record them: "
                "--verify 0.6 --pairs-path DIR, --pairs-path DIR."
            )
            raise DataError(problem, path=view.path, hint=hint)
        pairs = str(next(iter(own.values()))["pairs_path"])
    compare_with = next((str(values["compare_with"]) for values in own.values() if values["compare_with"]), "")
    lowest = [values["threshold"] for values in own.values() if isinstance(values["threshold"], float)]
    if lowest and np.float32(threshold) < np.float32(min(lowest)):
        least = min(lowest)
        setting, change = (
            (f"eps={1 - least:g}", "larger eps") if compare_with else (f"verify={least:g}", "lower verify")
        )
        raise DataError(
            f"threshold={threshold:g}: the run compared with {setting}, less similar pairs were not recorded",
            path=view.path,
            hint=f"Run it again with a {change}.",
        )
    return pairs, compare_with


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def rethresholded(
    folder: str, threshold: float, removed_before: Iterable[pa.Array], compare_with: str = ""
) -> Rethresholded:
    """The rows that would be removed if pairs were joined from a similarity on.

    Args:
        folder: The folder with the pairs, as Parquet.
        threshold: The least similarity.
        removed_before: The names of the rows that were removed, some at a time.
        compare_with: Of ranked rows, which remove others: ``"kept"`` or ``"all"``.
    """
    if compare_with:
        table = ranked_removals(folder, threshold, compare_with == "kept")
    else:
        nodes, groups = _components(folder, threshold)
        kept, kept_names = _kept(folder, threshold, nodes, groups)
        table = _removed(folder, threshold, nodes, groups, kept, kept_names)
    now = np.sort(hash_text_64(table.column("removed")))
    before, stay = [np.zeros(0, np.uint64)], [pa.array([], pa.string())]
    for names in removed_before:
        hashes = hash_text_64(names)
        before.append(hashes)
        stay.append(names.filter(arrow_array(~_is_in(hashes, now))))
    was_removed = _is_in(hash_text_64(table.column("removed")), np.sort(np.concatenate(before)))
    newly = table.column("removed").filter(arrow_array(~was_removed)).combine_chunks()
    return Rethresholded(threshold, table, _sorted(pa.concat_arrays(stay)), _sorted(_one(newly)))


def _components(folder: str, threshold: float) -> tuple[Hashes, Hashes]:
    """The hashed names of the rows that have a similar one, sorted, and the group of each."""
    found = []
    with tempfile.TemporaryDirectory(prefix="tamis-pairs-") as scratch, Components(_MEMORY, scratch) as components:
        for batch in _read(folder, threshold):
            components.add(hash_text_64(batch.column("left")), hash_text_64(batch.column("right")))
        found = list(components.members())
    empty = np.zeros(0, np.uint64)
    return np.concatenate([empty, *(n for n, _ in found)]), np.concatenate([empty, *(g for _, g in found)])


def _kept(folder: str, threshold: float, nodes: Hashes, groups: Hashes) -> tuple[Hashes, pa.Array]:
    """Of each group the row that stays, by rank and then by name: their groups, sorted, and their names."""
    best: pa.Table | None = None
    for batch in _read(folder, threshold):
        for side in ("left", "right"):
            names = batch.column(side)
            group = groups[np.searchsorted(nodes, hash_text_64(names))]
            some = pa.table({"group": arrow_array(group), "rank": batch.column(f"{side}_rank"), "name": names})
            both = some if best is None else pa.concat_tables([best, some])
            parts = parts_of(both.column("name"))
            source, position, part = (pc.struct_field(parts, name) for name in ("source", "position", "part"))
            order = np.lexsort(
                (
                    numpy_array(pc.rank(part, tiebreaker="dense")),
                    numpy_array(position.cast(pa.int64())),
                    numpy_array(pc.rank(source, tiebreaker="dense")),
                    numpy_array(both.column("rank")),
                    numpy_array(both.column("group")),
                )
            )
            in_order = numpy_array(both.column("group"))[order]
            firsts = np.ones(len(order), np.bool_)
            firsts[1:] = in_order[1:] != in_order[:-1]
            best = both.take(arrow_array(order[firsts])).combine_chunks()
    if best is None:
        return np.zeros(0, np.uint64), pa.array([], pa.string())
    return numpy_array(best.column("group")), _one(best.column("name").combine_chunks())


def _removed(
    folder: str, threshold: float, nodes: Hashes, groups: Hashes, kept: Hashes, kept_names: pa.Array
) -> pa.Table:
    """The rows of the groups that do not stay, each once, sorted by name."""
    stays = hash_text_64(kept_names)
    seen = np.zeros(len(nodes), np.bool_)
    found = [pa.table({"removed": pa.array([], pa.string()), "kept": pa.array([], pa.string())})]
    for batch in _read(folder, threshold):
        for side in ("left", "right"):
            names = batch.column(side)
            hashes = hash_text_64(names)
            place = np.searchsorted(nodes, hashes)
            group = np.searchsorted(kept, groups[place])
            first = np.zeros(len(place), np.bool_)
            first[np.unique(place, return_index=True)[1]] = True
            chosen = np.flatnonzero(first & ~seen[place] & (stays[group] != hashes))
            seen[place] = True
            columns = [names.take(arrow_array(chosen)), kept_names.take(arrow_array(group[chosen]))]
            found.append(pa.table(columns, ["removed", "kept"]))
    return pa.concat_tables(found).sort_by("removed").combine_chunks()


def _read(folder: str, threshold: float) -> Iterator[pa.RecordBatch]:
    """The pairs that are similar enough, some at a time."""
    import pyarrow.dataset as ds

    try:
        names = sorted(os.listdir(folder))
        paths = [os.path.join(folder, name) for name in names if name.endswith(".parquet") and not name.startswith(".")]
        pairs = ds.dataset(paths, format="parquet") if paths else None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"the pairs cannot be read: {error}", path=folder) from error
    if pairs is None:
        return
    missing = [name for name in _COLUMNS if name not in pairs.schema.names]
    if missing:
        raise DataError(f"these are not pairs of documents: the files have no column {missing[0]!r}", path=folder)
    # Similarities are 32-bit floats: a threshold of 0.7 must keep what was found similar with verify=0.7.
    enough = pc.field("similarity") >= pa.scalar(np.float32(threshold), pa.float32())
    yield from (b for b in pairs.to_batches(columns=list(_COLUMNS), filter=enough) if b.num_rows)


def _is_in(hashes: Hashes, known: Hashes) -> NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(hashes), np.bool_)
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    found: NDArray[np.bool_] = known[place] == hashes
    return found


def _sorted(names: pa.Array) -> pa.Array:
    return names.take(pc.sort_indices(names))


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
