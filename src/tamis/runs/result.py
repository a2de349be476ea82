"""The result of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.runs.directory import RunDirectory
from tamis.runs.drops import read_drops
from tamis.runs.stats import RunSummary, StageStats
from tamis.tasks import Task

if TYPE_CHECKING:
    from tamis.runs.duplicates import Duplicates
    from tamis.runs.failures import Failed
    from tamis.runs.why import RowStory


class RunResult:
    """The result of a run: counts, paths, and the output tasks, which stay on disk until they are read.

    ``len(result)`` is the number of output tasks; iterating reads them one at a time, in the order of the input.

    Attributes:
        summary: Everything that was counted.
        run_dir: The run's directory, or its address.
        state: ``"done"``, or ``"done with failures"`` if rows or tasks were set aside (``summary.rows_set_aside``,
            ``summary.tasks_set_aside``). A run that fails or is interrupted raises and has no result.
    """

    def __init__(self, directory: RunDirectory, summary: RunSummary, output_tasks: int | None = None) -> None:
        self._directory = directory
        self._tasks = directory.output_count() if output_tasks is None else output_tasks
        self.summary = summary
        self.run_dir = directory.address
        self.state = summary.state

    @property
    def stages(self) -> list[StageStats]:
        """The counts of each stage, in the order of the plan."""
        return self.summary.stages

    @property
    def outputs(self) -> list[str]:
        """The files that were written, at most the first 1,000 (``summary.output_files`` is their number)."""
        return [str(o["path"]) for o in self.summary.outputs]

    @property
    def rows(self) -> int:
        """Rows that were written, or that are in the output tasks if nothing was written."""
        return self.summary.output_rows if self.summary.output_files else sum(t.num_items for t in self)

    def drops(self) -> pa.Table:
        """Every row that was dropped: which one, by which stage, why, and with which score.

        All of it is read into memory; for a large run, read the Parquet files in ``drops/`` of the run directory.
        """
        return read_drops(self._directory.drops)

    def duplicates(self, stage: str = "") -> Duplicates:
        """The duplicates that were removed: groups and their sizes, pairs with their texts, rates by source.

        Args:
            stage: The stage that removed them; all of them when not given.
        """
        from tamis.runs.duplicates import Duplicates

        return Duplicates(self.run_dir, stage)

    def why(self, row: str = "", *, line: bool = False, where: tuple[str, str] | None = None) -> RowStory:
        """What became of a row, kept or dropped, and where it comes from.

        Args:
            row: The name of the row, ``source:position`` as reports show it. The last parts of the path are enough.
            line: Whether the number is that of a line of the file, counted from 1.
            where: Instead of a name, a column and a value that only this row has.
        """
        from tamis.runs.why import why

        return why(self._directory.path, row, line=line, where=where)

    @property
    def failures(self) -> list[Failed]:
        """Rows and tasks that were set aside, with their cause."""
        from tamis.runs.failures import failures

        return list(failures(self._directory.path))

    def retry(self, pipeline: Any, stage: str = "") -> Any:
        """Run again what was set aside, with the mended pipeline: ``pipeline.retry(result.run_dir)``.

        Args:
            pipeline: The :class:`tamis.pipeline.Pipeline`.
            stage: Only what this stage failed on.
        """
        retried = pipeline.retry(self.run_dir, stage)
        self.summary, self.state = retried.summary, retried.summary.state
        self._tasks = self._directory.output_count()
        return retried

    def stage(self, name: str) -> StageStats:
        """The counts of one stage.

        Args:
            name: Its name as in the plan, ``"Route[de] / JsonlWriter"``; the last part is enough if only one has it.
        """
        exact = [stats for stats in self.stages if stats.name == name]
        found = exact or [stats for stats in self.stages if stats.name.rpartition(" / ")[2] == name]
        if len(found) != 1:
            problem = f"several stages are named {name!r}" if found else f"there is no stage {name!r}"
            raise KeyError(f"{problem}; the stages are {', '.join(stats.name for stats in found or self.stages)}")
        return found[0]

    def __len__(self) -> int:
        return self._tasks

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Task[Any]]:
        return self._directory.output_tasks()

    def __getitem__(self, index: int | slice) -> Task[Any] | list[Task[Any]]:
        if isinstance(index, slice):
            return list(self)[index]
        if not -self._tasks <= index < self._tasks:
            raise IndexError(f"{index}: the run has {self._tasks} output tasks")
        return next(itertools.islice(self, index % self._tasks, None))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from tamis.runs.notebook import result_html

        return result_html(self.summary, self.run_dir)

    def __repr__(self) -> str:
        s = self.summary
        counts = f"{self._tasks} output tasks, {s.output_files} files"
        return f"RunResult({s.pipeline!r}, {s.state}, {counts}, {self.run_dir!r})"
