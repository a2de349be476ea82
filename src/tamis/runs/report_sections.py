"""The parts of the HTML report. All text that comes from data goes through :func:`escaped`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.html import Tile, cell, escaped, fill, fixed, html_table, tiles_of
from tamis.runs.pages.drop_section import DropExample, reasons_section
from tamis.runs.pages.duplicate_section import duplicates_sections
from tamis.runs.pages.embedding_section import embeddings_section
from tamis.runs.pages.findings import findings
from tamis.runs.pages.flow import flow_picture
from tamis.runs.pages.image_section import images_sections
from tamis.runs.pages.links import Links
from tamis.runs.pages.run_view import RunView
from tamis.runs.pages.score_section import scores_section
from tamis.runs.pages.time_section import resources_section, throughput_section
from tamis.runs.past_runs import RUNNING
from tamis.runs.stats import RunSummary

SHOWN_EXAMPLES: Final = 20
"""How many quarantined rows a report shows."""

_SHOWN_OUTPUTS: Final = 200
_SHOWN_RAW: Final = 600
_SHOWN_TRACEBACK: Final = 6_000
_DOT: Final = " \N{MIDDLE DOT} "


def sections(view: RunView, links: Links, examples: Mapping[tuple[str, str], Sequence[DropExample]]) -> Iterator[str]:
    """The sections of the page, without those that have nothing to show."""
    summary, steps = view.summary, figures.steps(view.summary.stages)
    for section in (
        _flow(steps, view),
        _stages(steps, sum(stage.seconds for stage in summary.stages)),
        throughput_section(view, steps),
        reasons_section(steps, examples, links),
        *images_sections(view, steps),
        *duplicates_sections(view),
        embeddings_section(view),
        scores_section(view, steps),
        quarantine_section(summary, links),
        resources_section(view),
        _outputs(summary),
        _plan(summary),
        _environment(summary),
        _files_of_run(links),
    ):
        if section:
            yield section


def closing_line(summary: RunSummary) -> str:
    """The run in one sentence."""
    rows, lost = figures.rows_read(summary.stages), _lost(figures.steps(summary.stages))
    line = f"{printable(summary.pipeline)} {printable(summary.state)} in {figures.duration(summary.seconds)}"
    line += f": {figures.number(rows)} rows in"
    if lost <= rows:
        line += f", {figures.number(rows - lost)} kept ({figures.percent(_kept_share(rows, lost))})"
    if summary.output_files:
        line += f"; wrote {figures.number(summary.output_rows)} rows to {_files(summary.output_files)}"
        line += f" ({figures.size(summary.output_bytes)})"
    return line


def set_aside_words(summary: RunSummary) -> str:
    """How much a run set aside, in words; empty if nothing.

    >>> from tamis.runs.stats import StageStats
    >>> set_aside_words(RunSummary("p", stages=[StageStats("read", quarantined=3, tasks_set_aside=1)]))
    '3 rows and 1 task'
    """
    counts = ((summary.rows_set_aside, "row"), (summary.tasks_set_aside, "task"))
    return " and ".join(f"{figures.number(count)} {unit}{'s' * (count != 1)}" for count, unit in counts if count)


def tiles(summary: RunSummary) -> str:
    """The figures at the top of the page."""
    steps = figures.steps(summary.stages)
    rows, lost = figures.rows_read(summary.stages), _lost(steps)
    kept = figures.number(rows - lost) if lost <= rows else figures.percent(None)
    read_bytes = next((s.stage.bytes_out for s in steps if s.before and s.counts_rows), 0)
    quarantined = sum(step.stage.quarantined for step in steps)
    rows_per_s, mb_per_s = figures.speeds(rows, read_bytes, summary.seconds)
    written = f"{figures.number(summary.output_rows)} rows in {_files(summary.output_files)}"
    size, is_running = figures.size(summary.output_bytes), summary.state == RUNNING
    shown = [
        Tile("Rows in", figures.number(rows), f"{figures.size(read_bytes)} in memory" if read_bytes else ""),
        Tile("Rows kept", kept, f"{figures.percent(_kept_share(rows, lost))} of the input" if rows else ""),
        Tile("Dropped", figures.number(lost - quarantined), f"and {set_aside_words(summary) or 'nothing'} set aside"),
        Tile("Written", *(("\N{EN DASH}", "counted at the end") if is_running else (size, written))),
        Tile("Time", figures.duration(summary.seconds), moment(summary.started)),
        Tile("Rows/s", rows_per_s, f"{mb_per_s} MB/s"),
    ]
    return tiles_of(shown)


def findings_list(view: RunView) -> str:
    """What limits the run, as a list below the figures."""
    found = "".join(f"<li>{escaped(sentence)}</li>" for sentence in findings(view))
    return f'<ul class="findings">{found}</ul>' if found else ""


def _flow(steps: Sequence[Step], view: RunView) -> str:
    picture = flow_picture(steps, view.outline)
    if not picture:
        return ""
    return f"<h2>Rows through the stages<small>a stage opens to show its parameters</small></h2>{picture}"


def _stages(steps: Sequence[Step], all_seconds: float) -> str:
    if not steps:
        return ""
    hidden_seconds = all_seconds - sum(step.seconds for step in steps)
    rows = []
    for step in steps:
        stage = step.stage
        busy = step.seconds / all_seconds if all_seconds else 0.0
        rows_through, bytes_through = max(stage.rows_in, stage.rows_out), max(stage.bytes_in, stage.bytes_out)
        rows_per_s, mb_per_s = figures.speeds(rows_through, bytes_through, step.seconds)
        cells = [
            f'<td class="name">{escaped(stage.name)}</td>',
            cell(step.shown_before, step.before),
            cell(step.shown_after, step.after),
            cell(figures.number(step.lost) if step.lost else "", step.lost, "loss"),
            cell(figures.percent(step.kept_share), step.kept_share if step.kept_share is not None else -1),
            cell(figures.duration(step.seconds), step.seconds),
            f'<td data-value="{busy}"><span class="share">{fill(busy)}</span>{fixed(figures.percent(busy))}</td>',
            cell(rows_per_s, _per(rows_through, step.seconds)),
            cell(mb_per_s, _per(bytes_through, step.seconds)),
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ("Stage", "Rows in", "Rows out", "Lost", "Kept", "Time", "Share of time", "Rows/s", "MB/s")
    note = "time is summed over workers; speeds are those of one worker"
    if hidden_seconds > 0.01 * all_seconds:
        note += f"; {figures.percent(hidden_seconds / all_seconds)} of the time went into shuffles"
    return f"<h2>Stages<small>{note}</small></h2>{html_table(heads, rows, 'sortable')}"


def quarantine_section(summary: RunSummary, links: Links) -> str:
    """Some of the rows and tasks that were set aside."""
    total = summary.rows_set_aside + summary.tasks_set_aside
    if not total and not summary.quarantine:
        return ""
    examples = summary.quarantine[:SHOWN_EXAMPLES]
    more = set_aside_words(summary) + (f", {len(examples)} shown" if len(examples) < total else "")
    folder = "quarantine/"
    if "quarantine" in links.files:
        folder = f'<a href="{escaped(links.files["quarantine"])}">quarantine/</a>'
    return (
        f"<h2>Quarantine<small>{more}; everything set aside is in {folder}</small></h2>{quarantine_examples(examples)}"
    )


def quarantine_examples(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows and tasks that were set aside, one below the other."""
    shown = []
    for row in rows:
        name = row_name(row)
        raw = f'<pre class="raw">{escaped(row["raw"], _SHOWN_RAW)}</pre>' if row.get("raw") else ""
        frames = ""
        if row.get("traceback"):
            traceback = escaped(row["traceback"], _SHOWN_TRACEBACK)
            frames = f"<details><summary>Traceback</summary><pre>{traceback}</pre></details>"
        shown.append(
            f'<div class="example"><p>{escaped(row.get("problem", ""), 1000)}</p>'
            f'<p class="soft">{escaped(row.get("stage", ""))}{_DOT if name else ""}{escaped(name, 400)}</p>'
            f"{raw}{frames}</div>"
        )
    return "".join(shown)


def row_name(row: Mapping[str, Any]) -> str:
    """The name of a row, ``source:position``, and its line where that is known.

    >>> row_name({"source": "a.jsonl", "position": 99, "line": 3}), row_name({"path": "a.parquet"})
    ('a.jsonl:99, line 3', 'a.parquet')
    """
    source, position = row.get("source") or row.get("path") or "", row.get("position")
    name = f"{source}:{position}{row.get('part') or ''}" if position is not None else str(source)
    return f"{name}, line {row['line']}" if row.get("line") is not None else name


def _outputs(summary: RunSummary) -> str:
    if not summary.outputs:
        return ""
    rows = []
    for output in summary.outputs[:_SHOWN_OUTPUTS]:
        count, nbytes = output.get("rows") or 0, output.get("bytes") or 0
        rows.append(
            f'<tr><td class="name"><code>{escaped(output.get("path", ""))}</code></td>'
            f"{cell(figures.number(count), count)}{cell(figures.size(nbytes), nbytes)}</tr>"
        )
    table = html_table(("File", "Rows", "Size"), rows, "sortable")
    if len(rows) > 12:
        table = f"<details><summary>Show {len(rows)} files</summary>{table}</details>"
    more = f"{_files(summary.output_files)}, {figures.size(summary.output_bytes)}"
    if len(rows) < summary.output_files:
        more += f"; the first {len(rows)} are listed"
    return f"<h2>Output<small>{more}</small></h2>{table}"


def _plan(summary: RunSummary) -> str:
    return f"<h2>Plan</h2><pre>{escaped(summary.plan)}</pre>" if summary.plan else ""


def _environment(summary: RunSummary) -> str:
    facts = {
        "Executor": summary.executor,
        "Started": moment(summary.started),
        "Peak memory of the driver": figures.size(summary.peak_memory_bytes) if summary.peak_memory_bytes else "",
        "Retries": figures.number(sum(stage.retries for stage in summary.stages)),
        "tamis": summary.tamis,
    }
    shown = "".join(f"<dt>{name}</dt><dd>{escaped(value)}</dd>" for name, value in facts.items() if value)
    return f'<h2>Environment</h2><dl class="facts">{shown}</dl>'


# --- pieces ---------------------------------------------------------------------------------------------------------


def _files_of_run(links: Links) -> str:
    if not links.files or links.drops is not None:  # pages that are served have their own links
        return ""
    shown = "".join(f'<a href="{escaped(href)}">{escaped(name)}</a>' for name, href in links.files.items())
    return f'<h2>Files of the run</h2><p class="files">{shown}</p>'


def _lost(steps: Sequence[Step]) -> int:
    return sum(step.lost for step in steps)


def _kept_share(rows: int, lost: int) -> float | None:
    """The share of the input that was kept; not known when stages made more rows than they were given."""
    return (rows - lost) / rows if rows and lost <= rows else None


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0


def _files(count: int) -> str:
    return f"{figures.number(count)} file" + ("" if count == 1 else "s")


def moment(started: str) -> str:
    """``2026-01-31T12:00:00.5+00:00`` as ``2026-01-31 12:00:00 UTC``."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", started)
    return f"{match[1]} {match[2]} UTC" if match else started
