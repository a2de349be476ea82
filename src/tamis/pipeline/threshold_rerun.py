"""A new output with other thresholds where it does not follow from stored scores: the pipeline runs with them, as a run
of its own, and the two runs are compared by the names of their rows.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis.backends.base import Executor
from tamis.errors import PlanError
from tamis.pipeline.monitor import Monitoring, RunMonitor
from tamis.pipeline.run import run_plan
from tamis.plan import Plan
from tamis.plan.describe import describe
from tamis.runs.compare import RowDifference, compare_runs
from tamis.runs.figures import rows_read
from tamis.stages.io.paths import join
from tamis.stages.io.sink import FileSink
from tamis.tasks import EmptyTask

if TYPE_CHECKING:
    from tamis.pipeline.rethreshold import Rethresholded

__all__ = ["redirect", "rerun"]


def redirect(plan: Plan, output: str) -> None:
    """Let the writers of a plan write below another directory: several as their own directories lie to each other."""
    paths = [path.split("/") for path in _written_to(plan)]
    levels = enumerate(zip(*paths, strict=False))
    common = next((level for level, names in levels if len({*names}) > 1), min(map(len, paths), default=0))
    for vertex in plan.vertices:
        if vertex.stage.is_sink_stage and not isinstance(vertex.stage, FileSink):
            raise PlanError(f"{vertex.name!r} cannot be told to write somewhere else. Run the whole pipeline instead")
        if isinstance(vertex.stage, FileSink):
            sink = copy.copy(vertex.stage)
            below = sink.destination.path.split("/")[common:]
            sink.destination = replace(sink.destination, path=join(output, *below) if below else output)
            vertex.stage = sink


def _written_to(plan: Plan) -> list[str]:
    return list(dict.fromkeys(v.stage.destination.path for v in plan.vertices if isinstance(v.stage, FileSink)))


def rerun(run_dir: str, before: Plan, after: Plan, executor: Executor, recipe: str) -> Rethresholded:
    """Run a plan with other thresholds, and compare it with the run.

    Args:
        run_dir: The directory of the run.
        before: Its plan.
        after: The plan with other thresholds and other directories to write to.
        executor: What runs it.
        recipe: The plan as a recipe, for the record; empty if there is none.
    """
    from tamis.pipeline.rethreshold import Rethresholded

    written = _written_to(after)
    both = sorted({*written} & {*_written_to(before)})
    if both:
        raise PlanError(f"{both[0]}: the run has written to this directory. Choose another one for the new output")
    if not _differ(before, after):
        raise PlanError("no threshold differs from those of the run: there is nothing to change")
    with RunMonitor(Monitoring(), after) as monitor:
        result = run_plan(after, executor, [EmptyTask()], "", None, "auto", recipe=recipe, monitor=monitor)
    found = compare_runs(run_dir, result.run_dir)
    return Rethresholded(
        os.path.commonpath(written)
        if len(written) > 1 and all("://" not in p for p in written)
        else ", ".join(written),
        found.kept_by_both,
        found.only_b.rows,
        found.only_a.rows,
        rows_read(result.stages),
        result.summary.output_files,
        _examples(found.only_b),
        _examples(found.only_a),
        result.run_dir,
    )


def _differ(before: Plan, after: Plan) -> bool:
    stages: Sequence[list[Any]] = [
        [describe(v.stage) for v in plan.vertices if not isinstance(v.stage, FileSink)] for plan in (before, after)
    ]
    return stages[0] != stages[1]


def _examples(difference: RowDifference) -> list[dict[str, Any]]:
    return [{"row": row["row"], "text": row["text"]} for row in difference.examples]
