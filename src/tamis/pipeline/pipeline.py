"""Pipelines: what a user builds and runs."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tamis.backends.base import Executor
from tamis.backends.contracts import FAILURE_BUDGET
from tamis.errors import PlanError, TamisError, redacted
from tamis.pipeline.monitor import Monitoring, RunMonitor
from tamis.pipeline.run import run_plan
from tamis.plan import Plan, make_plan
from tamis.runs.progress import Observer
from tamis.runs.prometheus_endpoint import LOOPBACK
from tamis.runs.result import RunResult
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.tasks import EmptyTask, Task

if TYPE_CHECKING:
    from tamis.pipeline.estimate import Estimate
    from tamis.pipeline.rethreshold import Rethresholded
    from tamis.pipeline.retry import RetryResult

__all__ = ["Pipeline"]

Stage = ProcessingStage[Any, Any]


class Pipeline:
    """A list of stages with a name.

    Args:
        name: Shown in plans, reports and the name of the run directory.
        description: One sentence about it. It may be left out: ``Pipeline("name", [...])``.
        stages: The stages, in order.

    >>> from tamis.stages.function_decorators import processing_stage
    >>> from tamis.tasks import DocumentBatch
    >>> @processing_stage(name="shout")
    ... def shout(task: DocumentBatch) -> DocumentBatch:
    ...     return DocumentBatch([{"text": t.upper()} for t in task.data["text"].to_pylist()])
    >>> pipeline = Pipeline(name="example").add_stage(shout)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = pipeline.run(initial_tasks=[DocumentBatch({"text": ["hi"]})], run_dir=folder + "/run")
    ...     [task.data["text"].to_pylist() for task in result]
    [['HI']]
    """

    def __init__(
        self,
        name: str,
        description: str | Sequence[Stage] | None = None,
        stages: Sequence[Stage] | None = None,
    ) -> None:
        if isinstance(description, list | tuple):  # Pipeline("name", [...])
            if stages is not None:
                raise TypeError("Pipeline() was given two lists of stages")
            description, stages = None, description
        if description is not None and not isinstance(description, str):
            raise TypeError(f"Pipeline(description={type(description).__name__}): must be a text")
        self.name = name
        self.description = description or ""
        self.stages: list[Stage] = []
        for stage in stages or []:
            self.add_stage(stage)

    def add_stage(self, stage: Stage) -> Pipeline:
        """Add a stage at the end. Returns the pipeline, so that calls can be chained."""
        if inspect.isclass(stage):
            raise TypeError(f"add_stage({stage.__name__}) was given the class: add an object, {stage.__name__}(...)")
        if not isinstance(stage, ProcessingStage):
            raise TypeError(f"add_stage() takes a ProcessingStage, not {type(stage).__name__}")
        self.stages.append(stage)
        return self

    def plan(self, executor: Executor | None = None, initial: type[Task[Any]] | None = EmptyTask) -> Plan:
        """Plan the pipeline: unfold it, check it from end to end, and decide which stages run together.

        ``print(pipeline.plan())`` shows the plan. Nothing runs, but readers read the first rows of their input.
        """
        executor = executor or default_executor()
        batch = executor.execution_mode == "batch"
        has_gpus = getattr(executor, "has_gpus", None)  # executors of the user's own may not have it
        return make_plan(self.name, self.stages, initial=initial, fuse=executor.fuse, batch=batch, has_gpus=has_gpus)

    def estimate(
        self,
        executor: Executor | None = None,
        *,
        cluster: str | None = None,
        sample_seconds: float = 10.0,
        drop_ledger: bool = True,
    ) -> Estimate:
        """Run a sample of the input and predict the time, memory, disk and output of the whole.

        The sample is written to a temporary directory (``TMPDIR``) that is removed; output directories and run
        directories are not touched.

        Args:
            executor: What would run it; this machine by default.
            cluster: Predict for a cluster of this shape instead: ``"8x16cpu,2gpu"`` is 8 machines with 16 cores and
                2 GPUs each.
            sample_seconds: About how long the sample may take, in seconds. It takes longer where a single task does.
            drop_ledger: Whether the run records which rows were dropped, and why.
        """
        from tamis.pipeline.estimate import estimate_pipeline

        return estimate_pipeline(self, executor or default_executor(), cluster, sample_seconds, drop_ledger)

    def describe(self) -> str:
        """A description of the pipeline: each stage with its parameters and resources."""
        lines = [f"Pipeline: {self.name}"]
        if self.description:
            lines.append(f"Description: {self.description}")
        lines.append(f"Stages: {len(self.stages)}")
        for number, stage in enumerate(self.stages, start=1):
            needs = stage.resources
            if needs is None and isinstance(stage, CompositeStage):  # then its last stage says what it needs
                needs = stage.unfold()[-1].resources
            gpu = f", {needs.gpus:g} gpu" if needs.gpus else ""
            gpu = f", {needs.gpu_memory_gb:g} GB of gpu memory" if needs.gpu_memory_gb else gpu
            lines.append(f"  {number}. {stage.name}: {stage!r} ({needs.cpus:g} cpu{gpu})")
        return redacted("\n".join(lines))

    def to_recipe(self) -> str:
        """The pipeline as a recipe: YAML that ``tamis run`` and :meth:`from_recipe` understand.

        >>> from tamis.stages.io import JsonlReader, JsonlWriter
        >>> print(Pipeline("copy", stages=[JsonlReader("in"), JsonlWriter("out")]).to_recipe(), end="")
        name: copy
        stages:
          - JsonlReader: {file_paths: in}
          - JsonlWriter: {path: out}
        """
        from tamis.pipeline.recipe import dump_recipe

        return dump_recipe(self)

    @classmethod
    def from_recipe(cls, recipe: str | Path) -> Pipeline:
        """The pipeline that a recipe describes.

        Args:
            recipe: The recipe's file, or its text.
        """
        from tamis.pipeline.recipe import load_recipe

        return load_recipe(recipe).to_pipeline()

    def run(
        self,
        executor: Executor | None = None,
        initial_tasks: Sequence[Task[Any]] | None = None,
        *,
        run_dir: str | os.PathLike[str] | None = None,
        progress: Literal["auto", "live", "plain", "off"] | Observer = "auto",
        drop_ledger: bool = True,
        scratch: str | None = None,
        fresh: bool = False,
        failure_budget: float | None = FAILURE_BUDGET,
        metrics_port: int | None = None,
        metrics_host: str = LOOPBACK,
        traces: bool | None = None,
        keep_scores: bool = False,
        data_card: bool = True,
    ) -> RunResult:
        """Run the pipeline, or go on with a run of it that did not come to its end.

        A run goes on where it stopped when it is started again: with the same ``run_dir``, or, if none is given, with
        the same pipeline and input. What is finished is not done again, unless its input or a stage has changed.

        Args:
            executor: What runs it; by default the Ray cluster that this process uses (``RAY_ADDRESS``), else this
                machine.
            initial_tasks: Tasks for the first stage, when that does not make its own.
            run_dir: Directory or fsspec address for the run's report, counts, quarantine and ledger; by default a new
                directory below ``.tamis/runs``.
            progress: What is shown while it runs: ``"auto"`` is a live table on a terminal, else a line every ten
                seconds.
            drop_ledger: Whether to record in the run directory which rows were dropped, and why.
            scratch: Where data between stages is kept: a local path, or an fsspec address such as
                ``"s3://bucket/folder"`` that all machines can reach. By default the run directory, or the object store
                of Ray where the machines of a cluster do not share it.
            fresh: Whether to start over, also if ``run_dir`` holds a run or there is one to go on with.
            failure_budget: How many rows may be set aside, because a stage raised or crashed on them, before the run
                ends: a number of rows, or a share of those that were read, which counts once more than 1,000 have
                failed. ``0``: the first failure ends the run. ``None``: any number.
            metrics_port: Port on which Prometheus can read the metrics of the run; 0 picks a free one. By default none.
            metrics_host: The address to listen on; by default only programs of this machine can connect.
            traces: Whether to send OpenTelemetry traces; by default if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.
            keep_scores: Whether to record the score of every row by every filter in the run directory, so that
                thresholds can be changed afterwards (:meth:`rethreshold`) without ``score_field`` columns.
            data_card: Whether to describe the output in its directories: ``RUN.json`` and a data card, ``README.md``.
        """
        executor = executor or default_executor()
        initial = [EmptyTask()] if initial_tasks is None else [_fresh(t) for t in initial_tasks]
        kinds = {type(t) for t in initial}
        plan = self.plan(executor, initial=kinds.pop() if len(kinds) == 1 else None)
        if plan.groups[0].is_source and any(not isinstance(t, EmptyTask) for t in initial):
            raise PlanError(f"run(initial_tasks=...): {self.stages[0].name} makes its own tasks, it takes none")
        given = (
            self.description,
            run_dir,
            progress,
            drop_ledger,
            scratch,
            self._recipe(),
            fresh,
            failure_budget,
        )
        with RunMonitor(Monitoring(metrics_port, metrics_host, traces), plan) as monitor:
            return run_plan(
                plan, executor, initial, *given, monitor=monitor, keep_scores=keep_scores, data_card=data_card
            )

    def retry(self, run_dir: str | os.PathLike[str], stage: str = "") -> RetryResult:
        """Run again what a run of this pipeline has set aside, after a fix, from the stage that failed on.

        Rows that pass are written to the output directory of the run, in files of their own, and leave the
        quarantine; the counts and the report of the run are brought up to date. What fails again stays.

        Args:
            run_dir: The run's directory.
            stage: Only what this stage failed on.
        """
        from tamis.pipeline.retry import retry_run

        return retry_run(self.plan(initial=None), os.fspath(run_dir), stage)

    def rethreshold(
        self,
        run_dir: str | os.PathLike[str],
        after: Pipeline,
        *,
        output: str | None = None,
        executor: Executor | None = None,
    ) -> Rethresholded:
        """Write the output that a run of this pipeline would have with other thresholds, from the scores that it kept.

        Where the output does not follow from the scores (branches, shards, deduplication, images), the pipeline runs
        again with the new thresholds, and the two runs are compared.

        Args:
            run_dir: The run's directory.
            after: The same pipeline with other thresholds, and with other directories to write to.
            output: A directory to write to, instead of those of ``after``; several writers get directories below it.
            executor: What runs the pipeline again where that is necessary; the same as for :meth:`run` by default.
        """
        from tamis.pipeline.rethreshold import rethreshold

        recipe = after._recipe() if output is None else ""
        return rethreshold(os.fspath(run_dir), self, after, output, executor, recipe)

    def _recipe(self) -> str:
        """The pipeline as a recipe, for the record; empty if it cannot be written as one."""
        try:
            return self.to_recipe()
        except TamisError:
            return ""

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {len(self.stages)} stages)"


def _fresh(task: Task[Any]) -> Task[Any]:
    """A copy without identity: a task of an earlier run gets a new one in this run, and the original keeps its own."""
    if not isinstance(task, Task):
        hint = f"give an object, {task.__name__}()" if inspect.isclass(task) else "give a list of tasks"
        raise TypeError(f"run(initial_tasks=...): {task!r} is not a task; {hint}")
    fresh = copy.copy(task)
    fresh.task_id, fresh.order = "", ()
    return fresh


def default_executor() -> Executor:
    """The executor of a run that names none: on the Ray cluster that this process uses, else on this machine."""
    from tamis.pipeline.recipe import RunSettings

    return RunSettings().make_executor()
