"""What the deduplication workflows have in common: their input, and how they run their pipelines."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import ColumnError, PlanError, did_you_mean
from tamis.pipeline.pipeline import Pipeline
from tamis.pipeline.workflow import WorkflowRunResult
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.file_reading import reader_for
from tamis.stages.io import FilePartitioningStage
from tamis.stages.io.arguments import path_list
from tamis.stages.io.paths import absolute, is_local, join
from tamis.tasks import FileGroup, Task

__all__ = ["Steps", "WorkflowInput", "check_run_arguments"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class WorkflowInput:
    """The files that a workflow reads.

    Args:
        owner: The workflow, for messages.
        paths: A file, a directory, a pattern, an fsspec address, or a list of those.
        file_type: ``"parquet"`` or ``"jsonl"``.
        blocksize: Bytes of input per task.
        extensions: Endings to look for in directories; those of the file type when not given.
        read_kwargs: Further arguments of the reader.
        files_per_partition: Whole files per task, instead of ``blocksize``.
        limit: The largest number of tasks.
    """

    owner: str
    paths: Paths | None
    file_type: str
    blocksize: int | str | None = None
    extensions: list[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    files_per_partition: int | None = None
    limit: int | None = None

    def given(self, initial_tasks: Sequence[Task[Any]] | None) -> WorkflowInput:
        """The files of some tasks instead, where they are given."""
        if initial_tasks is None:
            if self.paths is None:
                raise PlanError(f"{self.owner}: there is no input. Give input_path, or run(initial_tasks=[...])")
            return self
        paths = [str(path) for task in initial_tasks for path in task.data]
        return WorkflowInput(self.owner, paths, self.file_type, self.blocksize, self.extensions, self.read_kwargs)

    def check_columns(self, *names: str) -> None:
        """Raise ``ColumnError`` if the first file has no column of a name: a reader would take it for empty."""
        reader = reader_for(self.owner, self.file_type)
        paths = path_list(self.owner, "input_path", self.paths)
        columns = reader(paths, read_kwargs=self.read_kwargs, file_extensions=self.extensions).columns()
        for name in names:
            if columns and name not in columns:
                known, near = ", ".join(columns), did_you_mean(name, columns)
                raise ColumnError(f"{self.owner}: there is no column {name!r}, only {known}.{near}")

    def partitioning(self) -> FilePartitioningStage:
        """The stage that lists the files. A list of paths is sorted, so that its order does not matter."""
        reader = reader_for(self.owner, self.file_type)
        paths = path_list(self.owner, "input_path", self.paths)
        return FilePartitioningStage(
            paths if isinstance(paths, str) else sorted(paths),
            self.files_per_partition,
            None if self.files_per_partition else self.blocksize,
            list(self.extensions or reader.extensions),
            (self.read_kwargs or {}).get("storage_options") or {},
            self.limit,
            splittable=self.files_per_partition is None,
        )


@dataclass
class Steps:
    """Runs the pipelines of a workflow and collects what they made.

    Args:
        name: The workflow's name.
        root: The directory below which each step has its run directory, in ``.tamis``. Where it is not on this machine,
            run directories are below ``.tamis/runs`` here.
        executor: What runs the pipelines; by default as in :meth:`tamis.pipeline.Pipeline.run`.
        settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.
    """

    name: str
    root: str
    executor: Any = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.result = WorkflowRunResult(self.name)
        self._began = time.perf_counter()
        self._last = self._began

    def run(
        self,
        step: str,
        stages: Sequence[ProcessingStage[Any, Any]],
        *,
        time_name: str | None = None,
        data_card: bool = False,
    ) -> RunResult:
        """Run one step, or go on with it.

        Args:
            step: Its name, under which the result has its tasks.
            stages: Its stages.
            time_name: Under which name the result has the seconds it took; ``<step>_time`` when not given.
            data_card: Whether to describe the output in its directory.
        """
        pipeline = Pipeline(f"{self.name} {step}", stages=stages)
        run_dir = join(absolute(self.root), ".tamis", step) if is_local(self.root) else None
        settings = {"run_dir": run_dir, "data_card": data_card, **self.settings}
        made = pipeline.run(self.executor, **settings)
        self.result.add_pipeline_tasks(step, list(made))
        self.result.metadata.setdefault("run_dirs", {})[step] = made.run_dir
        self.took(time_name or f"{step}_time")
        return made

    def took(self, name: str) -> None:
        """Add the seconds since the last step to the result."""
        now = time.perf_counter()
        self.result.add_metadata(name, now - self._last)
        self._last = now

    def finished(self, **metadata: Any) -> WorkflowRunResult:
        """The result, with the seconds of all steps together."""
        self.result.extend_metadata(metadata)
        self.result.add_metadata("total_time", time.perf_counter() - self._began)
        return self.result


def check_run_arguments(owner: str, initial_tasks: Any, executor: Any) -> None:
    """Refuse arguments of ``run()`` in the wrong order."""
    if executor is not None and not hasattr(executor, "execute"):
        raise TypeError(f"{owner}.run(executor=...): {type(executor).__name__} is not an executor")
    if initial_tasks is not None and not (
        isinstance(initial_tasks, Sequence) and all(isinstance(t, FileGroup) for t in initial_tasks)
    ):
        raise TypeError(f"{owner}.run(initial_tasks=...): give a list of FileGroup tasks")
