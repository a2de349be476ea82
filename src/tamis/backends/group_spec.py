"""What a worker is told before it is given tasks: the stages of a group, and where it may write."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

from tamis.plan import Group, Plan
from tamis.plan.check import AddedColumns
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.io.paths import is_local
from tamis.tasks.base import digest

__all__ = ["GroupSpec", "RunPaths", "set_up_on_node"]


@dataclass(frozen=True)
class GroupSpec:
    """What a worker needs to know of a group: its stages and the ways between them.

    Stages that run as one are under the number of the first of them; ``members`` has the numbers of all. ``added`` has
    the columns that each of them adds.
    """

    entry: int
    stages: dict[int, ProcessingStage[Any, Any]]
    names: dict[int, str]
    edges: dict[int, dict[str, int]]
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    added: dict[int, tuple[AddedColumns, ...]] = field(default_factory=dict)

    @property
    def is_async(self) -> bool:
        """Whether its first stage is ``async``."""
        return self.stages[self.entry].is_async

    @property
    def in_flight(self) -> int:
        """How many assignments one worker works on at the same time."""
        return self.stages[self.entry].max_in_flight if self.is_async else 1

    @classmethod
    def of(cls, plan: Plan, group: Group) -> GroupSpec:
        """Cut the group out of the plan."""
        inside = [plan.vertices[i] for i in group.vertices]
        members = {first: run.vertices for first, run in group.merged.items()}
        later = {index for run in members.values() for index in run[1:]}
        stages = {v.index: v.stage for v in inside if v.index not in later}
        edges = {v.index: dict(v.edges) for v in inside if v.index not in later}
        for first, run in group.merged.items():
            stages[first], edges[first] = run.stage, dict(plan.vertices[run.vertices[-1]].edges)
        runs = {index: [plan.vertices[member] for member in members.get(index, (index,))] for index in stages}
        added = {index: tuple(map(AddedColumns.of, run)) for index, run in runs.items()}
        return cls(group.entry, stages, {v.index: v.name for v in inside}, edges, members, added)


@dataclass(frozen=True)
class RunPaths:
    """Directories of the run that workers write to.

    Args:
        scratch: For data between stages: a local path or an fsspec address.
        quarantine, outputs, drops: For rows that could not be read, tasks at the end of the pipeline, dropped rows.
        scores: For the scores of all rows, if they are kept.
        payloads: For tasks on their way from one worker to another; below ``scratch`` when not given.
        staging: Where files for the other directories wait for the driver, on machines that do not see them.
        workers_sync: Whether workers force output files to disk: the driver may be on another machine.
    """

    scratch: str = ""
    quarantine: str = ""
    outputs: str = ""
    drops: str = ""
    workers_sync: bool = False
    payloads: str = ""
    staging: str = ""
    scores: str = ""

    @property
    def local(self) -> str:
        """A folder of the machine for small files of workers; the driver sees it unless records wait for it."""
        if is_local(self.scratch):
            return self.scratch
        if self.outputs and not self.staging:
            return os.path.join(os.path.dirname(self.outputs), "scratch")
        return os.path.join(tempfile.gettempdir(), f"tamis-{digest(self.scratch)}")


def set_up_on_node(spec: GroupSpec, node: NodeInfo, worker: WorkerMetadata) -> None:
    """Call ``setup_on_node`` of each stage, once per machine."""
    for stage in spec.stages.values():
        stage.setup_on_node(node, worker)
