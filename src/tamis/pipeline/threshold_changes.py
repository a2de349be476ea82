"""What differs between two plans, if it is nothing but thresholds of filters: the criteria that decide otherwise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.errors import PlanError
from tamis.plan import END, Plan, Vertex
from tamis.plan.describe import describe
from tamis.stages.io.encoders import JsonlEncoder, ParquetEncoder
from tamis.stages.io.readers import ReaderStage
from tamis.stages.io.writers import WriterStage
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.stages.text.filters.chain import KeepStep, Step
from tamis.tasks import DocumentBatch, RowNames

__all__ = ["ChangedCriterion", "DroppedPositions", "changed_criteria", "shape_problem"]

RUN_INSTEAD = "Run the whole pipeline with the new settings instead: tamis run, Pipeline.run()"


@dataclass(frozen=True, eq=False)
class ChangedCriterion:
    """A criterion of a filter with other thresholds than before.

    Args:
        stage: The stage, as in the plan.
        before, after: The criterion.
    """

    stage: str
    before: Step
    after: Step

    @property
    def reason(self) -> str:
        """The reason that the drop ledger gives for rows that the criterion dropped."""
        return self.before.reason()

    @property
    def admits_more(self) -> bool:
        """Whether it may keep a row that it dropped before."""
        return not _is_within(self.after, self.before)

    @property
    def admits_less(self) -> bool:
        """Whether it may drop a row that it kept before."""
        return not _is_within(self.before, self.after)

    def column_in(self, sink: WriterStage) -> str | None:
        """The column of the output that has the scores; ``None`` if there is none."""
        column = self.before.writes or (self.before.reads if isinstance(self.before, KeepStep) else None)
        return column if column is not None and (sink.fields is None or column in sink.fields) else None

    def may_keep(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether it may keep rows with these scores now. A row without a score (NaN) has to be scored again."""
        low, high = _bounds(self.after)
        within: NDArray[np.bool_] = (scores >= low) & (scores <= high)
        kept: NDArray[np.bool_] = (within != self.after.invert) | np.isnan(scores)
        return kept


@dataclass
class DroppedPositions:
    """The positions of dropped rows by source: all of them, and those that may be kept now."""

    all: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    candidates: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def add(self, path: str, dropped: NDArray[np.int64], candidates: NDArray[np.int64]) -> None:
        """Add rows of one source."""
        for known, more in ((self.all, dropped), (self.candidates, candidates)):
            known[path] = np.concatenate([known[path], more]) if path in known else more

    def are_in(self, block: DocumentBatch, known: dict[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Whether each row of a block is among some rows."""
        names = block.names
        assert isinstance(names, RowNames)
        mask = np.zeros(len(names), np.bool_)
        for code, source in enumerate(names.sources):
            of_source = np.ones(len(names), np.bool_) if names.codes is None else names.codes == code
            mask[of_source] = np.isin(names.positions[of_source], known.get(source, np.zeros(0, np.int64)))
        return mask

    def are_named(self, positions: NDArray[np.int64], sources: list[str]) -> NDArray[np.bool_]:
        """Whether rows with these names were dropped."""
        of_row = np.array(sources, object)
        mask = np.zeros(len(positions), np.bool_)
        for source in set(sources):
            mask |= np.isin(positions, self.all.get(source, np.zeros(0, np.int64))) & (of_row == source)
        return mask


def shape_problem(plan: Plan) -> str:
    """Why the new output does not follow from the scores. Empty if the plan is a reader, stages that treat each row by
    itself, and a writer of JSON lines or Parquet.
    """
    vertices = plan.vertices
    for before, vertex in zip([None, *vertices], vertices, strict=False):
        if vertex.is_source and before is not None:
            return f"{vertex.name!r} comes after a stage that brings all rows together"
        if vertex.edges not in ({"out": vertex.index + 1}, {"out": END}):
            return f"{vertex.name!r} has branches"
        if vertex.stage.makes_rows != "same":
            return f"{vertex.name!r} makes other rows of the rows ({vertex.stage.makes_rows})"
    sink, reader = vertices[-1].stage, vertices[1].stage if len(vertices) > 1 else None
    if not vertices[0].is_source or not isinstance(reader, ReaderStage):
        return "the pipeline does not begin with a reader of texts"
    if not isinstance(sink, WriterStage) or not isinstance(sink.encoder, JsonlEncoder | ParquetEncoder):
        return "the pipeline does not end with a JsonlWriter or ParquetWriter without shard_bytes"
    if sink.partition_by is not None or sink.destination.mode == "append":
        return 'the writer has partition_by or mode="append", so the files do not say which row is which'
    return ""


def changed_criteria(before: Plan, after: Plan) -> list[ChangedCriterion]:
    """The criteria with other thresholds. Raises if anything else differs but the directory of the writer."""
    if [v.name for v in before.vertices] != [v.name for v in after.vertices]:
        raise PlanError(f"the new pipeline has other stages than the run. {RUN_INSTEAD}")
    found: list[ChangedCriterion] = []
    for old, new in zip(before.vertices, after.vertices, strict=True):
        if isinstance(old.stage, WriterStage) and isinstance(new.stage, WriterStage):
            pair = [(describe(v.stage.encoder), v.stage.fields, v.stage.destination.filename) for v in (old, new)]  # type: ignore[attr-defined]  # both are writers
            if pair[0] != pair[1]:
                raise PlanError(f"the writer {new.name!r} differs in more than its directory. {RUN_INSTEAD}")
        elif describe(old.stage) != describe(new.stage):
            found += _changed_steps(old, new)
    if not found:
        raise PlanError("no threshold differs from those of the run: there is nothing to change")
    return found


def _changed_steps(old: Vertex, new: Vertex) -> Iterator[ChangedCriterion]:
    steps: list[list[Step]] = [getattr(v.stage, "_steps", []) for v in (old, new)]
    steps = [each if all(isinstance(step, Step) for step in each) else [] for each in steps]
    if not steps[0] or len(steps[0]) != len(steps[1]):
        raise PlanError(f"the stage {new.name!r} differs in more than thresholds of its filters. {RUN_INSTEAD}")
    for before, after in zip(*steps, strict=True):
        same = [(type(s), s.reads, s.writes, s.invert, _without_thresholds(s.operation)) for s in (before, after)]
        if same[0] != same[1]:
            raise PlanError(
                f"the stage {new.name!r} differs in more than the thresholds of its filters, so its scores may differ. "
                f"{RUN_INSTEAD}"
            )
        if describe(before.operation) != describe(after.operation):
            yield ChangedCriterion(new.name, before, after)


def _without_thresholds(operation: Any) -> str:
    """A filter without the bounds of its score."""
    if not isinstance(operation, ThresholdFilter) or not dataclasses.is_dataclass(operation):
        return describe(operation)
    bounds = type(operation).bounds is ThresholdFilter.bounds
    names = [f.name for f in dataclasses.fields(operation)]
    limits = {next((n for n in names if n.startswith(prefix)), "") for prefix in ("min_", "max_")} if bounds else set()
    values = {name: getattr(operation, name) for name in names if name not in limits}
    return f"{type(operation).__qualname__} {describe(values)}"


def _bounds(step: Step) -> tuple[float, float]:
    assert isinstance(step.operation, ThresholdFilter)
    low, high = step.operation.bounds()
    return -math.inf if low is None else low, math.inf if high is None else high


def _is_within(inner: Step, outer: Step) -> bool:
    """Whether every score that one step keeps is kept by the other."""
    (low, high), (least, most) = _bounds(inner), _bounds(outer)
    if inner.invert:
        return low <= least and high >= most
    return low >= least and high <= most
