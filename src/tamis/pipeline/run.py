"""One run of a plan, from the run directory to the report."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import tamis
from tamis.backends.base import Executor, Run
from tamis.backends.contracts import FAILURE_BUDGET, FailurePolicy
from tamis.errors import AllSetAsideError, DataError, PlanError, RunInterrupted, TamisError, redacted
from tamis.pipeline.data_cards import has_data_card, write_data_cards
from tamis.pipeline.monitor import RunMonitor
from tamis.pipeline.nothing_to_do import FinishedMark
from tamis.pipeline.outputs import Outputs, fingerprint
from tamis.pipeline.path_conflicts import check_path_conflicts
from tamis.plan import Plan
from tamis.plan.outline import outline
from tamis.printable import MESSAGE_CHARACTERS, shortened
from tamis.runs.directory import RunDirectory
from tamis.runs.histograms import write_scores
from tamis.runs.journal import RunJournal
from tamis.runs.manifest import MANIFEST, start_of, with_start
from tamis.runs.past_runs import unfinished_run
from tamis.runs.process_memory import peak_memory
from tamis.runs.progress import Observer, choose_progress
from tamis.runs.report import load_summary, write_report
from tamis.runs.result import RunResult
from tamis.runs.stats import DONE, DONE_WITH_FAILURES, FAILED, INTERRUPTED, RunSummary
from tamis.runs.stop import StopSignal
from tamis.stages.io.output_directory import remove_ended_lock
from tamis.stages.io.paths import cannot_write
from tamis.stages.io.sink import FileSink
from tamis.tasks import Task

QUARANTINE_EXAMPLES = 20


def run_plan(
    plan: Plan,
    executor: Executor,
    initial: Sequence[Task[Any]],
    description: str,
    run_dir: str | os.PathLike[str] | None,
    progress: Literal["auto", "live", "plain", "off"] | Observer,
    drop_ledger: bool = True,
    scratch: str | None = None,
    recipe: str = "",
    fresh: bool = False,
    failure_budget: float | None = FAILURE_BUDGET,
    keep_scores: bool = False,
    *,
    monitor: RunMonitor,
    data_card: bool = True,
) -> RunResult:
    """Carry out a plan. The run directory gets a summary and a report even if the run fails."""
    failures = FailurePolicy.within(failure_budget)
    executor.check(plan)
    check_path_conflicts(plan, run_dir)
    observer = choose_progress(progress) if isinstance(progress, str) else progress
    same = fingerprint(plan)
    if run_dir is None and not fresh:
        run_dir = unfinished_run(os.path.join(".tamis", "runs"), plan.name, same)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with RunDirectory.create(plan.name, run_dir, fresh=fresh) as directory:
        if directory.manifest and directory.manifest["pipeline"] != plan.name:
            raise PlanError(
                f"{directory.address} holds a run of another pipeline, {directory.manifest['pipeline']!r}. Give "
                "another run directory, or start over with --fresh, run(fresh=True)"
            )
        mark = FinishedMark(plan, directory, initial, same)
        finished_tasks = None if fresh else mark.output_tasks
        if finished_tasks is not None:
            return _complete(plan, directory, observer, finished_tasks)
        outputs = Outputs(plan, directory, initial, started, fresh=fresh)
        left = mark.files() if outputs.finished.finished is not None else ""
        if outputs.are_complete and _has_record(directory):
            messages = _missing_cards(plan, directory, outputs) if data_card else []
            outputs.finished.close()
            mark.write(left, directory.output_count())
            return _complete(plan, directory, observer, messages=messages)
        start = start_of(plan, executor.describe(), recipe, started, same)
        with outputs:  # last, since it may remove earlier output
            if fresh:
                directory.clear()
            if scratch is not None:
                directory.keep_scratch_at(scratch)
            directory.begin(start)
            manifest = with_start(directory.manifest, directory.run_id, plan.name, start)
            directory.write_text(MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
            journal = RunJournal(directory, check=outputs.check, finished=outputs.finished)
            with StopSignal() as stop:
                run = Run(directory, journal, observer, stop, initial, drop_ledger, failures, keep_scores=keep_scores)
                result = _run(plan, executor, description, run, outputs, started, monitor)
                if data_card:
                    for message in write_data_cards(plan, directory, outputs, result.summary):
                        observer.message(message)
            count = result.summary.output_files + journal.beside_count
            mark.write(mark.files(count, result.summary.output_bytes + journal.beside_bytes), len(result))
            return result


def _has_record(directory: RunDirectory) -> bool:
    """Whether the latest start has written its summary: it may have been killed when everything else was done."""
    starts = directory.manifest.get("starts") or [{}]
    try:
        summary = load_summary(directory.path)
    except DataError:
        return False
    return summary.state in (DONE, DONE_WITH_FAILURES) and summary.started == starts[-1].get("started")


def _missing_cards(plan: Plan, directory: RunDirectory, outputs: Outputs) -> list[str]:
    """Write the data cards of a run that an earlier start has finished, if it was killed before it wrote them."""
    summary = load_summary(directory.path)
    sinks = [vertex.stage for vertex in plan.vertices if isinstance(vertex.stage, FileSink)]
    if all(has_data_card(sink.destination, summary) for sink in sinks):
        return []
    outputs.use_all()
    return write_data_cards(plan, directory, outputs, summary)


def _complete(
    plan: Plan,
    directory: RunDirectory,
    observer: Observer,
    output_tasks: int | None = None,
    messages: Sequence[str] = (),
) -> RunResult:
    """The result of a run that an earlier start has finished."""
    for message in messages:
        observer.message(message)
    if not os.path.exists(os.path.join(directory.path, "report.html")):
        write_report(directory.path)
    directory.remove_scratch()
    for sink in (vertex.stage for vertex in plan.vertices if isinstance(vertex.stage, FileSink)):
        remove_ended_lock(sink.destination.path, directory.address)
    summary = load_summary(directory.path)
    observer.message(
        f"There is nothing to do: {directory.address} holds this run, finished, and its input has not changed. To "
        "start over: --fresh, run(fresh=True)"
    )
    return RunResult(directory, summary, output_tasks)


def _run(
    plan: Plan, executor: Executor, description: str, run: Run, outputs: Outputs, started: str, monitor: RunMonitor
) -> RunResult:
    began = time.monotonic()
    state = FAILED
    failure: BaseException | None = None
    directory, observer = run.directory, run.observer
    notes = _tell(observer, _notes(plan), [])
    try:
        monitor.begin(run, executor.describe())
        notes = _tell(observer, [*outputs.damage, *_continued(directory, outputs)], notes)
        directory.write_text("plan.txt", f"{redacted(str(plan))}\n")
        directory.write_text("plan.json", json.dumps(outline(plan), ensure_ascii=False))
        state = _final_state(run) if executor.execute(plan, run) else INTERRUPTED
        notes = _tell(observer, _notes(plan), notes)
        if state in (DONE, DONE_WITH_FAILURES):
            notes = _tell(observer, _removed(run.journal.removed), notes)
            notes = _tell(observer, outputs.finish(run.journal.resized), notes)
            run.journal.finish(outputs.end(state))
        elif state == FAILED:
            failure = AllSetAsideError(_everything_set_aside(directory))
    except KeyboardInterrupt:
        state = INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - raised again below, when the run has its record
        state, failure = FAILED, _explained(error, directory)
    for counts in run.stats:  # the order must not depend on which task was finished first
        counts.dropped, counts.custom = (dict(sorted(counts.dropped.items())), dict(sorted(counts.custom.items())))
    summary = RunSummary(
        pipeline=plan.name,
        description=description,
        executor=executor.describe(),
        started=started,
        state=state,
        stages=run.stats,
        plan=redacted(str(plan)),
        error="" if failure is None else _shown(failure),
        notes=notes,
        peak_memory_bytes=peak_memory(),
        tamis=tamis.__version__,
    )
    monitor.end(state, run.stats, summary.error)
    unrecorded = _record(run.journal, directory, summary, began)
    if failure is not None:
        if unrecorded is not None:
            failure.add_note(f"  the record of the run is not complete: {unrecorded}")
        if isinstance(failure, Exception):
            failure.add_note(f"  the run's directory is {directory.address}")
        raise failure
    if unrecorded is not None:
        raise unrecorded
    if state in (DONE, DONE_WITH_FAILURES):
        directory.remove_scratch()
    if state == INTERRUPTED:
        raise RunInterrupted(
            f"Stopped. {summary.output_files} files with {summary.output_rows} rows are finished; they stay where they "
            f"are. The same command goes on where it stopped. What was done so far: tamis report {directory.address}"
        )
    return RunResult(directory, summary)


def _record(journal: RunJournal, directory: RunDirectory, summary: RunSummary, began: float) -> TamisError | None:
    """Close the journal and write summary and report; return what went wrong, so that it hides no other error."""
    problem: TamisError | None = None
    try:
        journal.close()
    except (OSError, TamisError) as error:
        problem = _unwritten(error, directory)
        summary.state, summary.error = FAILED, summary.error or redacted(str(problem))
    summary.seconds = time.monotonic() - began
    summary.outputs, summary.output_files = journal.files, journal.file_count
    summary.output_rows, summary.output_bytes = journal.file_rows, journal.file_bytes
    summary.tasks_before = journal.tasks_before
    try:
        summary.quarantine = directory.quarantined(QUARANTINE_EXAMPLES)
        write_scores(directory.path, summary.stages)
        directory.write_summary(summary)  # the sign, for a later start, that there is nothing to do
        write_report(directory.path)
    except (OSError, TamisError) as error:
        problem = problem or _unwritten(error, directory)
    return problem


def _unwritten(error: OSError | TamisError, directory: RunDirectory) -> TamisError:
    return error if isinstance(error, TamisError) else cannot_write(error.filename or directory.path, error)


def _explained(error: BaseException, directory: RunDirectory) -> BaseException:
    """An error of the disk in words; any other as it is."""
    if not isinstance(error, OSError) or isinstance(error, TamisError):
        return error
    in_run_directory = str(error.filename or "").startswith(directory.path)
    if in_run_directory or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG):
        explained = cannot_write(error.filename or directory.path, error)
        explained.__cause__ = error
        return explained
    return error


def _continued(directory: RunDirectory, outputs: Outputs) -> list[str]:
    """What to say of a run that is continued."""
    if not directory.manifest:
        return []
    first = directory.manifest["starts"][0]["started"]
    return [
        f"The run of {first} in {directory.address} is continued: {len(outputs.finished)} batches of tasks were "
        "finished. To start over: --fresh, run(fresh=True)"
    ]


def _removed(files: list[str]) -> list[str]:
    """What to say of output of earlier starts that was removed."""
    if not files:
        return []
    count = "1 output file" if len(files) == 1 else f"{len(files)} output files"
    verb = "was" if len(files) == 1 else "were"
    return [f"{count} whose input or stages have changed since {verb} removed, {files[0]} among them"]


def _notes(plan: Plan) -> list[str]:
    return [f"{vertex.name}: {note}" for vertex in plan.vertices for note in vertex.stage.notes()]


def _tell(observer: Observer, messages: list[str], told: list[str]) -> list[str]:
    """Show the messages that were not shown yet; return all of them."""
    new = [m for m in messages if m not in told]
    for message in new:
        observer.message(message)
    return [*told, *new]


def _shown(failure: BaseException) -> str:
    """What the record says of an error: without secrets, and not longer than a person reads."""
    return redacted(shortened("\n".join([str(failure), *getattr(failure, "__notes__", [])]), 2 * MESSAGE_CHARACTERS))


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
