"""The story of one row of a run: where it comes from, what each stage did with it, and where it is now."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

from tamis.errors import DataError
from tamis.runs.dropped_rows import DroppedRow, Thresholds, drops_of_row
from tamis.runs.failures import Failed, failures_of_row
from tamis.runs.lineage import InputFile, MadeFiles, files_made_of, tasks_with
from tamis.runs.output_rows import OutputRow, find_output_rows
from tamis.runs.pages import drop_query
from tamis.runs.pages.run_view import RunView, load_view
from tamis.runs.past_runs import KILLED, RUNNING
from tamis.runs.plan_paths import PlanPaths, Way
from tamis.runs.row_lookup import (
    RowName,
    find_file,
    has_byte_positions,
    line_of,
    near_rows,
    parse_name,
    row_at_line,
    rows_with,
)
from tamis.runs.source_rows import ReadLimits, SourceRow

__all__ = ["RowEnd", "RowStory", "StageStep", "why"]

_LIMITS: Final = ReadLimits(row_bytes=64 * 2**20, scan_bytes=2**30, value_characters=2**31)
_MOST_FILES: Final = 20

Fate = Literal["kept", "dropped", "set aside", "not processed", "unknown"]


@dataclass(frozen=True)
class RowEnd:
    """What became of a row, or of a piece of it.

    Args:
        row: Its name, with the piece.
        fate: ``"kept"``, ``"dropped"``, ``"set aside"``, ``"not processed"`` (the run has not come to it) or
            ``"unknown"``.
        stage: The stage that dropped it or failed on it; of a kept row the one that wrote it, where that is known.
        reason: Why it was dropped or set aside, or why nothing more is known.
        score: The score that led to a drop.
        low, high: The lowest and the highest score that are kept.
        files: The output files it is in: one, or several where it could not be found which of them.
        line: The number of the line, or of the row in a Parquet file, of the only output file; from 1.
        scores: The scores of a kept row, as far as the output has them as columns.
        original: Of a duplicate, the name of the row that is kept in its place.
        copy: The Tee that made the copy which this is about; empty for the row itself.
    """

    row: str
    fate: Fate
    stage: str = ""
    reason: str = ""
    score: float | str | None = None
    low: float | None = None
    high: float | None = None
    files: tuple[str, ...] = ()
    line: int | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    original: str = ""
    copy: str = ""


@dataclass(frozen=True)
class StageStep:
    """What happened at a stage.

    Args:
        stage: The stage, as in the plan.
        events: ``"passed"``, ``"not reached"``, ``"maybe"`` (in a branch that the row may have taken), ``"dropped"``,
            ``"set aside"`` or ``"written"``: several for a row whose pieces had different fates.
    """

    stage: str
    events: tuple[str, ...]


@dataclass(frozen=True)
class RowStory:
    """Everything that a run knows of a row.

    Args:
        row: Its name.
        source, position, part: The parts of the name.
        line: The number of its line in the source, from 1, where that can be counted.
        values: The row as it is in its source.
        text: Its text.
        problem: Why it could not be read back from its source; empty if it was.
        ends: What became of it. A row that was split has several ends, and the copies that a Tee makes have their own.
        stages: What happened at each stage, in the order of the plan.
    """

    row: str
    source: str
    position: int
    part: str
    line: int | None
    values: dict[str, Any]
    text: str
    problem: str
    ends: list[RowEnd]
    stages: list[StageStep]

    @property
    def fate(self) -> str:
        """What became of the row: the fate of all pieces, or ``"split"`` if they have different ones.

        What became of copies does not count.
        """
        fates = {end.fate for end in self.ends if not end.copy}
        return fates.pop() if len(fates) == 1 else "split"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"fate": self.fate, **asdict(self)}


def why(run_dir: str, row: str = "", *, line: bool = False, where: tuple[str, str] | None = None) -> RowStory:
    """The story of a row.

    Args:
        run_dir: The run's directory.
        row: The name of the row, ``source:position`` as reports show it. The last parts of the path are enough.
        line: Whether the number is that of a line of the file, counted from 1.
        where: Instead of a name, a column and a value that only this row has.

    Raises:
        DataError: It is not a run, or its input has no such row.
    """
    view = load_view(run_dir)
    formats = view.row_format
    if where is not None:
        found = rows_with(run_dir, *where, formats)
        if len(found) != 1:
            names = ", ".join(map(str, found))
            problem = f"several rows have {where[0]}={where[1]}: {names}" if found else ""
            raise DataError(problem or f"no row of the input has {where[0]}={where[1]}", path=run_dir)
        name = found[0]
        file = find_file(run_dir, name.source)
    else:
        name = parse_name(row)
        file = find_file(run_dir, name.source)
        source = name.source if file is None else file.path
        position = row_at_line(source, name.position, formats(source)) if line else name.position
        name = RowName(source, position, name.part)
    return _Search(view, name, file).story()


class _Search:
    """Puts together what the records of a run say of one row."""

    def __init__(self, view: RunView, name: RowName, file: InputFile | None) -> None:
        self._view, self._name, self._file = view, name, file
        self._format = view.row_format(name.source)
        self._paths = PlanPaths(view.outline)

    def story(self) -> RowStory:
        name, view = self._name, self._view
        thresholds = Thresholds(view.scores)
        drops = [d for d in drops_of_row(view.path, name.source, name.position, thresholds) if self._is_meant(d.part)]
        failed = [f for f in failures_of_row(view.path, name.source, name.position) if self._is_meant(f.part)]
        row = self._read()
        if row.problem and not drops and not failed:
            self._refuse(row)
        failed = self._relevant(failed)
        ends: list[RowEnd] = []
        for way in self._paths.ways:
            ends += self._ends(
                way,
                row,
                [drop for drop in drops if self._paths.way_of(drop.stage) is way],
                [one for one in failed if self._paths.way_of(one.stage) is way],
                ends,
            )
        return RowStory(
            str(name),
            name.source,
            name.position,
            name.part,
            line_of(name.source, name.position, self._format),
            row.values,
            view.text_of(row) if row.values else "",
            row.problem,
            ends,
            list(self._steps(ends)),
        )

    def _ends(
        self,
        way: Way,
        row: SourceRow,
        drops: Sequence[DroppedRow],
        failed: Sequence[Failed],
        before: Sequence[RowEnd],
    ) -> list[RowEnd]:
        """What became of the row on one way: none if it did not come there.

        Args:
            way: The way.
            row: The row.
            drops, failed: What the records say of it there.
            before: What became of it on the ways before.
        """
        ends = [self._dropped(drop, row) for drop in drops]
        ends += [
            RowEnd(f.name if f.kind == "row" else str(self._name), "set aside", f.stage, f.problem) for f in failed
        ]
        if not ends:
            came = self._came_to(way, before)
            ends += self._kept(row, way, is_sure=came == "passed") if came != "not reached" else ()
        elif all(
            part.startswith(f"{self._name.part}/") for part in [*(d.part for d in drops), *(f.part for f in failed)]
        ):
            ends += self._other_pieces(row, way)
        return [replace(end, copy=way.tee) for end in ends]

    def _came_to(self, way: Way, before: Sequence[RowEnd]) -> str:
        """Whether the row came to a way: ``"passed"``, ``"maybe"`` or ``"not reached"``."""
        if not way.tee:
            return "passed"
        found = {"not reached"}
        for end in before:
            if end.copy != self._paths.way_of(way.tee).tee or end.fate == "not processed":
                continue
            is_known = end.fate != "unknown" and self._paths.way_of(end.stage).tee == end.copy
            found.add(self._paths.passed(way.tee, end.stage if is_known else ""))
        return "passed" if "passed" in found else "maybe" if "maybe" in found else "not reached"

    def _is_meant(self, part: str) -> bool:
        """Whether a record of a piece is about the row: the piece itself, what it is a piece of, or a piece of it."""
        wanted = self._name.part
        return f"{part}/".startswith(f"{wanted}/") or f"{wanted}/".startswith(f"{part}/")

    def _read(self) -> SourceRow:
        name = self._name
        sought = drop_query.DroppedRow(drop_query.Cursor(0, 0), "", "", name.source, name.position, "", None)
        return self._view.read_texts([sought], _LIMITS)[0]

    def _refuse(self, row: SourceRow) -> None:
        """Raise if the input has no such row; a source that cannot be read at all is another matter."""
        if self._file is None or not row.problem.startswith("no row starts"):
            return
        name = self._name
        near = [f"{name.source}:{at}" for at in near_rows(name.source, name.position, self._format)]
        hint = f"Rows near it: {', '.join(near)}." if near else ""
        what = "byte" if has_byte_positions(self._format) else "row number"
        raise DataError(
            f"the input has no row at {what} {name.position}",
            path=name.source,
            hint=hint or "--line counts lines from 1.",
        )

    def _relevant(self, failed: Sequence[Failed]) -> list[Failed]:
        """Of tasks that stand for a file, only those that may hold the row."""
        if self._file is None:
            return list(failed)
        tasks = tasks_with(self._file, self._name.position, is_byte=has_byte_positions(self._format))
        return [f for f in failed if f.kind != "task" or not f.source or f.task in tasks or len(self._file.tasks) == 1]

    def _dropped(self, drop: DroppedRow, row: SourceRow) -> RowEnd:
        end = RowEnd(
            drop.name, "dropped", drop.stage, drop.reason, drop.score, drop.low, drop.high, original=drop.original
        )
        places = self._paths.places_of_dropped(drop.stage)
        if not places:
            return end
        files = [file for file in self._made.files if any(file["path"].startswith(place) for place in places)]
        found = self._found(row, files)
        return replace(end, files=found.files, line=found.line)

    @cached_property
    def _made(self) -> MadeFiles:
        """The files that may hold the row."""
        tasks: set[str] | None = None
        if self._file is not None and not self._paths.has_barrier:
            tasks = tasks_with(self._file, self._name.position, is_byte=has_byte_positions(self._format))
        return files_made_of(self._view.path, tasks)

    def _found(self, row: SourceRow, files: Sequence[Mapping[str, Any]]) -> RowEnd:
        """Where the row is among some files."""
        end = RowEnd(str(self._name), "kept")
        rows = find_output_rows(row.values, files) if row.values else []
        paths = tuple(dict.fromkeys(found.path for found in rows)) or tuple(str(file["path"]) for file in files)
        line = rows[0].line if len(rows) == 1 else None
        scores = self._scores(rows[0]) if len(rows) == 1 else {}
        return replace(end, files=paths[:_MOST_FILES], line=line, scores=scores)

    def _scores(self, row: OutputRow) -> dict[str, Any]:
        """The values of the columns that stages wrote scores to."""
        fields: list[str] = []
        for vertex in self._view.outline.get("vertices", ()):
            try:
                given = ast.literal_eval(vertex.get("parameters", {}).get("score_field", "None"))
            except (ValueError, SyntaxError):
                continue
            fields += [name for name in (given if isinstance(given, list) else [given]) if isinstance(name, str)]
        return {name: row.values[name] for name in dict.fromkeys(fields) if name in row.values}

    def _other_pieces(self, row: SourceRow, way: Way) -> Iterator[RowEnd]:
        """Where pieces of a row are that was split, if other pieces were dropped or set aside."""
        text = self._view.text_of(row) if row.values else ""
        rows = find_output_rows(row.values, self._kept_files(way))
        pieces = [r for r in rows if any(isinstance(v, str) and v in text and v for v in r.values.values())]
        if pieces:
            paths = tuple(dict.fromkeys(piece.path for piece in pieces))
            stages = {self._paths.writer_of(path) for path in paths}
            reason = "other pieces of it"
            yield RowEnd(str(self._name), "kept", stages.pop() if len(stages) == 1 else "", reason, files=paths)
        else:
            reason = "other pieces of it, if there are any: which pieces are kept is not recorded"
            yield RowEnd(str(self._name), "unknown", reason=reason)

    def _kept_files(self, way: Way) -> list[dict[str, Any]]:
        """Of the files that may hold the row, those of a way that are not of rows that were dropped."""
        dropped = self._paths.places_of_dropped()
        return [
            file
            for file in self._made.files
            if not any(file["path"].startswith(place) for place in dropped)
            and self._paths.way_of(self._paths.writer_of(file["path"])) is way
        ]

    def _kept(self, row: SourceRow, way: Way, *, is_sure: bool) -> Iterator[RowEnd]:
        """Where a row is that was neither dropped nor set aside.

        Args:
            row: The row.
            way: The way that is meant.
            is_sure: Whether it is known that the row came there; if not, it counts only where it is found.
        """
        name = str(self._name)
        files = self._kept_files(way)
        if not is_sure:
            rows = find_output_rows(row.values, files) if row.values else []
            files = [file for file in files if file["path"] in {found.path for found in rows}]
            if not files:
                return
        if self._file is None and row.problem:
            yield RowEnd(
                name,
                "unknown",
                reason="it was neither dropped nor set aside; the run does not record whether its input has this row",
            )
        elif self._made.is_removed:
            reason = "its file was removed from the input, or has changed, and a later start has removed what was made"
            yield RowEnd(name, "not processed", reason=reason)
        elif not self._made.is_finished:
            is_over = self._view.summary.state not in (RUNNING, KILLED)
            why_not = "the run ended before it came to this row" if is_over else "the run has not come to this row"
            yield RowEnd(name, "not processed", reason=why_not)
        elif not files:
            reason = "the run wrote no file for it: it is among the tasks of its result"
            yield RowEnd(name, "kept", reason="" if way.names & self._paths.writers.keys() else reason)
        else:
            found = self._found(row, files)
            stages = {self._paths.writer_of(path) for path in found.files}
            yield replace(found, stage=stages.pop() if len(stages) == 1 else "")

    def _steps(self, ends: Sequence[RowEnd]) -> Iterator[StageStep]:
        told: dict[str, list[str]] = {stage: [] for stage in self._paths.shown}
        for end in ends:
            if end.fate == "unknown":
                continue
            target = end.stage if end.stage in told else ""
            word = {"kept": "written", "not processed": "not reached"}.get(end.fate, end.fate)
            for stage in told:
                if self._paths.way_of(stage).tee != end.copy:
                    continue
                if stage == target:
                    event = word
                elif end.fate == "dropped" and stage in {self._paths.writer_of(path) for path in end.files}:
                    event = "written"
                elif end.fate == "not processed":
                    event = "not reached"
                else:
                    event = self._paths.passed(stage, target)
                if event not in told[stage]:
                    told[stage].append(event)
        came = {end.copy for end in ends}
        for stage, events in told.items():
            is_left_out = self._paths.way_of(stage).tee not in came
            yield StageStep(stage, ("not reached",) if is_left_out else tuple(events))
