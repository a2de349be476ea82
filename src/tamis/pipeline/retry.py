"""Runs again what a run has set aside, after a fix: what passes now becomes output of the run.

The rows that pass are written to files of their own, whose numbers end in 900000000 and more, which no other file has.
The ledger gets a new line for the batch that they belong to, in the place of the earlier one. So a later start of the
run counts these files as finished, and neither removes nor repeats them.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tamis.backends.group_spec import RunPaths
from tamis.backends.isolation import Isolation
from tamis.backends.outcome import Failure
from tamis.backends.partial_run import PartialOutcome, PartialRun, barrier_after
from tamis.backends.payload import output_entry
from tamis.errors import PlanError, StageError, did_you_mean, redacted
from tamis.pipeline.asides import Aside, identified, renumbered, write_record
from tamis.pipeline.outputs import Outputs
from tamis.plan import Plan
from tamis.runs.directory import RunDirectory, kept_output
from tamis.runs.drops import joined_drops, write_drops
from tamis.runs.failures import failures
from tamis.runs.finished_work import FinishedBatch
from tamis.runs.histograms import read_scores, write_scores
from tamis.runs.journal import MAX_LISTED, ledger_entry
from tamis.runs.ledger import Ledger
from tamis.runs.publication import publish, sync
from tamis.runs.quarantine import FailedRows
from tamis.runs.report import load_summary, write_report
from tamis.runs.set_aside import DATA, tasks_set_aside
from tamis.runs.stats import DONE, DONE_WITH_FAILURES, RunSummary, StageStats
from tamis.stages.emit import Publish
from tamis.stages.io.paths import is_local, remove_file
from tamis.stages.scratch import write_file
from tamis.tasks import FileGroup

__all__ = ["RetryResult", "retry_run"]

QUARANTINE_EXAMPLES: Final = 20


@dataclass
class RetryResult:
    """What came of it.

    Args:
        run_dir: The run's directory.
        passed: Rows that were set aside and are not any more. Of tasks that stand for files the rows read of them.
        failed: Rows and tasks that failed again; they stay in the quarantine, with the new cause.
        left: Rows that could not be read. They cannot be run again: the run reads its input anew if a file changes.
        files: Output files that were written.
        summary: The counts of the run, brought up to date.
    """

    run_dir: str
    summary: RunSummary
    passed: int = 0
    failed: int = 0
    left: int = 0
    files: list[str] = field(default_factory=list)


def retry_run(plan: Plan, run_dir: str, stage: str = "") -> RetryResult:
    """Run again what a run has set aside.

    Args:
        plan: The plan of the pipeline, as it is now.
        run_dir: The run's directory.
        stage: Only what this stage failed on.
    """
    if is_local(run_dir):
        load_summary(run_dir)  # it is a run
    with RunDirectory.create(plan.name, run_dir) as directory:
        load_summary(directory.path)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        outputs = Outputs(plan, directory, [], started)
        if outputs.finished.finished is None:
            raise PlanError(
                f"{directory.address}: the run has not come to its end. Start it again: it goes on where it stopped, "
                "and runs again nothing but what is missing"
            )
        try:
            with outputs:
                return _Retry(plan, directory, outputs).run(stage)
        finally:  # data between stages of a run that has not come to its end would be needed to go on
            directory.remove_scratch()


class _Retry:
    """One retry: from the quarantine to the report."""

    def __init__(self, plan: Plan, directory: RunDirectory, outputs: Outputs) -> None:
        self._plan, self._directory, self._outputs = plan, directory, outputs
        self._numbers = {vertex.name: vertex.index for vertex in plan.vertices}
        self._summary = load_summary(directory.path)
        self._end = dict(outputs.finished.finished or {})
        self._result = RetryResult(directory.address, self._summary)
        self._count = 0
        has_drops = os.path.isdir(directory.drops) or not any(s.dropped for s in self._summary.stages)
        self._places = RunPaths(
            directory.scratch, directory.quarantine, directory.outputs, directory.drops if has_drops else ""
        )

    def run(self, stage: str) -> RetryResult:
        directory = self._directory
        batches = self._batches()
        work = [(batch, list(self._asides(batch, stage))) for batch in batches]
        for _, asides in work:
            for aside in asides:
                self._refuse_barrier(aside.vertex)
        self._count = max((n["retried"] for n in Ledger.read(directory.ledger) if "retried" in n), default=0)
        self._result.left = sum(1 for one in failures(directory.path, stage) if one.kind == "unreadable")
        if any(asides for _, asides in work):
            self._scores = read_scores(directory.path)
            self._ledger = Ledger(directory.ledger)
            try:
                between = os.path.join(directory.scratch, "")
                with PartialRun(self._plan, self._places, is_between=lambda path: path.startswith(between)) as part:
                    for batch, asides in work:
                        if asides:
                            self._repeat(part, batch, asides)
                self._finish()
            finally:
                self._ledger.close()
        return self._result

    def _batches(self) -> list[FinishedBatch]:
        """The batches with something in the quarantine. All batches count as part of the run."""
        finished, found = self._outputs.finished, []
        for batch in list(finished.unused()):
            finished.find(batch.key, batch.tasks)
            if any(file["path"].startswith(self._directory.quarantine) for file in batch.files):
                found.append(batch)
        return found

    def _asides(self, batch: FinishedBatch, stage: str) -> Iterator[Aside]:
        """What a batch has set aside and a stage can be given again."""
        folder = self._directory.quarantine
        paths = [f["path"] for f in batch.files if f["path"].startswith(folder) and os.path.exists(f["path"])]
        records = (
            {record.data: record for record in tasks_set_aside(folder)} if any(p.endswith(DATA) for p in paths) else {}
        )
        whole: list[Aside] = []
        for path in paths:
            if path.endswith(".parquet"):
                rows = FailedRows.read(path)
                if stage in ("", rows.stage):
                    task = identified(rows.rows, rows.place)
                    yield Aside(self._vertex(rows.stage), [task], [path], rows)
            elif path.endswith(DATA):
                record = records[os.path.basename(path)]
                if stage in ("", record.stage):
                    beside = path.removesuffix(DATA) + ".jsonl"
                    whole.append(
                        Aside(self._vertex(record.first_stage), [record.read()], [path, beside], records=[record])
                    )
        if batch.set_aside and whole:  # they were given to the stage at once
            tasks = [task for aside in whole for task in aside.tasks]
            together = [record for aside in whole for record in aside.records]
            yield Aside(whole[0].vertex, tasks, [p for aside in whole for p in aside.paths], records=together)
        else:
            yield from whole

    def _vertex(self, name: str) -> int:
        if name not in self._numbers:
            raise PlanError(
                f"the pipeline has no stage {name!r}, where rows were set aside.{did_you_mean(name, self._numbers)} "
                "Retry takes the same pipeline with mended stages; to run a changed one: --fresh, run(fresh=True)"
            )
        return self._numbers[name]

    def _refuse_barrier(self, vertex: int) -> None:
        barrier = barrier_after(self._plan, vertex)
        if barrier:
            raise PlanError(
                f"what stage {self._plan.vertices[vertex].name!r} has set aside cannot be run again by itself, because "
                f"after it {barrier}. Run the whole pipeline again: --fresh, run(fresh=True)"
            )

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _repeat(self, part: PartialRun, batch: FinishedBatch, asides: Sequence[Aside]) -> None:
        counts = {name: StageStats.from_record(name, record) for name, record in batch.counts.items()}
        released: list[str] = []
        published: list[Publish] = []
        outputs: list[dict[str, Any]] = []
        drops = []
        log: list[str] = []
        set_aside = batch.set_aside
        for aside in asides:
            self._count += 1
            outcome = self._run(part, aside)
            if outcome.failure is not None:
                published += self._failed_again(aside, outcome.failure)
                released += aside.paths if aside.rows is not None else ()
                self._result.failed += aside.count
                continue
            set_aside = False
            released += aside.paths
            self._take_out(counts, aside, whole=batch.set_aside)
            for number, stats in outcome.stats.items():
                name = self._plan.vertices[number].name
                counts.setdefault(name, StageStats(name)).add(stats)
                for criterion, histogram in stats.scores.items():
                    known = self._scores.setdefault(name, {})
                    known[criterion] = known[criterion] if criterion in known else type(histogram).like(histogram)
                    known[criterion].add(histogram)
            again = sum(stats.quarantined + stats.tasks_uncounted for stats in outcome.stats.values())
            self._result.failed += again
            self._result.passed += max(0, aside.count - again)
            published += outcome.published
            drops += outcome.drops
            outputs += [output_entry(envelope, self._plan) for envelope in outcome.outputs]
            log += [json.dumps({"order": e.order, **kept_output(e.payload)}) for e in outcome.outputs]
        self._commit(batch, counts, released, published, outputs, drops, log, set_aside)

    def _run(self, part: PartialRun, aside: Aside) -> PartialOutcome:
        tasks = [renumbered(task, self._count) for task in aside.tasks]
        name = self._plan.vertices[aside.vertex].name
        outcome = part.run(aside.vertex, tasks, Isolation((name,) if aside.has_killed else ()))
        if outcome.failure is not None and not outcome.failure.of_items:
            raise StageError(f"stage {outcome.failure.stage!r}: {outcome.failure.error}") from outcome.failure.exception
        for item in outcome.published:
            self._outputs.check(item)
        return outcome

    def _failed_again(self, aside: Aside, failure: Failure) -> Iterator[Publish]:
        """Give what stays in the quarantine its new cause."""
        name = self._plan.vertices[aside.vertex].name
        at = "" if failure.stage == name else f"in {failure.stage!r}, after it passed {name!r}: "
        kind = "WorkerDied" if failure.died else failure.kind
        message = at + failure.error.removeprefix(f"{kind}: ")
        if aside.rows is not None:
            count = aside.rows.rows.num_items
            again = replace(
                aside.rows, errors=[kind] * count, messages=[message] * count, tracebacks=[failure.frames] * count
            )
            stem = aside.paths[0].removesuffix(".parquet").rpartition("-again")[0] or aside.paths[0].removesuffix(
                ".parquet"
            )
            yield write_file(f"{stem}-again{self._count}.parquet", 0, again.write)
        for record in aside.records:
            mended = replace(
                record,
                stage=failure.stage,
                error=kind,
                message=failure.error,
                traceback=failure.frames,
                attempts=record.attempts + 1,
            )
            final = os.path.join(record.directory, record.data.removesuffix(DATA) + ".jsonl")
            yield write_file(final, 0, functools.partial(write_record, mended))

    def _take_out(self, counts: dict[str, StageStats], aside: Aside, *, whole: bool) -> None:
        """Take what is run again out of the counts: it is counted again."""
        if whole:
            counts.clear()
            return
        stats = counts.setdefault(
            self._plan.vertices[aside.vertex].name, StageStats(self._plan.vertices[aside.vertex].name)
        )
        stats.tasks_in -= 1
        if isinstance(aside.tasks[0], FileGroup):
            stats.tasks_set_aside -= 1
            stats.tasks_uncounted -= 1
        else:
            stats.quarantined -= aside.count
            stats.rows_in -= aside.count

    def _commit(
        self,
        batch: FinishedBatch,
        counts: dict[str, StageStats],
        released: list[str],
        published: list[Publish],
        outputs: list[dict[str, Any]],
        drops: list[Any],
        log: list[str],
        set_aside: bool,
    ) -> None:
        """Make it durable, in the order of the journal: data, then the ledger, then the names."""
        published = [sync(item) for item in published]
        lines: list[dict[str, Any]] = [{"retried": self._count, "released": released}]
        replaced = {redacted(item.final) for item in published}
        files = [f for f in batch.files if f["path"] not in released and f["path"] not in replaced]
        changed = replace(
            batch,
            outputs=[*batch.outputs, *outputs],
            counts={name: stats.record() for name, stats in counts.items()},
            set_aside=set_aside,
        )
        lines.append(changed.line([*files, *map(ledger_entry, published)]))
        if drops:
            table = joined_drops([(batch.key, some) for some in drops])
            final = os.path.join(self._directory.drops, f"{self._ledger.segment:06d}-{self._count:06d}.parquet")
            item = write_file(final, table.num_rows, lambda sink: write_drops(table, sink))
            published.append(item)
            lines.append({"drops": table.num_rows, "files": [ledger_entry(item)]})
        for line in lines:
            self._ledger.append(line)
        self._ledger.commit()
        for item in published:
            publish(item)
        if log:
            with Path(self._directory.path, "outputs.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in log)
        for path in released:
            remove_file(path)
        self._add_up(batch, counts, published)

    # -- the run -------------------------------------------------------------------------------------------------------

    def _add_up(self, batch: FinishedBatch, counts: dict[str, StageStats], published: Sequence[Publish]) -> None:
        """Bring the counts of the run up to date."""
        stages = {stats.name: stats for stats in self._summary.stages}
        for name, stats in counts.items():
            stages[name].add(replace(stats, scores={}))
        for name, record in batch.counts.items():
            stages[name].subtract(StageStats.from_record(name, record))
        for item in published:
            if not (item.beside or self._directory.keeps(item.final)):
                path = redacted(item.final)
                self._result.files.append(path)
                self._summary.output_files += 1
                self._summary.output_rows += item.rows
                self._summary.output_bytes += item.nbytes
                if len(self._summary.outputs) < MAX_LISTED:
                    self._summary.outputs.append({"path": path, "rows": item.rows, "bytes": item.nbytes})

    def _finish(self) -> None:
        """Put the output in order, end the ledger, and write summary and report."""
        summary = self._summary

        def resized(item: Publish, grown: int) -> None:
            summary.output_bytes += grown
            self._ledger.append({"resized": redacted(item.final), "bytes": item.nbytes})

        messages = self._outputs.finish(resized)
        summary.notes = [*summary.notes, *(m for m in messages if m not in summary.notes)]
        is_clean = not (summary.rows_set_aside or summary.tasks_set_aside)
        summary.state = DONE if is_clean else DONE_WITH_FAILURES
        self._ledger.append({**self._end, "finished": summary.state})
        self._ledger.commit()
        summary.quarantine = self._directory.quarantined(QUARANTINE_EXAMPLES)
        self._directory.write_summary(summary)
        for stats in summary.stages:
            stats.scores = self._scores.get(stats.name, {})
        write_scores(self._directory.path, summary.stages)
        write_report(self._directory.path)
