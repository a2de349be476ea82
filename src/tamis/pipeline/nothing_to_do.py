"""``finished.json``: tells, without reading the ledger, that a run is finished and nothing has changed since.

It holds a digest of the pipeline, one of the input as it was before the run listed it, and one of the files that the
run left. If all of them are the same when the run is started again, there is nothing to do. If one differs, or if input
or output are not on a local disk, the ledger decides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tamis.plan import Plan
from tamis.runs.directory import RunDirectory
from tamis.stages.base import SourceStage
from tamis.stages.io.card_files import CARD_FILES
from tamis.stages.io.folder_digest import folder_digest
from tamis.stages.io.paths import is_local
from tamis.stages.io.sink import FileSink
from tamis.tasks import EmptyTask, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import content_id

__all__ = ["FinishedMark", "input_content"]

_FILE: Final = "finished.json"
_OWN: Final = ("ledger", "drops", "scores", "quarantine", "outputs", "run.json", "outputs.jsonl")


class FinishedMark:
    """Whether there is nothing to do for a run. The input is looked at when it is made.

    Args:
        plan: The plan.
        directory: The run directory.
        initial: Tasks that the run starts with.
        fingerprint: Equal for the same pipeline with the same parameters, code and addresses to read.
    """

    def __init__(self, plan: Plan, directory: RunDirectory, initial: Sequence[Task[Any]], fingerprint: str) -> None:
        self._directory, self._plan = directory, fingerprint
        source = plan.vertices[0].stage
        self._input = source.listing_id() if isinstance(source, SourceStage) else input_content(initial)
        places = (v.stage.destination.path for v in plan.vertices if isinstance(v.stage, FileSink))
        self._places = list(dict.fromkeys(places))

    @property
    def output_tasks(self) -> int | None:
        """How many tasks are at the end of the pipeline, if there is nothing to do; else ``None``."""
        try:
            found = json.loads(Path(self._directory.path, _FILE).read_bytes())
            known = found["plan"], found["input"], found["files"]
            if known != (self._plan, self._input, self.files()) or "" in known:
                return None
            return int(found["output_tasks"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def files(self, count: int | None = None, nbytes: int | None = None) -> str:
        """A digest of the files that the run has left; empty if there is none.

        Args:
            count: How many output files there have to be.
            nbytes: Their size together.
        """
        if not all(map(is_local, self._places)):
            return ""
        own = folder_digest(os.path.join(self._directory.path, name) for name in _OWN)
        made = folder_digest(self._places, frozenset(CARD_FILES))
        if own is None or made is None or (count is not None and (made.files, made.nbytes) != (count, nbytes)):
            return ""
        return digest(own.text, made.text)

    def write(self, files: str, output_tasks: int) -> None:
        """Write down that the run is finished.

        Args:
            files: What :meth:`files` has given, from before it was known that all of them are there.
            output_tasks: How many tasks are at the end of the pipeline.
        """
        if files and self._input:
            values = {"plan": self._plan, "input": self._input, "files": files, "output_tasks": output_tasks}
            self._directory.write_text(_FILE, json.dumps(values))


def input_content(tasks: Sequence[Task[Any]]) -> str:
    """A digest of tasks that a run starts with; empty if the first stage makes its own data."""
    if any(isinstance(task, EmptyTask) for task in tasks):
        return ""
    return digest(*(task.get_deterministic_id() or content_id(task) for task in tasks))
