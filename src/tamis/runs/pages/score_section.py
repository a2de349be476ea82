"""Histograms of the scores of a run, with the thresholds drawn in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tamis.runs import figures
from tamis.runs.figures import Step, shown_bounds
from tamis.runs.histograms import ScoreHistogram
from tamis.runs.html import escaped
from tamis.runs.pages.charts import Scale, histogram
from tamis.runs.pages.drop_query import DropLedgerReader
from tamis.runs.pages.run_view import RunView

_SHOWN: Final = 80
_MISSING: Final = "only {} of {} rows were counted: an older version kept no scores of earlier starts"


def scores_section(view: RunView, steps: Sequence[Step]) -> str:
    """A chart for each score that stages decided by. What is not known is said."""
    charts = list(_known(view, steps))
    note = "bars: the root of the number of rows; red: dropped; line: threshold"
    if not charts and not view.is_running:  # the ledger of a running run grows: it is not read every second
        charts = list(_dropped_only(view, steps))
        note += ". This run kept no histograms: only the scores of dropped rows are known, from the drop ledger"
    if not charts:
        return ""
    more = f'<p class="soft">and {len(charts) - _SHOWN} more, see scores.json</p>' if len(charts) > _SHOWN else ""
    shown = "".join(charts[:_SHOWN])
    return f'<h2>Scores<small>{note}</small></h2><div class="charts">{shown}</div>{more}'


def _known(view: RunView, steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        found = view.scores.get(step.stage.name, {})
        most = max((counts.rows_kept + counts.rows_dropped for counts in found.values()), default=0)
        missing = _MISSING.format(figures.number(most), figures.number(step.before)) if most < step.before else ""
        for name, counts in found.items():
            title = step.stage.name if len(found) == 1 and name in step.stage.name else f"{step.stage.name}: {name}"
            yield _chart(title, counts, missing)


def _dropped_only(view: RunView, steps: Sequence[Step]) -> Iterator[str]:
    if not any(step.stage.dropped for step in steps):
        return
    for (stage, reason), counts in sorted(DropLedgerReader(view.path).scores().items()):
        yield _chart(f"{stage}: {reason}", counts)


def _chart(title: str, counts: ScoreHistogram, note: str = "") -> str:
    bins = list(counts.bins())
    if not bins:
        return ""
    facts = []
    if counts.bounds != (None, None):
        facts.append(f"{'drops' if counts.inverted else 'keeps'} {shown_bounds(counts.bounds)}")
    dropped = f", {figures.number(counts.rows_dropped)} dropped" if counts.rows_dropped else ""
    facts.append(f"{figures.number(counts.rows_kept + counts.rows_dropped)} rows{dropped}")
    facts += [note] if note else []
    scale = Scale.around(bins, counts.bounds)
    chart = histogram(title, bins, scale, counts.bounds, inverted=counts.inverted)
    return f'<div><h3>{escaped(title, 120)} <small class="soft">{escaped("; ".join(facts))}</small></h3>{chart}</div>'
