"""The batches that a stage of a past run was given, from the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis.runs.ledger import Ledger
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order

__all__ = ["RecordedBatch", "recorded_batches"]


@dataclass(frozen=True)
class RecordedBatch:
    """Tasks that a worker was given at once.

    Args:
        stage: The first stage of the worker.
        tasks: The ids of the tasks.
        places: Their places in the order of the input; empty for tasks after a stage that brings all rows together.
        sources: The tasks of the input that they were made of: the id of each, and its place.
        counts: What each stage counted.
        set_aside: Whether the batch was given up.
    """

    stage: str
    tasks: tuple[str, ...]
    places: tuple[str, ...]
    sources: Mapping[str, str]
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    set_aside: bool = False

    def is_called(self, name: str) -> bool:
        """Whether a name is the id or the place of one of its tasks."""
        return name in self.tasks or name in self.places


def recorded_batches(run_dir: str, first_stage: str) -> Iterator[RecordedBatch]:
    """The batches of a group of stages, in the order in which they were finished.

    Args:
        run_dir: The run's directory.
        first_stage: The first stage of the group.
    """
    places: dict[str, str] = {}
    sources: dict[str, str] = {}
    found: dict[str, RecordedBatch] = {}
    for line in Ledger.read(os.path.join(run_dir, "ledger")):
        if "fed" in line:
            for task in line["tasks"]:
                places[digest(task["id"], "", line["fed"])] = format_order((task["number"],))
        for key in line.get("removed", ()):
            found.pop(key, None)
        if "key" not in line:
            continue
        roots = [sources.get(task, task) for task in line["tasks"]]
        for entry in line.get("outputs", ()):
            if entry["to"]:
                places[entry["id"]] = format_order(tuple(entry["order"]))
                sources[entry["id"]] = roots[0]
        if line["stage"] == first_stage:
            found[line["key"]] = RecordedBatch(
                first_stage,
                tuple(line["tasks"]),
                tuple(places.get(task, "") for task in line["tasks"]),
                {root: places.get(root, "") for root in roots},
                line.get("counts", {}),
                bool(line.get("set_aside")),
            )
    yield from found.values()
