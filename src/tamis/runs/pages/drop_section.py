"""Why rows were dropped: the reasons, how many rows, and some of the rows themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tamis.runs import figures
from tamis.runs.figures import Step
from tamis.runs.html import cell, escaped, fill, html_table
from tamis.runs.pages.drop_query import DropLedgerReader, DroppedRow
from tamis.runs.pages.links import Links
from tamis.runs.pages.run_view import RunView
from tamis.runs.source_rows import ReadLimits, SourceRow

QUARANTINED: Final = "quarantined"
"""Stands for a reason in lists of what a stage lost."""

_EXAMPLES: Final = 3
_REASONS_WITH_EXAMPLES: Final = 60
_EXCERPT: Final = 400
_READING_S: Final = 2.0
_LIMITS: Final = ReadLimits(row_bytes=2**20, scan_bytes=32 * 2**20, value_characters=2_000, group_bytes=64 * 2**20)

_DOT: Final = " \N{MIDDLE DOT} "


@dataclass(frozen=True)
class DropExample:
    """A row that was dropped, and what its source holds at its place."""

    dropped: DroppedRow
    row: SourceRow
    text: str


def losses(step: Step) -> Iterator[tuple[str, int]]:
    """Why a stage lost rows, and how many: the most frequent reason first."""
    yield from sorted(step.stage.dropped.items(), key=lambda item: -item[1])
    if step.stage.quarantined:
        yield QUARANTINED, step.stage.quarantined


def find_examples(view: RunView, steps: Sequence[Step]) -> dict[tuple[str, str], list[DropExample]]:
    """A few rows for each reason, with their texts."""
    counted = [(count, step.stage.name, reason) for step in steps for reason, count in step.stage.dropped.items()]
    pairs = [(stage, reason) for _, stage, reason in sorted(counted, reverse=True)[:_REASONS_WITH_EXAMPLES]]
    reader = DropLedgerReader(view.path)
    if not pairs or not reader:
        return {}
    found = reader.examples(pairs, _EXAMPLES)
    everything = list(itertools.chain.from_iterable(found.values()))
    rows = dict(zip((d.place for d in everything), view.read_texts(everything, _LIMITS, _READING_S), strict=True))
    return {
        pair: [DropExample(d, rows[d.place], view.text_of(rows[d.place])) for d in dropped]
        for pair, dropped in found.items()
    }


def reasons_section(
    steps: Sequence[Step], examples: Mapping[tuple[str, str], Sequence[DropExample]], links: Links
) -> str:
    """A bar for each reason, the longest first within each stage; examples are folded away below it."""
    found = [(step, reason, count) for step in steps for reason, count in losses(step)]
    if not found:
        return ""
    most = max(count for _, _, count in found)
    rows = []
    for i, (step, reason, count) in enumerate(found):
        is_first = i == 0 or found[i - 1][0] is not step
        stage = step.stage.name
        rows.append(
            f'<tr class="{"first" if is_first else ""}">'
            f'<td class="name">{escaped(stage) if is_first else ""}</td>'
            f'<td class="name words">{_reason(stage, reason, links)}</td>'
            f'<td class="bar"><span class="track">{fill(count / most, "lost")}</span></td>'
            f"{cell(figures.number(count))}{cell(figures.percent(count / step.before if step.before else None))}</tr>"
            f"{_folded(examples.get((stage, reason), ()))}"
        )
    heads = ("Stage", "Reason", '<span class="hidden">Share of the most frequent</span>', "Rows", "Of its input")
    note = "<small>examples are shown as they are in their sources</small>" if examples else ""
    return f"<h2>Why rows were dropped{note}</h2>{html_table(heads, rows, 'grouped', words=('Reason',))}"


def _reason(stage: str, reason: str, links: Links) -> str:
    shown = escaped(reason, 200)
    if links.drops is None:
        return shown
    return f'<a href="{escaped(links.drops(stage, reason))}">{shown}</a>'


def _folded(examples: Sequence[DropExample]) -> str:
    if not examples:
        return ""
    shown = "".join(map(example_of, examples))
    count = f"{len(examples)} example{'s' * (len(examples) > 1)}"
    folded = f"<details><summary>{count}</summary>{shown}</details>"
    return f'<tr><td></td><td class="name words" colspan="4">{folded}</td></tr>'


def example_of(example: DropExample) -> str:
    """One dropped row: its name, its score, and how it begins."""
    dropped, row = example.dropped, example.row
    score = "" if dropped.score is None else f"{_DOT}score {escaped(shown_value(dropped.score), 60)}"
    if row.problem:
        text = f'<p class="soft">{escaped(row.problem)}</p>'
    else:
        text = f"<p>{escaped(' '.join(example.text.split()), _EXCERPT) or '(empty)'}</p>"
    return f'<div class="excerpt lost"><p class="soft">{escaped(dropped.name, 300)}{score}</p>{text}</div>'


def shown_value(score: float | str) -> str:
    """A score, a number or a text."""
    return score if isinstance(score, str) else figures.shown_score(score)
