"""One run of a plan, from the run directory to the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import tamis
from tamis.backends.base import Executor, Run
from tamis.errors import AllSetAsideError, RunInterrupted
from tamis.pipeline.path_conflicts import check_path_conflicts
from tamis.plan import Plan
from tamis.printable import MESSAGE_CHARACTERS, shortened
from tamis.runs.directory import RunDirectory
from tamis.runs.journal import RunJournal
from tamis.runs.past_runs import unmark_running
from tamis.runs.progress import Observer, choose_progress
from tamis.runs.report import write_report
from tamis.runs.result import RunResult
from tamis.runs.stats import DONE, DONE_WITH_FAILURES, FAILED, INTERRUPTED, RunSummary
from tamis.runs.stop import StopSignal
from tamis.stages.io.sink import FileSink
from tamis.tasks import Task

QUARANTINE_EXAMPLES = 20


def run_plan(
    plan: Plan,
    executor: Executor,
    initial: Sequence[Task[Any]],
    description: str,
    run_dir: str | None,
    progress: Literal["auto", "live", "plain", "off"] | Observer,
    drop_ledger: bool = True,
) -> RunResult:
    """Carry out a plan. The run directory gets a summary and a report even if the run fails."""
    executor.check(plan)
    check_path_conflicts(plan, run_dir)
    directory = RunDirectory.create(plan.name, run_dir)
    try:
        return _run_in(directory, plan, executor, initial, description, progress, drop_ledger)
    finally:
        unmark_running(directory.path)


def _run_in(
    directory: RunDirectory,
    plan: Plan,
    executor: Executor,
    initial: Sequence[Task[Any]],
    description: str,
    progress: Literal["auto", "live", "plain", "off"] | Observer,
    drop_ledger: bool,
) -> RunResult:
    """Carry out a plan in a directory that this process alone uses."""
    sinks = {v.name: v.stage for v in plan.vertices if isinstance(v.stage, FileSink)}
    for stage in sinks.values():  # last, since it may remove earlier output
        stage.prepare()
    directory.write_text("plan.txt", f"{plan}\n")
    observer = choose_progress(progress) if isinstance(progress, str) else progress
    clock, began, started = time.time(), time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    state, error = FAILED, ""
    with StopSignal() as stop:
        run = Run(directory, RunJournal(directory), observer, stop, initial, drop_ledger)
        try:
            state = _final_state(run) if executor.execute(plan, run) else INTERRUPTED
            error = _everything_set_aside(directory) if state == FAILED else ""
        except KeyboardInterrupt:
            state = INTERRUPTED
        except Exception as failure:
            error = shortened("\n".join([str(failure), *getattr(failure, "__notes__", [])]), 2 * MESSAGE_CHARACTERS)
            failure.add_note(f"  the run's directory is {directory.path}")
            raise
        finally:
            run.journal.close()
            for counts in run.stats:  # the order must not depend on which task was finished first
                counts.dropped, counts.custom = (
                    dict(sorted(counts.dropped.items())),
                    dict(sorted(counts.custom.items())),
                )
            summary = RunSummary(
                pipeline=plan.name,
                description=description,
                executor=executor.describe(),
                started=started,
                seconds=time.monotonic() - began,
                state=state,
                stages=run.stats,
                plan=str(plan),
                outputs=run.journal.files,
                output_files=run.journal.file_count,
                output_rows=run.journal.file_rows,
                output_bytes=run.journal.file_bytes,
                quarantine=directory.quarantined(QUARANTINE_EXAMPLES),
                error=error,
                peak_memory_bytes=_peak_memory(),
                tamis=tamis.__version__,
            )
            directory.write_summary(summary)
            write_report(directory.path)
            if state in (DONE, DONE_WITH_FAILURES):
                directory.remove_scratch()
    if state == INTERRUPTED:
        raise RunInterrupted(
            f"Stopped. {summary.output_files} files with {summary.output_rows} rows are finished; they stay where they "
            "are. The same command, in another run directory if it names one, starts from the beginning and replaces "
            f"them. What was done so far: tamis report {directory.path}"
        )
    if state == FAILED:
        raise AllSetAsideError(error)
    for name, stage in sinks.items():
        stage.finish()
        names = stage.leftovers(clock)
        if names:
            observer.message(
                f"{name}: {len(names)} files of an earlier run are still in its directory, {names[0]} among them. "
                'They are not output of this run; mode="overwrite" removes them first.'
            )
    return RunResult(directory, summary, run.journal.outputs)


def _final_state(run: Run) -> str:
    """The state of a run that came to its end."""
    if not any(counts.quarantined or counts.tasks_set_aside for counts in run.stats):
        return DONE
    got_through = run.journal.outputs or run.journal.file_rows or any(counts.dropped for counts in run.stats)
    return DONE_WITH_FAILURES if got_through else FAILED


def _everything_set_aside(directory: RunDirectory) -> str:
    first = next(iter(directory.quarantined(1)), {})
    example = f" The first problem, in stage {first['stage']!r}: {first['problem']}" if "problem" in first else ""
    return f"every row was set aside, none was processed: they are in {directory.quarantine}.{example}"


def _peak_memory() -> int:
    """Highest resident memory of this process in bytes; 0 where it cannot be read."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
