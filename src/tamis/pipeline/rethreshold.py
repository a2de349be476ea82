"""A new output with other thresholds, made from the scores that a run has kept.

Rows that are kept before and after are copied from the existing output. Rows that were dropped by a changed criterion,
and whose score in the drop ledger passes now, are read from the source again, and only they run through the stages.
Rows whose score does not pass any more are left out: their scores are in the output, in the column ``score_field``, or
in ``scores/`` of the run directory (``run(keep_scores=True)``).

The new files have the names, the rows and the order of rows that a full run with the new thresholds writes. Files of
JSON lines have the same bytes. This holds for stages that treat each row by itself. For other pipelines see
``threshold_rerun.py``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.backends.group_spec import RunPaths
from tamis.backends.partial_run import PartialRun
from tamis.backends.payload import decode_payload
from tamis.errors import DataError, PlanError, StageError
from tamis.pipeline.threshold_changes import ChangedCriterion, DroppedPositions, changed_criteria, shape_problem
from tamis.pipeline.threshold_rerun import redirect, rerun
from tamis.pipeline.written_rows import WrittenRows
from tamis.plan import Plan
from tamis.runs.directory import RunDirectory
from tamis.runs.dropped_rows import ledger_of
from tamis.runs.failures import failures
from tamis.runs.finished_work import FinishedWork
from tamis.runs.kept_scores import kept_scores
from tamis.runs.mirror import local_run
from tamis.runs.publication import publish, sync
from tamis.runs.report import load_summary
from tamis.runs.stats import DONE, DONE_WITH_FAILURES
from tamis.stages.base import SourceStage
from tamis.stages.io.paths import absolute, base_name
from tamis.stages.io.writers import WriterStage
from tamis.stages.text.filters.chain import KeepStep, Rows
from tamis.stages.text.forms import name_of
from tamis.tasks import DocumentBatch, FileGroup
from tamis.tasks.base import digest
from tamis.tasks.views import view_of

if TYPE_CHECKING:
    from tamis.backends.base import Executor
    from tamis.pipeline import Pipeline

__all__ = ["Rethresholded", "rethreshold"]

EXAMPLES: Final = 5
PASSES: Final = 16
"""How often the drop ledger is read, each time for some of the input files, so that little of it is in memory."""


@dataclass
class Rethresholded:
    """What changed.

    Args:
        output: The directory of the new output.
        kept_by_both: Rows that are in the earlier and in the new output; ``None`` where the records do not tell.
        newly_kept: Rows that are only in the new output.
        newly_dropped: Rows that are only in the earlier output.
        rescored: Rows that were read from the source again, to run through the stages.
        files: How many files the new output has.
        examples_kept: Names and texts of some rows that are kept now: ``row``, ``text``.
        examples_dropped: Some rows that are not any more: ``file``, ``line``, ``text``, or ``row``, ``text``.
        run_dir: The run that made the new output; empty if it was made from the stored scores.
        reason: Why the output does not follow from the stored scores, so that the pipeline ran again.
    """

    output: str
    kept_by_both: int | None = 0
    newly_kept: int = 0
    newly_dropped: int = 0
    rescored: int = 0
    files: int = 0
    examples_kept: list[dict[str, Any]] = field(default_factory=list)
    examples_dropped: list[dict[str, Any]] = field(default_factory=list)
    run_dir: str = ""
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def rethreshold(
    run_dir: str,
    before: Pipeline,
    after: Pipeline,
    output: str | None = None,
    executor: Executor | None = None,
    recipe: str = "",
) -> Rethresholded:
    """Write the output that a run would have with other thresholds.

    Args:
        run_dir: The run's directory.
        before: The pipeline of the run.
        after: The same with other thresholds, and another directory to write to, which must not be there or be empty.
        output: The directory to write to, instead of what ``after`` says.
        executor: What runs the pipeline where the output does not follow from stored scores.
        recipe: The new pipeline as a recipe, for the record of that run; empty if there is none.
    """
    plans = before.plan(), after.plan()
    if output is not None:
        redirect(plans[1], absolute(output))
    run_dir = local_run(run_dir)
    state = load_summary(run_dir).state
    if state not in (DONE, DONE_WITH_FAILURES):
        raise PlanError(f"{run_dir}: the run has not come to its end. Start it again first")
    reason = next(filter(None, map(shape_problem, plans)), "")
    if not reason and any(one.kind != "row" for one in failures(run_dir)):
        reason = "tasks, or rows that could not be read, were set aside"
    if not reason:
        return _from_scores(run_dir, *plans)
    from tamis.pipeline.pipeline import default_executor

    chosen = executor or default_executor()
    plan = after.plan(chosen)
    if output is not None:
        redirect(plan, absolute(output))
    return replace(rerun(run_dir, plans[0], plan, chosen, recipe), reason=reason)


def _from_scores(run_dir: str, before: Plan, after: Plan) -> Rethresholded:
    """The new output from the earlier one, the scores of its rows and those of dropped rows."""
    changes = changed_criteria(before, after)
    sinks = [plan.vertices[-1].stage for plan in (before, after)]
    assert isinstance(sinks[0], WriterStage)
    assert isinstance(sinks[1], WriterStage)
    output = sinks[1].destination.path
    if os.path.isdir(output) and os.listdir(output):
        raise PlanError(f"{output}: the directory for the new output is not empty. Choose another one")
    _check_scores(changes, sinks[0], run_dir)
    has_dropped = any(stats.dropped for stats in load_summary(run_dir).stages)
    if has_dropped and ledger_of(run_dir) is None and any(change.admits_more for change in changes):
        raise PlanError(
            f"{run_dir}: the run has no drop ledger (--no-drop-ledger), which has the scores of dropped rows"
        )
    return _Rethreshold(run_dir, before, after, sinks[0], sinks[1], changes).run()


def _check_scores(changes: Sequence[ChangedCriterion], sink: WriterStage, run_dir: str) -> None:
    """Refuse a stricter criterion whose scores were not kept."""
    has_scores = os.path.isdir(os.path.join(run_dir, "scores"))
    for change in changes:
        if change.admits_less and not has_scores and change.column_in(sink) is None:
            raise PlanError(
                f"{change.stage!r} is stricter now, but the scores of the rows that it kept are not in the output. Run "
                "the whole pipeline with the new thresholds. To have the scores the next time: "
                "tamis run --keep-scores, run(keep_scores=True), or score_field=... of this stage"
            )


class _Rethreshold:
    def __init__(
        self,
        run_dir: str,
        before: Plan,
        after: Plan,
        old: WriterStage,
        new: WriterStage,
        changes: Sequence[ChangedCriterion],
    ) -> None:
        self._run_dir, self._before, self._after, self._old, self._new = run_dir, before, after, old, new
        self._looser = [change for change in changes if change.admits_more]
        self._stricter = [change for change in changes if change.admits_less]
        self._result = Rethresholded(new.destination.path)
        self._set_aside = _rows_set_aside(run_dir)
        self._stored: dict[tuple[str, int], NDArray[np.float64]] = {}  # of the rows of a file, by stricter criterion

    def run(self) -> Rethresholded:
        directory = RunDirectory(self._run_dir)
        finished = FinishedWork(directory)
        try:
            files = _files_of_tasks(finished)
            tasks = list(self._tasks(finished))
        finally:
            finished.close()
        writer = len(self._after.vertices) - 1
        places = RunPaths()
        with (
            PartialRun(self._before, places, until=2) as reader,
            PartialRun(self._after, places, until=writer) as stages,
        ):
            size = max(1, -(-len(tasks) // PASSES))
            for start in range(0, len(tasks), size):
                some = tasks[start : start + size]
                drops = self._drops(some)
                for task in some:
                    written = {base_name(path): path for path in sorted(files.get(task.task_id, ()))}
                    self._load_scores(task, list(written.values()), drops)
                    if any(len(drops.candidates.get(s.path, ())) for s in task.slices):
                        self._task(task, reader, stages, drops, written)
                    else:
                        for path in written.values():
                            self._file(path)
        return self._result

    def _tasks(self, finished: FinishedWork) -> Iterator[FileGroup]:
        """The tasks of the run, with the ids and places that they had."""
        source = self._before.vertices[0]
        assert isinstance(source.stage, SourceStage)
        source.stage.keep_groups(finished.groups.get(source.name, ()))
        end = finished.finished or {}
        if source.stage.current_input_id() != end.get("input"):
            raise PlanError("the input has changed since the run. Start the run again first, or run the whole pipeline")
        numbers = finished.numbers[source.name]
        for task in source.stage.splits(""):
            content = task.get_deterministic_id()
            task.order = (numbers[content].popleft(),)
            task.task_id = digest(content, "", source.name)
            yield task

    # -- what the drop ledger says -------------------------------------------------------------------------------------

    def _drops(self, tasks: Sequence[FileGroup]) -> DroppedPositions:
        """Which rows of some tasks were dropped, and which of those may be kept now."""
        import pyarrow.dataset as ds

        ledger = ledger_of(self._run_dir)
        found = DroppedPositions()
        none = np.zeros(0, np.int64)
        for source, positions in self._set_aside.items():
            found.add(source, positions, none)
        if ledger is None:
            return found
        paths = sorted({s.path for task in tasks for s in task.slices})
        for batch in ledger.to_batches(
            columns=["source", "position", "stage", "reason", "score"], filter=ds.field("source").isin(paths)
        ):
            if not len(batch):
                continue
            positions = numpy_array(batch.column("position"))
            may_pass = self._may_pass(batch)
            encoded = batch.column("source").dictionary_encode()
            codes = numpy_array(encoded.indices)
            for code, path in enumerate(encoded.dictionary.to_pylist()):
                of_path = codes == code
                found.add(path, positions[of_path], positions[of_path & may_pass])
        return found

    def _may_pass(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        import pyarrow.compute as pc

        mask = np.zeros(len(batch), np.bool_)
        for change in self._looser:
            is_its = pc.and_(
                pc.equal(batch.column("stage"), change.stage), pc.equal(batch.column("reason"), change.reason)
            )
            rows = np.flatnonzero(numpy_array(is_its))
            scores = numpy_array(batch.column("score").fill_null(math.nan))[rows]
            mask[rows] |= change.may_keep(scores)
        return mask

    def _load_scores(self, task: FileGroup, files: Sequence[str], drops: DroppedPositions) -> None:
        """The scores of the rows in some files, from the run directory, where the files do not have them."""
        self._stored.clear()
        stored = os.path.join(self._run_dir, "scores", f"1-{task.task_id}.parquet")  # the reader is the vertex 1
        for number, change in enumerate(self._stricter if files else ()):
            if change.column_in(self._old) is not None:
                continue
            found = kept_scores(stored, change.stage, name_of(change.before.operation))
            counts = [len(WrittenRows.read(path, self._old)) for path in files]
            scores = np.zeros(0) if found is None else found[0][~drops.are_named(found[1], found[2])]
            if len(scores) != sum(counts):
                raise DataError(
                    f"the run has kept {len(scores)} scores of {change.stage!r} for {sum(counts)} rows of the output",
                    path=stored,
                    hint="It was not run with --keep-scores from its start on, or the stage ran in another worker than "
                    "the reader. Run the whole pipeline with the new thresholds.",
                )
            ends = np.cumsum(counts)
            for path, piece in zip(files, np.split(scores, ends[:-1]), strict=True):
                self._stored[path, number] = piece

    # -- one file of the output ----------------------------------------------------------------------------------------

    def _task(
        self, task: FileGroup, reader: PartialRun, stages: PartialRun, drops: DroppedPositions, written: dict[str, str]
    ) -> None:
        """The files of a task of which some rows are kept now that were not before."""
        outcome = reader.run(1, [task])
        if outcome.failure is not None:
            raise StageError(f"the input cannot be read again: {outcome.failure.error}")
        for envelope in outcome.outputs:
            block = decode_payload(envelope.payload)
            assert isinstance(block, DocumentBatch)
            name = self._old.name_for(block)
            candidates = drops.are_in(block, drops.candidates)
            if name in written and not candidates.any():
                self._file(written[name])
            elif name in written or candidates.any():
                self._merge(block, candidates, drops, written.get(name), stages)

    def _merge(
        self,
        block: DocumentBatch,
        candidates: NDArray[np.bool_],
        drops: DroppedPositions,
        path: str | None,
        stages: PartialRun,
    ) -> None:
        places = np.flatnonzero(~drops.are_in(block, drops.all))
        rows = WrittenRows.read(path, self._old) if path is not None else WrittenRows(self._old)
        if path is not None and len(rows) != len(places):
            raise DataError(
                f"the output has {len(rows)} rows where the records of the run have {len(places)}",
                path=path,
                hint="It was changed since the run, or a stage changes the number of rows. Run the whole pipeline.",
            )
        places = places if path is not None else places[:0]
        _check_order(block, places, rows)
        kept = self._still_kept(rows, path)
        added = self._rescored(block, np.flatnonzero(candidates), stages)
        new, at = (None, np.zeros(0, np.int64)) if added is None else (added, _places_of(added, block))
        self._write(self._new.name_for(block), rows.merged(kept, places, new, at))

    def _file(self, path: str) -> None:
        """A file to which no row is added."""
        rows = WrittenRows.read(path, self._old)
        kept = self._still_kept(rows, path)
        self._write(base_name(path), rows.merged(kept, np.arange(len(rows)), None, np.zeros(0, np.int64)))

    def _still_kept(self, rows: WrittenRows, path: str | None) -> NDArray[np.bool_]:
        """Which rows of the earlier output all stricter criteria keep."""
        mask = np.ones(len(rows), np.bool_)
        for number, change in enumerate(self._stricter if len(rows) else ()):
            column = change.column_in(self._old) or "score"
            stored = self._stored.get((path or "", number))
            table = rows.columns([column]) if stored is None else pa.table({column: stored})
            if column not in table.column_names:
                raise DataError(
                    f"the output has no column {column!r} with the scores of {change.stage!r}", path=path or ""
                )
            left = Rows(DocumentBatch(table), [change.stage])
            KeepStep(change.after.operation, column, None, change.after.invert).run(left)
            kept = np.zeros(len(rows), np.bool_)
            kept[left.left] = True
            mask &= kept
        self._result.kept_by_both = (self._result.kept_by_both or 0) + int(mask.sum())
        self._result.newly_dropped += int((~mask).sum())
        for row in np.flatnonzero(~mask)[: EXAMPLES - len(self._result.examples_dropped)].tolist():
            self._result.examples_dropped.append({"file": path, "line": row + 1, "text": rows.text(row)})
        return mask

    def _rescored(self, block: DocumentBatch, rows: NDArray[np.int64], stages: PartialRun) -> DocumentBatch | None:
        """Some rows of the input, after all stages with the new thresholds."""
        if not len(rows):
            return None
        self._result.rescored += len(rows)
        outcome = stages.run(2, [block.select(rows)])
        if outcome.failure is not None:
            raise StageError(f"stage {outcome.failure.stage!r}: {outcome.failure.error}")
        made: list[Any] = [decode_payload(envelope.payload) for envelope in outcome.outputs]
        if not made:
            return None
        batch = view_of(type(made[0]).concat(made), DocumentBatch)
        self._result.newly_kept += batch.num_items
        names, source = batch.names, block.names
        assert names is not None
        assert source is not None
        for row in range(min(batch.num_items, EXAMPLES - len(self._result.examples_kept))):
            texts = [v for v in batch.data.slice(row, 1).to_pylist()[0].values() if isinstance(v, str)]
            self._result.examples_kept.append({"row": names.text(row), "text": max(texts, key=len, default="")})
        return batch

    def _write(self, name: str, made: WrittenRows) -> None:
        if not len(made):
            return
        schema = made.schema()
        item = self._new.write(name, len(made), made.write, schema)
        publish(sync(item))
        self._result.files += 1


def _rows_set_aside(run_dir: str) -> dict[str, NDArray[np.int64]]:
    """The positions of the rows that were set aside, by their source."""
    found: dict[str, list[int]] = {}
    for one in failures(run_dir):
        if one.position is not None:
            found.setdefault(one.source, []).append(one.position)
    return {source: np.array(positions, np.int64) for source, positions in found.items()}


def _files_of_tasks(finished: FinishedWork) -> dict[str, list[str]]:
    """The output files by the task of the input that they were made of."""
    roots: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    for batch in finished.unused():
        root = roots.get(batch.tasks[0], batch.tasks[0])
        roots.update({entry["id"]: root for entry in batch.outputs if entry["to"]})
        files.setdefault(root, []).extend(str(file["path"]) for file in batch.files if file["rows"])
    return files


def _places_of(batch: DocumentBatch, block: DocumentBatch) -> NDArray[np.int64]:
    """Where the rows of a batch are in the block that they come from."""
    names, all_names = batch.names, block.names
    assert names is not None
    assert all_names is not None
    known = {name: place for place, name in enumerate(all_names.to_texts())}
    return np.array([known[name] for name in names.to_texts()], np.int64)


def _check_order(block: DocumentBatch, places: NDArray[np.int64], rows: WrittenRows) -> None:
    """Refuse an output whose rows are in another order than those of the input."""
    if not len(rows):
        return
    written = rows.columns(block.get_columns())
    for name in written.column_names:
        given = block.data.column(name).take(pa.array(places)).to_pylist()
        found = written.column(name).to_pylist()
        if given != found and sorted(map(repr, given)) == sorted(map(repr, found)):
            raise DataError(
                f"the rows of the output are in another order than those of the input, by the column {name!r}: a stage "
                "changes the order. Run the whole pipeline with the new thresholds"
            )
