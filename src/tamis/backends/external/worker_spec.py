"""What workers on external engines need, and how a run on such an engine is carried out."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from tamis.backends.base import Run
from tamis.backends.carry_out import run_paths
from tamis.backends.cluster_storage import share_storage
from tamis.backends.external.driver import Engine, ExternalDriver
from tamis.backends.external.operator import OperatorSpec
from tamis.backends.external.ray_session import ClusterNode, Mailbox, module_path, set_up_nodes
from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.substrates.processes import pickled_stages
from tamis.plan import Group, Plan


def group_specs(plan: Plan) -> dict[int, GroupSpec]:
    """What workers need to run the groups that do work."""
    return {g.index: GroupSpec.of(plan, g) for g in plan.groups if not g.is_source}


@dataclass(frozen=True)
class WorkerSpec:
    """What an engine gives its workers.

    Args:
        plan: The plan.
        stages: The stages of each group, pickled.
        places: The run's directories.
        mailbox: Where records arrive.
        path: The driver's module search path.
        run: A name for the run, unique.
    """

    plan: Plan
    stages: dict[int, bytes]
    places: RunPaths
    mailbox: Mailbox
    path: tuple[str, ...]
    run: str

    @classmethod
    def of(
        cls, ray: Any, plan: Plan, run: Run, nodes: list[ClusterNode], runtime_env: dict[str, Any] | None = None
    ) -> WorkerSpec:
        """Make it, and set the machines up. ``runtime_env`` is for stages that have none."""
        stages = {index: pickled_stages({index: spec}) for index, spec in group_specs(plan).items()}
        share_storage(ray, plan, run, [node.id for node in nodes])
        places = run_paths(run, workers_sync=True)
        set_up_nodes(ray, plan, stages, nodes, places, runtime_env)
        path = module_path()
        return cls(plan, stages, places, Mailbox(ray), path, uuid.uuid4().hex)

    def operator(self, group: Group, inside: frozenset[int], **settings: Any) -> OperatorSpec:
        """What the workers of a group need; settings are further fields of it."""
        return OperatorSpec(
            self.run,
            group.index,
            group.entry,
            self.plan.vertices[group.entry].name,
            self.stages[group.index],
            self.places,
            inside,
            frozenset(v.index for v in self.plan.vertices if v.is_source),
            self.path,
            timeout_s=group.timeout_s,
            **settings,
        )


def run_on_engine(plan: Plan, run: Run, engine: Engine, worker_spec: WorkerSpec) -> bool:
    """Carry out a plan on an engine, show its progress, and remove the mailbox afterwards."""
    driver = ExternalDriver(plan, run, engine)
    run.stats = driver.books.stats
    run.watchers.start(driver.snapshot())
    state = "failed"
    try:
        done = driver.execute()
        state = "done"
        return done
    finally:
        run.journal.flush()  # while the cluster can still be asked for files that wait there
        run.watchers.finish(driver.snapshot(state))
        worker_spec.mailbox.close()
