"""What a run dropped: counts by stage and reason, and some of the rows, read back from their sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tamis.errors import DataError, did_you_mean
from tamis.runs.dropped_rows import Thresholds, count_drops, sample_drops
from tamis.runs.pages import drop_query
from tamis.runs.pages.run_view import RunView, load_view
from tamis.runs.source_rows import ReadLimits

__all__ = ["DroppedSummary", "dropped_summary", "stage_named"]

_LIMITS: Final = ReadLimits(value_characters=20_000)


@dataclass(frozen=True)
class DroppedSummary:
    """Rows that a run dropped.

    Args:
        counts: For each stage and reason: ``stage``, ``reason``, ``rows``; in the order of the plan, the most frequent
            reason first.
        examples: Rows: their name in ``row``, ``stage``, ``reason``, ``score``, the bounds ``low`` and ``high``, the
            row in its source in ``values``, its ``text``, and a ``problem`` if it could not be read.
    """

    counts: list[dict[str, Any]]
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(entry["rows"] for entry in self.counts)


def dropped_summary(
    run_dir: str, stage: str = "", reason: str = "", *, sample: int = 0, seed: int = 0
) -> DroppedSummary:
    """How many rows a run dropped, and some of them.

    Args:
        run_dir: The run's directory.
        stage: Only those of this stage; the last part of its name is enough if only one has it.
        reason: Only those with a reason that contains this text.
        sample: How many rows to read back.
        seed: Another seed chooses other rows.
    """
    view = load_view(run_dir)
    stage = stage_named(view, stage) if stage else ""
    counts = [
        {"stage": stats.name, "reason": why, "rows": rows}
        for stats in view.summary.stages
        for why, rows in sorted(stats.dropped.items(), key=lambda item: (-item[1], item[0]))
        if stage in ("", stats.name) and reason in why
    ]
    if view.is_running or not counts:  # the summary is written at the end of the run
        order = {stats.name: number for number, stats in enumerate(view.summary.stages)}
        found = count_drops(run_dir, stage, reason)
        listed = sorted(found, key=lambda pair: (order.get(pair[0], len(order)), -found[pair]))
        counts = [{"stage": pair[0], "reason": pair[1], "rows": found[pair]} for pair in listed]
    return DroppedSummary(counts, _examples(view, sample, stage, reason, seed) if sample else [])


def stage_named(view: RunView, name: str) -> str:
    """The full name of a stage of a run; an error if there is none of that name, or several."""
    names = [stats.name for stats in view.summary.stages]
    found = [n for n in names if n == name] or [n for n in names if n.rpartition(" / ")[2] == name]
    if len(found) != 1:
        problem = f"several stages are named {name!r}" if found else f"the run has no stage {name!r}"
        raise DataError(
            f"{problem}.{'' if found else did_you_mean(name, names)}",
            path=view.path,
            hint=f"The stages are {', '.join(found or names)}.",
        )
    return found[0]


def _examples(view: RunView, count: int, stage: str, reason: str, seed: int) -> list[dict[str, Any]]:
    thresholds = Thresholds(view.scores)
    dropped = sample_drops(view.path, count, stage, reason, seed, thresholds)
    if not dropped and not drop_query.DropLedgerReader(view.path) and any(s.dropped for s in view.summary.stages):
        raise DataError(
            "the run has no drop ledger, so there are no examples",
            path=view.path,
            hint="It was run with --no-drop-ledger, run(drop_ledger=False).",
        )
    sought = [
        drop_query.DroppedRow(drop_query.Cursor(0, n), d.stage, d.reason, d.source, d.position, d.part, d.score)
        for n, d in enumerate(dropped)
    ]
    rows = view.read_texts(sought, _LIMITS, most_s=60.0)
    return [
        {
            **found.to_dict(),
            "values": row.values,
            "text": view.text_of(row) if row.values else "",
            "problem": row.problem,
        }
        for found, row in zip(dropped, rows, strict=True)
    ]
