"""The parts of the HTML report. All text that comes from data goes through :func:`escaped`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tamis.printable import printable
from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.html import Tile, cell, escaped, fill, fixed, html_table, tiles_of
from tamis.runs.stats import RunSummary

SHOWN_EXAMPLES: Final = 20
"""How many quarantined rows a report shows."""

_SHOWN_OUTPUTS: Final = 200
_SHOWN_RAW: Final = 600
_MINUS: Final = "\N{MINUS SIGN}"
_DOT: Final = " \N{MIDDLE DOT} "


def sections(summary: RunSummary) -> Iterator[str]:
    """The sections of the page, without those that have nothing to show."""
    steps = figures.steps(summary.stages)
    for section in (
        _funnel(steps),
        _stages(steps),
        _reasons(steps),
        _quarantine(summary),
        _outputs(summary),
        _plan(summary),
        _environment(summary),
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
    shown = [
        Tile("Rows in", figures.number(rows), f"{figures.size(read_bytes)} in memory" if read_bytes else ""),
        Tile("Rows kept", kept, f"{figures.percent(_kept_share(rows, lost))} of the input" if rows else ""),
        Tile("Dropped", figures.number(lost - quarantined), f"and {set_aside_words(summary) or 'nothing'} set aside"),
        Tile("Written", figures.size(summary.output_bytes), written),
        Tile("Time", figures.duration(summary.seconds), _moment(summary.started)),
        Tile("Rows/s", rows_per_s, f"{mb_per_s} MB/s"),
    ]
    return tiles_of(shown)


def _funnel(steps: Sequence[Step]) -> str:
    """A picture of the rows through the stages: each band narrows by the rows that the stage lost."""
    shown = [step for step in steps if step.before and step.counts_rows]
    if not shown:
        return ""
    height, gap, width, left, right = 30, 8, 1000, 250, 700
    middle, widest = (left + right) / 2, max(step.before for step in shown)
    parts = []
    for i, step in enumerate(shown):
        top = i * (height + gap)
        half_before, half_after = ((right - left) / 2 * rows / widest for rows in (step.before, step.after))
        baseline = top + height / 2 + 4.5
        kept = escaped(figures.percent(step.kept_share))
        lost = f'<tspan class="loss">{_MINUS}{figures.number(step.lost)}</tspan>' if step.lost else ""
        name = figures.short_name(step.stage.name, 34)
        parts.append(
            f"<g><title>{escaped(step.stage.name)}: {figures.number(step.before)} \N{RIGHTWARDS ARROW} "
            f"{figures.number(step.after)} rows</title>"
            f'<text x="0" y="{baseline}">{escaped(name)}</text>'
            f'<rect class="lost" x="{middle - half_before:.1f}" y="{top}" '
            f'width="{max(2 * half_before, 1):.1f}" height="{height}" rx="2"/>'
            f'<path class="kept" d="M{middle - half_before:.1f} {top} H{middle + half_before:.1f} '
            f'L{middle + half_after:.1f} {top + height} H{middle - half_after:.1f} Z"/>'
            f'<text x="790" y="{baseline}" text-anchor="end">{figures.number(step.after)}</text>'
            f'<text x="900" y="{baseline}" text-anchor="end">{lost}</text>'
            f'<text class="muted" x="{width}" y="{baseline}" text-anchor="end">{kept}</text>'
            "</g>"
        )
    total = len(shown) * (height + gap) - gap
    picture = (
        f'<div class="wide"><svg class="funnel" viewBox="0 0 {width} {total}" role="img" '
        'aria-label="Rows kept by each stage">'
        f"{''.join(parts)}</svg></div>"
    )
    return (
        f"<h2>Rows through the stages<small>rows kept, rows lost, and the share each stage kept</small></h2>{picture}"
    )


def _stages(steps: Sequence[Step]) -> str:
    if not steps:
        return ""
    all_seconds = sum(step.stage.seconds for step in steps)
    rows = []
    for step in steps:
        stage = step.stage
        busy = stage.seconds / all_seconds if all_seconds else 0.0
        rows_through, bytes_through = max(stage.rows_in, stage.rows_out), max(stage.bytes_in, stage.bytes_out)
        rows_per_s, mb_per_s = figures.speeds(rows_through, bytes_through, stage.seconds)
        cells = [
            f'<td class="name">{escaped(stage.name)}</td>',
            cell(step.shown_before, step.before),
            cell(step.shown_after, step.after),
            cell(figures.number(step.lost) if step.lost else "", step.lost, "loss"),
            cell(figures.percent(step.kept_share), step.kept_share if step.kept_share is not None else -1),
            cell(figures.duration(stage.seconds), stage.seconds),
            f'<td data-value="{busy}"><span class="share">{fill(busy)}</span>{fixed(figures.percent(busy))}</td>',
            cell(rows_per_s, _per(rows_through, stage.seconds)),
            cell(mb_per_s, _per(bytes_through, stage.seconds)),
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ("Stage", "Rows in", "Rows out", "Lost", "Kept", "Time", "Share of time", "Rows/s", "MB/s")
    return (
        "<h2>Stages<small>time is summed over workers; speeds are those of one worker</small></h2>"
        f"{html_table(heads, rows, 'sortable')}"
    )


def _reasons(steps: Sequence[Step]) -> str:
    """A bar for each reason, the longest first within each stage."""
    found = [(step, reason, count) for step in steps for reason, count in losses(step)]
    if not found:
        return ""
    most = max(count for _, _, count in found)
    rows = []
    for i, (step, reason, count) in enumerate(found):
        is_first = i == 0 or found[i - 1][0] is not step
        rows.append(
            f'<tr class="{"first" if is_first else ""}">'
            f'<td class="name">{escaped(step.stage.name) if is_first else ""}</td>'
            f'<td class="name left">{escaped(reason, 200)}</td>'
            f'<td class="bar"><span class="track">{fill(count / most, "lost")}</span></td>'
            f"{cell(figures.number(count))}{cell(figures.percent(count / step.before if step.before else None))}</tr>"
        )
    heads = ("Stage", "Reason", "", "Rows", "Of its input")
    table = html_table(heads, rows, "grouped").replace("<th>Reason", '<th class="left">Reason')
    return f"<h2>Why rows were dropped</h2>{table}"


def _quarantine(summary: RunSummary) -> str:
    total = summary.rows_set_aside + summary.tasks_set_aside
    if not total and not summary.quarantine:
        return ""
    examples = summary.quarantine[:SHOWN_EXAMPLES]
    shown = []
    for row in examples:
        name = row_name(row)
        raw = f'<pre class="raw">{escaped(row["raw"], _SHOWN_RAW)}</pre>' if row.get("raw") else ""
        shown.append(
            f'<div class="example"><p>{escaped(row.get("problem", ""), 1000)}</p>'
            f'<p class="soft">{escaped(row.get("stage", ""))}{_DOT if name else ""}{escaped(name, 400)}</p>'
            f"{raw}</div>"
        )
    more = set_aside_words(summary) + (f", {len(examples)} shown" if len(examples) < total else "")
    return f"<h2>Quarantine<small>{more}; everything set aside is in quarantine/</small></h2>{''.join(shown)}"


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
        "Started": _moment(summary.started),
        "Peak memory of the driver": figures.size(summary.peak_memory_bytes) if summary.peak_memory_bytes else "",
        "Retries": figures.number(sum(stage.retries for stage in summary.stages)),
        "tamis": summary.tamis,
    }
    shown = "".join(f"<dt>{name}</dt><dd>{escaped(value)}</dd>" for name, value in facts.items() if value)
    return f'<h2>Environment</h2><dl class="facts">{shown}</dl>'


# --- pieces ---------------------------------------------------------------------------------------------------------


def losses(step: Step) -> Iterator[tuple[str, int]]:
    """Why a stage lost rows, and how many: the most frequent reason first."""
    yield from sorted(step.stage.dropped.items(), key=lambda item: -item[1])
    if step.stage.quarantined:
        yield "quarantined", step.stage.quarantined


def _lost(steps: Sequence[Step]) -> int:
    return sum(step.lost for step in steps)


def _kept_share(rows: int, lost: int) -> float | None:
    """The share of the input that was kept; not known when stages made more rows than they were given."""
    return (rows - lost) / rows if rows and lost <= rows else None


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0


def _files(count: int) -> str:
    return f"{figures.number(count)} file" + ("" if count == 1 else "s")


def _moment(started: str) -> str:
    """``2026-01-31T12:00:00.5+00:00`` as ``2026-01-31 12:00:00 UTC``."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", started)
    return f"{match[1]} {match[2]} UTC" if match else started
