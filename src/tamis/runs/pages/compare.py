"""Two runs side by side: what each stage kept, why rows were dropped, how long it took, and which parameters differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.html import cell, escaped, html_table
from tamis.runs.pages.drop_section import losses
from tamis.runs.pages.run_view import RunView

_SHOWN_REASONS: Final = 200
_SHOWN_PARAMETERS: Final = 200
_NOTABLE: Final = 0.0005


def compare_runs(first: RunView, second: RunView, first_name: str, second_name: str) -> str:
    """The comparison as sections of a page."""
    names = (escaped(first_name, 40), escaped(second_name, 40))
    sections = (
        _totals(first, second, names),
        _stages(first, second),
        _reasons(first, second),
        _parameters(first, second),
    )
    return "".join(f"<section>{section}</section>" for section in sections if section)


def _totals(first: RunView, second: RunView, names: tuple[str, str]) -> str:
    rows = []
    for label, values in (
        ("State", [view.summary.state for view in (first, second)]),
        ("Rows in", [figures.number(figures.rows_read(view.summary.stages)) for view in (first, second)]),
        ("Rows written", [figures.number(view.summary.output_rows) for view in (first, second)]),
        ("Bytes written", [figures.size(view.summary.output_bytes) for view in (first, second)]),
        ("Rows set aside", [figures.number(view.summary.rows_set_aside) for view in (first, second)]),
        ("Time", [figures.duration(view.summary.seconds) for view in (first, second)]),
        ("Executor", [view.summary.executor for view in (first, second)]),
        ("tamis", [view.summary.tamis for view in (first, second)]),
    ):
        rows.append(f'<tr><td class="name">{label}</td>{"".join(cell(value) for value in values)}</tr>')
    return f"<h2>Runs</h2>{html_table(('', *names), rows)}"


def _steps(view: RunView) -> dict[str, Step]:
    return {step.stage.name: step for step in figures.steps(view.summary.stages)}


def _stages(first: RunView, second: RunView) -> str:
    before, after = _steps(first), _steps(second)
    rows = []
    for name in dict.fromkeys([*before, *after]):
        pair = (before.get(name), after.get(name))
        shares = [step.kept_share if step else None for step in pair]
        rows_out = [step.shown_after if step else "" for step in pair]
        seconds = [step.seconds if step else None for step in pair]
        rows.append(
            f'<tr><td class="name">{escaped(name)}</td>{cell(rows_out[0])}{cell(rows_out[1])}'
            f"{_share(shares[0], pair[0])}{_share(shares[1], pair[1])}{_change(*shares)}"
            f"{_seconds(seconds[0])}{_seconds(seconds[1])}</tr>"
        )
    heads = ("Stage", "Rows out", "Rows out, later", "Kept", "Kept, later", "Change", "Time", "Time, later")
    return f"<h2>Stages<small>change: of the share that a stage keeps, in points</small></h2>{html_table(heads, rows)}"


def _share(share: float | None, step: Step | None) -> str:
    return cell(figures.percent(share) if step else "", share if share is not None else -1)


def _seconds(seconds: float | None) -> str:
    return cell("" if seconds is None else figures.duration(seconds))


def _change(before: float | None, after: float | None) -> str:
    """The difference of two shares, in percentage points."""
    if before is None or after is None or abs(after - before) < _NOTABLE:
        return cell("")
    sign, kind = ("+", "better") if after > before else ("\N{MINUS SIGN}", "worse")
    return cell(f"{sign}{100 * abs(after - before):.1f}", after - before, kind)


def _reasons(first: RunView, second: RunView) -> str:
    counts = [
        {
            (step.stage.name, reason): (count, step.before)
            for step in _steps(view).values()
            for reason, count in losses(step)
        }
        for view in (first, second)
    ]
    if not any(counts):
        return ""
    rows = []
    for stage, reason in list(dict.fromkeys([*counts[0], *counts[1]]))[:_SHOWN_REASONS]:
        pair = [found.get((stage, reason), (0, 0)) for found in counts]
        shares = [count / given if given else 0.0 for count, given in pair]
        rows.append(
            f'<tr><td class="name">{escaped(stage)}</td><td class="name words">{escaped(reason, 200)}</td>'
            f"{cell(figures.number(pair[0][0]), pair[0][0])}{cell(figures.number(pair[1][0]), pair[1][0])}"
            f"{cell(figures.percent(shares[0]), shares[0])}{cell(figures.percent(shares[1]), shares[1])}</tr>"
        )
    heads = ("Stage", "Reason", "Rows", "Rows, later", "Of its input", "Of its input, later")
    return f"<h2>Why rows were dropped</h2>{html_table(heads, rows, 'sortable', words=('Reason',))}"


def _parameters(first: RunView, second: RunView) -> str:
    """The parameters of stages of the same name that differ, and stages that only one run has."""
    if not first.outline or not second.outline:
        return '<h2>Parameters</h2><p class="soft">Not known: one of the runs did not write its plan.</p>'
    before, after = (_stage_parameters(view.outline) for view in (first, second))
    rows = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            only = "only in the earlier run" if name in before else "only in the later run"
            rows.append((name, "", only if name in before else "", "" if name in before else only))
            continue
        for parameter in dict.fromkeys([*before[name], *after[name]]):
            values = before[name].get(parameter, ""), after[name].get(parameter, "")
            if values[0] != values[1]:
                rows.append((name, parameter, *values))
    if not rows:
        return '<h2>Parameters</h2><p class="soft">All stages and parameters are the same.</p>'
    shown = [
        f'<tr><td class="name">{escaped(stage)}</td><td class="words">{escaped(parameter, 100)}</td>'
        f'<td class="name words">{escaped(one, 400)}</td><td class="name words">{escaped(other, 400)}</td></tr>'
        for stage, parameter, one, other in rows[:_SHOWN_PARAMETERS]
    ]
    heads = ("Stage", "Parameter", "Earlier", "Later")
    return f"<h2>Parameters<small>those that differ</small></h2>{html_table(heads, shown, words=heads[1:])}"


def _stage_parameters(outline: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {
        str(vertex["name"]): {str(name): str(value) for name, value in vertex["parameters"].items()}
        for vertex in outline.get("vertices", ())
        if not vertex.get("internal")
    }
