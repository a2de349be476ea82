"""Compares two runs: what was run, what each stage did, and which rows each of them kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tamis.errors import DataError
from tamis.runs.dropped_rows import Thresholds
from tamis.runs.figures import rows_read
from tamis.runs.manifest import read_manifest
from tamis.runs.pages import drop_query
from tamis.runs.pages.run_view import RunView, load_view
from tamis.runs.plan_paths import PlanPaths
from tamis.runs.row_sets import LeftOut, MainWay, changed_files, compare_left_out, is_recorded, read_files
from tamis.runs.source_rows import ReadLimits
from tamis.runs.stats import StageStats

__all__ = ["Difference", "RowDifference", "RunComparison", "StageCounts", "compare_runs"]

_LIMITS: Final = ReadLimits(value_characters=2_000)
_ABOUT: Final = ("tamis", "python", "platform", "executor")


@dataclass(frozen=True)
class Difference:
    """Something that differs between what two runs were made of.

    Args:
        what: Where: a stage and its parameter, or a version.
        a, b: The values; empty where there is none.
    """

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class StageCounts:
    """What a stage did in both runs; ``None`` in a run that does not have it.

    Args:
        stage: The stage.
        a_in, b_in: Rows that it was given.
        a_out, b_out: Rows that it passed on.
        a_dropped, b_dropped: Rows that it dropped.
    """

    stage: str
    a_in: int | None
    b_in: int | None
    a_out: int | None
    b_out: int | None
    a_dropped: int | None
    b_dropped: int | None


@dataclass
class RowDifference:
    """Rows that one of the runs kept and the other one did not.

    Args:
        rows: How many.
        reasons: Why the other run left them out: ``stage``, ``reason``, ``rows``; the most frequent first.
        examples: Some of the rows, with their texts.
    """

    rows: int
    reasons: list[dict[str, Any]] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class RunComparison:
    """Two runs side by side.

    Args:
        a, b: Their directories.
        settings: What differs in stages, parameters, code and versions.
        stages: The counts of each stage.
        input_only_a, input_only_b: How many files only one of them has read.
        input_changed: Files that both have read, in different states: rows at the same position may differ.
        kept_by_both: Rows that both have kept; ``None`` where the records do not tell.
        only_a, only_b: Rows that only one of them has kept, of input that both have read.
        notes: What to know about the comparison.
    """

    a: str
    b: str
    settings: list[Difference]
    stages: list[StageCounts]
    input_only_a: int
    input_only_b: int
    input_changed: list[str]
    kept_by_both: int | None
    only_a: RowDifference
    only_b: RowDifference
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def compare_runs(run_a: str, run_b: str, examples: int = 5) -> RunComparison:
    """Compare two runs.

    Args:
        run_a: The directory of one run.
        run_b: The directory of the other.
        examples: How many rows to show of those that only one of them kept.
    """
    a, b = load_view(run_a), load_view(run_b)
    files_a, files_b = read_files(run_a), read_files(run_b)
    notes = []
    for view in (a, b):
        if not is_recorded(view.path) and any(stats.dropped for stats in view.summary.stages):
            raise DataError(
                "the run has no drop ledger, so its rows cannot be compared",
                path=view.path,
                hint="It was run with --no-drop-ledger, run(drop_ledger=False).",
            )
        if view.summary.state not in ("done", "done with failures"):
            notes.append(f"{view.path} is not complete ({view.summary.state}): rows it did not come to count as kept")
    shared = files_a.keys() & files_b.keys() if files_a or files_b else None
    if shared is not None and not shared:
        notes.append("the runs have read different files: no row is in both")
    way_a, way_b = _main_way(a), _main_way(b)
    if way_a.copies or way_b.copies:
        notes.append("copies that a Tee has made are not compared: rows count as kept or dropped without them")
    dropped_a = compare_left_out(way_a, way_b, shared, Thresholds(a.scores), examples)
    dropped_b = compare_left_out(way_b, way_a, shared, Thresholds(b.scores), examples)
    return RunComparison(
        run_a,
        run_b,
        _settings(run_a, run_b),
        _stages(a.summary.stages, b.summary.stages),
        len(files_a.keys() - files_b.keys()),
        len(files_b.keys() - files_a.keys()),
        changed_files(files_a, files_b),
        _kept_by_both(a, b, dropped_a, dropped_b, files_a == files_b),
        _difference(b, dropped_b),
        _difference(a, dropped_a),
        notes,
    )


def _main_way(view: RunView) -> MainWay:
    return MainWay(view.path, frozenset().union(*(way.names for way in PlanPaths(view.outline).ways[1:])))


def _kept_by_both(a: RunView, b: RunView, dropped_a: LeftOut, dropped_b: LeftOut, same_input: bool) -> int | None:
    """The rows that were read, less those that one of the runs left out: known if both have read the same rows."""
    read = [rows_read(view.summary.stages) for view in (a, b)]
    if not same_input or not read[0] or read[0] != read[1] or dropped_a.has_pieces or dropped_b.has_pieces:
        return None
    return read[0] - dropped_a.all_rows - dropped_b.rows


def _difference(view: RunView, left_out: LeftOut) -> RowDifference:
    """Rows that the other run kept, with what this one says of them."""
    reasons = sorted(left_out.reasons.items(), key=lambda item: (-item[1], item[0]))
    sought = [
        drop_query.DroppedRow(
            drop_query.Cursor(0, n), e["stage"], e["reason"], e["source"], e["position"], e["part"], e["score"]
        )
        for n, e in enumerate(left_out.examples)
    ]
    rows = view.read_texts(sought, _LIMITS)
    return RowDifference(
        left_out.rows,
        [{"stage": stage, "reason": reason, "rows": count} for (stage, reason), count in reasons],
        [
            {**example, "text": view.text_of(row) if row.values else "", "problem": row.problem}
            for example, row in zip(left_out.examples, rows, strict=True)
        ],
    )


def _stages(a: list[StageStats], b: list[StageStats]) -> list[StageCounts]:
    """The stages of both, in the order of the first, those of the second alone after the one that they follow."""
    by_name = [{s.name: s for s in stages if not s.internal and (s.rows_in or s.rows_out)} for stages in (a, b)]
    names = list(by_name[0])
    before = ""
    for name in by_name[1]:
        if name not in names:
            names.insert(names.index(before) + 1 if before in names else 0, name)
        before = name
    return [
        StageCounts(
            name,
            *(
                None if (stats := of_run.get(name)) is None else getattr(stats, number)
                for number in ("rows_in", "rows_out", "rows_dropped")
                for of_run in by_name
            ),
        )
        for name in names
    ]


def _settings(run_a: str, run_b: str) -> list[Difference]:
    """What the manifests say differently."""
    starts = [(read_manifest(run).get("starts") or [{}])[-1] for run in (run_a, run_b)]
    found: list[Difference] = []
    stages = [{stage["name"]: stage for stage in start.get("stages", ())} for start in starts]
    for name in dict.fromkeys([*stages[0], *stages[1]]):
        one, other = stages[0].get(name), stages[1].get(name)
        if one is None or other is None:
            found.append(Difference(f"stage {name}", *("" if s is None else str(s["class"]) for s in (one, other))))
            continue
        found += _differing(f"{name}.", one["parameters"], other["parameters"])
        found += _differing(
            f"{name}: ", {k: one[k] for k in ("class", "code")}, {k: other[k] for k in ("class", "code")}
        )
        files = [{f["path"]: f"{f['size']} bytes, changed {f['changed']}" for f in s["files"]} for s in (one, other)]
        found += _differing(f"{name}: file ", *files)
    found += _differing("", *({name: str(start.get(name, "")) for name in _ABOUT} for start in starts))
    found += _differing("package ", *(start.get("packages", {}) for start in starts))
    return found


def _differing(prefix: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    names = dict.fromkeys([*one, *other])
    pairs = {name: (str(one.get(name, "")), str(other.get(name, ""))) for name in names}
    return [Difference(f"{prefix}{name}", a, b) for name, (a, b) in pairs.items() if a != b]
