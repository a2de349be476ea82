"""All that a page shows of one run, read from its directory: of one that has ended, and of one that is running."""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tamis.errors import DataError, TamisError
from tamis.runs.histograms import ScoreHistogram, read_scores
from tamis.runs.image_rows import image_at_path
from tamis.runs.pages.drop_query import Cursor, DroppedRow
from tamis.runs.pages.timeline import Sample, last_sample, read_samples
from tamis.runs.past_runs import KILLED, RUNNING, run_state
from tamis.runs.source_rows import ReadLimits, RowFormat, SourceRow, format_of, read_rows
from tamis.runs.stats import RunSummary, StageStats
from tamis.runs.thumbnails import MOST_BYTES, Thumbnail, image_bytes_of, may_hold_images, thumbnail
from tamis.stages.io.paths import is_local
from tamis.tasks.storage import check_trusted

NO_REASON_YET: Final = "dropped so far"
"""Stands for the reasons of drops while a run goes on and they are not known."""

_ONE_IMAGE: Final = ReadLimits(scan_bytes=32 * 2**20, group_bytes=256 * 2**20)
_IMAGES_AT_ONCE: Final = 4

_READERS: Final = {"CsvReaderStage": "csv", "TextReaderStage": "text"}
_FORMAT_FIELDS: Final = ("delimiter", "newlines_in_values", "unit", "text_field")
_COUNTS: Final = ("tasks_in", "tasks_out", "rows_in", "rows_out", "bytes_in", "bytes_out", "quarantined", "retries")


@dataclass
class RunView:
    """One run.

    Args:
        path: Its directory.
        summary: What was counted; of a running run, so far.
        outline: The plan as :func:`tamis.plan.outline.outline` gives it; empty if the run did not write one.
        samples: The run over time.
        scores: Histograms of scores, by stage and criterion.
    """

    path: str
    summary: RunSummary
    outline: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    scores: Mapping[str, Mapping[str, ScoreHistogram]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the directory."""
        return os.path.basename(os.path.abspath(self.path))

    @property
    def is_running(self) -> bool:
        """Whether it is going on."""
        return self.summary.state == RUNNING

    def read_texts(
        self, dropped: Sequence[DroppedRow], limits: ReadLimits | None = None, most_s: float = 10.0, side: int = 0
    ) -> list[SourceRow]:
        """The rows as they are in their sources, in the same order; no source is opened after ``most_s`` seconds.

        Args:
            dropped: The rows.
            limits: How much is read.
            most_s: Seconds.
            side: With images, the longer side of small pictures of them, in pixels; no pictures when 0.
        """
        began = time.monotonic()
        by_source: dict[str, list[int]] = {}
        for row in dropped:
            if row.position is not None:
                by_source.setdefault(row.source, []).append(row.position)
        problem = self.distrust()
        found: dict[tuple[str, int], SourceRow] = {}
        for source, positions in by_source.items():
            if problem or time.monotonic() - began > most_s:
                problem = problem or "not read, since reading took too long"
                break
            for some in self._portions(source, positions, side):
                rows = read_rows(
                    source,
                    some,
                    row_format=self.row_format(source),
                    limits=replace(limits or ReadLimits(), media_bytes=MOST_BYTES if side else 0),
                    changed_after=self._ended(),
                )
                found.update({(source, row.position): _with_picture(row, side) for row in rows})
        unknown = problem or "the ledger does not say which row of the source it was"
        return [found.get((d.source, d.position or 0)) or SourceRow(d.source, -1, problem=unknown) for d in dropped]

    def has_image(self, row: DroppedRow) -> bool:
        """Whether a row of the source is an image, or has one."""
        if self.distrust() or not self._may_hold_images(row.source):
            return False
        return self.read_texts([row], _ONE_IMAGE, side=8)[0].picture is not None

    def _may_hold_images(self, source: str) -> bool:
        """Whether a source has a column for images, where that is known without reading rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        row_format = self.row_format(source)
        if row_format is None or row_format.kind != "parquet" or not is_local(source):
            return True
        try:
            return any(may_hold_images(field) for field in pq.read_schema(source))
        except (OSError, pa.ArrowException):
            return True

    def row_at(self, source: str, position: int) -> DroppedRow:
        """The row at a place, as :meth:`read_texts` takes it."""
        return DroppedRow(Cursor(0, 0), "", "", source, position, "", None)

    def _portions(self, source: str, positions: list[int], side: int) -> Iterator[list[int]]:
        """The positions to read at once: images are large, and only small pictures of them stay."""
        row_format = self.row_format(source)
        is_large = side and row_format is not None and row_format.kind in ("tar", "image")
        each = _IMAGES_AT_ONCE if is_large else max(len(positions), 1)
        yield from (positions[at : at + each] for at in range(0, len(positions), each))

    def text_of(self, row: SourceRow) -> str:
        """The text of a row: the column that the stages read, or else its longest text; of an image, its caption."""
        values = row.values
        for name in self._text_fields():
            if isinstance(values.get(name), str):
                return str(values[name])
        texts = [value for value in values.values() if isinstance(value, str)]
        return max(texts, key=len) if texts else json.dumps(values, ensure_ascii=False, default=repr)

    def distrust(self) -> str:
        """Why the sources that the ledger names are not opened: somebody else could have written these names."""
        try:
            check_trusted(self.path)
        except (TamisError, OSError):
            return "the run directory is not yours alone, so the files it names are not read"
        return ""

    def _ended(self) -> float | None:
        """When the run ended; sources that changed later are not what it read."""
        try:
            return datetime.fromisoformat(self.summary.started).timestamp() + self.summary.seconds + 2
        except (ValueError, OverflowError):
            return None

    def row_format(self, source: str) -> RowFormat | None:
        """How rows of a source were read: by the parameters of the readers in the plan, or by its name."""
        by_name = format_of(source)
        for vertex in self.outline.get("vertices", ()):
            if by_name is None or _READERS.get(str(vertex.get("stage"))) != by_name.kind:
                continue
            given = {name: _literal(text) for name, text in vertex["parameters"].items()}
            known = {name: given[name] for name in _FORMAT_FIELDS if isinstance(given.get(name), str | bool)}
            return replace(by_name, **known)
        return by_name

    def _text_fields(self) -> list[str]:
        fields = [
            _literal(vertex.get("parameters", {}).get("text_field", "")) for vertex in self.outline.get("vertices", ())
        ]
        return [*dict.fromkeys(name for name in fields if isinstance(name, str)), "text", "caption"]


def load_view(run_dir: str) -> RunView:
    """Everything about a run.

    Raises:
        DataError: It is not a run directory, or what it holds cannot be read.
    """
    from tamis.runs.report import load_summary

    state = run_state(run_dir)
    if state in (RUNNING, KILLED):
        return view_of(run_dir, _summary_so_far(run_dir, state, read_outline(run_dir)))
    return view_of(run_dir, load_summary(run_dir))


def view_of(run_dir: str, summary: RunSummary) -> RunView:
    """A run whose summary is known already, and what else its directory holds."""
    return RunView(run_dir, summary, read_outline(run_dir), read_samples(run_dir), read_scores(run_dir))


def read_outline(run_dir: str) -> dict[str, Any]:
    """``plan.json`` of a run, as far as it is what :func:`tamis.plan.outline.outline` writes; empty otherwise."""
    outline = _json(run_dir, "plan.json")
    vertices = outline.get("vertices")
    if not isinstance(vertices, list) or not all(map(_is_vertex, vertices)):
        return {}
    groups = outline.get("groups")
    known = isinstance(groups, list) and all(isinstance(group, dict) for group in groups)
    return {"name": str(outline.get("name", "")), "vertices": vertices, "groups": groups if known else []}


def _is_vertex(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    edges, parameters = value.get("edges"), value.setdefault("parameters", {})
    return (
        isinstance(parameters, dict) and isinstance(edges, dict) and all(isinstance(to, int) for to in edges.values())
    )


def _summary_so_far(run_dir: str, state: str, outline: Mapping[str, Any]) -> RunSummary:
    """What is known of a run that has written no summary."""
    mark = _json(run_dir, "run.lock")
    sample = last_sample(run_dir)
    if not mark and sample is None and not outline and not os.path.isdir(os.path.join(run_dir, "ledger")):
        hint = "'tamis run' prints the path of its run directory; 'tamis runs' lists them."
        raise DataError("this is not a run directory: it has no run.json", path=run_dir, hint=hint)
    plan = ""
    path = Path(run_dir, "plan.txt")
    if path.is_file():
        plan = path.read_text(encoding="utf-8", errors="replace")
    return RunSummary(
        pipeline=str(outline.get("name") or os.path.basename(os.path.abspath(run_dir))),
        started=str(mark.get("since") or ""),
        seconds=sample.seconds if sample else 0.0,
        state=state,
        stages=_stages_so_far(sample, outline),
        plan=plan,
    )


def _stages_so_far(sample: Sample | None, outline: Mapping[str, Any]) -> list[StageStats]:
    internal = {vertex["name"]: bool(vertex.get("internal")) for vertex in outline.get("vertices", ())}
    names = list(internal) or list(sample.stages if sample else ())
    stages = []
    for name in names:
        stage = StageStats(name, internal=internal.get(name, False))
        if sample is not None:
            for count in _COUNTS:
                setattr(stage, count, int(sample.count(name, count)))
            stage.seconds = sample.count(name, "seconds")
            stage.dropped = _dropped(sample.stages.get(name, {}).get("dropped"))
        stages.append(stage)
    return stages


def _with_picture(row: SourceRow, side: int) -> SourceRow:
    """The row with a small picture in place of the bytes of its image."""
    name, data = image_bytes_of(row.values)
    values = {key: value for key, value in row.values.items() if key != name or not name}
    path = row.values.get("image_path")
    if not side or row.problem:
        return replace(row, values=values)
    if data is not None:
        return replace(row, values=values, picture=thumbnail(data, side))
    if isinstance(path, str) and path:
        place = (row.values.get(key) for key in ("byte_offset", "byte_size"))
        offset, size = (value if isinstance(value, int) else None for value in place)
        found = image_at_path(path, offset, size, most=MOST_BYTES)
        return replace(row, picture=Thumbnail(problem=found) if isinstance(found, str) else thumbnail(found, side))
    return row


def _dropped(value: Any) -> dict[str, int]:
    """Dropped rows by reason; while the run goes on the reasons may not be known."""
    if isinstance(value, Mapping):
        return {str(reason): int(count) for reason, count in value.items() if isinstance(count, int)}
    return {NO_REASON_YET: int(value)} if isinstance(value, int) and value > 0 else {}


def _json(run_dir: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(run_dir, name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _literal(text: Any) -> Any:
    """The value that the text of a parameter stands for; ``None`` if it is not a plain one."""
    try:
        return ast.literal_eval(text) if isinstance(text, str) and len(text) < 500 else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
