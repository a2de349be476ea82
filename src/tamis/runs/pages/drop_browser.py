"""The browser of dropped rows: by stage, by reason, by source, and by what their texts contain."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from tamis.runs import figures
from tamis.runs.html import escaped
from tamis.runs.pages.contact_sheet import SIDE, shown_picture
from tamis.runs.pages.drop_query import Cursor, DropFilter, DropLedgerReader, DroppedRow
from tamis.runs.pages.drop_section import shown_value
from tamis.runs.pages.links import turn_pages
from tamis.runs.pages.run_view import RunView
from tamis.runs.source_rows import ReadLimits, SourceRow

_PER_PAGE: Final = 20
_SEARCHED_ROWS: Final = 3_000
_SEARCHED_S: Final = 3.0
_EXCERPT: Final = 600
_LIMITS: Final = ReadLimits(row_bytes=2**20, scan_bytes=128 * 2**20, value_characters=100_000)
_WHOLE: Final = ReadLimits(row_bytes=8 * 2**20, value_characters=400_000)
_LARGE_SIDE: Final = 640
_DOT: Final = " \N{MIDDLE DOT} "


@dataclass(frozen=True)
class _Found:
    """Rows for a page, and where to go on: after the last row that was looked at, if there are more."""

    rows: list[tuple[DroppedRow, SourceRow]]
    following: Cursor | None
    searched: int


class DropBrowser:
    """Makes the pages about the dropped rows of a run.

    Args:
        view: The run.
        here: The address of the first page.
    """

    def __init__(self, view: RunView, here: str) -> None:
        self._view, self._here = view, here
        self._ledger = DropLedgerReader(view.path)

    def page(self, parameters: Mapping[str, str]) -> str:
        """A page of rows, with the form that chooses them."""
        wanted = DropFilter(*(parameters.get(name, "")[:2000] for name in ("stage", "reason", "source")))
        search = parameters.get("q", "")[:500]
        if not self._ledger:
            return '<p class="soft">This run has no drop ledger: nothing was dropped, or it was turned off.</p>'
        before, after = (Cursor.parse(parameters.get(name, "")) for name in ("before", "after"))
        found = self._back(wanted, search, before) if before is not None else self._forth(wanted, search, after)
        shown = "".join(self._row(dropped, row, search) for dropped, row in found.rows)
        if not found.rows:
            shown = '<p class="soft">No dropped row matches.</p>'
        if search and found.following is not None and len(found.rows) < _PER_PAGE:
            shown += f'<p class="soft">{figures.number(found.searched)} rows were searched so far.</p>'
        fields = {"stage": wanted.stage, "reason": wanted.reason, "source": wanted.source, "q": search}
        return self._form(wanted, search) + shown + self._turn(fields, found, before is not None or after is not None)

    def one(self, place: str) -> str | None:
        """The page of one row: all its values; ``None`` if there is no such row."""
        cursor = Cursor.parse(place)
        dropped = None if cursor is None else next(self._ledger.after(DropFilter(), cursor), None)
        if dropped is None or dropped.place != cursor:
            return None
        (row,) = self._view.read_texts([dropped], _WHOLE, side=_LARGE_SIDE)
        score = "" if dropped.score is None else shown_value(dropped.score)
        facts = {"Stage": dropped.stage, "Reason": dropped.reason, "Score": score, "Row": dropped.name}
        shown = "".join(f"<dt>{name}</dt><dd>{escaped(value, 4000)}</dd>" for name, value in facts.items() if value)
        note = '<p class="soft">As it is in the source; stages before this one may have changed it.</p>'
        if dropped.part:
            note += f'<p class="soft">The part {escaped(dropped.part)} of this row was dropped.</p>'
        if row.problem:
            return f'<dl class="facts">{shown}</dl><p class="soft">{escaped(row.problem)}</p>'
        values = "".join(
            f'<h3>{escaped(name, 200)}</h3><pre class="raw">{escaped(_as_text(value))}</pre>'
            for name, value in row.values.items()
        )
        cut = '<p class="soft">Long values are cut.</p>' if row.is_cut else ""
        return f'<dl class="facts">{shown}</dl>{note}{shown_picture(row)}{values}{cut}'

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _forth(self, wanted: DropFilter, search: str, after: Cursor | None) -> _Found:
        return self._chosen(self._ledger.after(wanted, after), search)

    def _back(self, wanted: DropFilter, search: str, before: Cursor) -> _Found:
        found = self._chosen(self._ledger.before(wanted, before), search)
        return _Found(found.rows[::-1], before, found.searched)

    def _chosen(self, rows: Iterator[DroppedRow], search: str) -> _Found:
        """The next rows whose text contains what is searched for."""
        found: list[tuple[DroppedRow, SourceRow]] = []
        searched, began = 0, time.monotonic()
        while len(found) < _PER_PAGE:
            some = list(itertools.islice(rows, 200 if search else _PER_PAGE))
            if not some:
                return _Found(found, None, searched)
            for dropped, row in zip(
                some, self._view.read_texts(some, _LIMITS, side=0 if search else SIDE), strict=True
            ):
                if len(found) == _PER_PAGE:
                    return _Found(found, dropped.place, searched)
                searched += 1
                if not search or _contains(row, search):
                    found.append((dropped, row))
            is_enough = searched >= _SEARCHED_ROWS or time.monotonic() - began > _SEARCHED_S
            if search and is_enough:
                break
        following = next(rows, None)
        return _Found(found, following.place if following else None, searched)

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _form(self, wanted: DropFilter, search: str) -> str:
        stages = [stage for stage in self._view.summary.stages if stage.dropped]
        reasons: dict[str, int] = {}
        for stage in stages:
            for reason, count in stage.dropped.items() if wanted.stage in ("", stage.name) else ():
                reasons[reason] = reasons.get(reason, 0) + count
        by_stage = {stage.name: stage.rows_dropped for stage in stages}
        return (
            f'<form class="filters" action="{escaped(self._here)}" role="search">'
            f"{_select('stage', 'Stage', by_stage, wanted.stage)}{_select('reason', 'Reason', reasons, wanted.reason)}"
            f'<label class="wide-field">Text contains<input type="search" name="q" value="{escaped(search)}"></label>'
            f'<label class="wide-field">Source contains<input name="source" value="{escaped(wanted.source)}"></label>'
            '<button class="plain">Show</button></form>'
        )

    def _row(self, dropped: DroppedRow, row: SourceRow, search: str) -> str:
        score = "" if dropped.score is None else f"{_DOT}score {escaped(shown_value(dropped.score), 60)}"
        if row.problem:
            text = f'<p class="soft">{escaped(row.problem)}</p>'
        else:
            text = f"{shown_picture(row)}<p>{_marked(self._shown_text(row, search), search) or '(empty)'}</p>"
        link = f'<a href="{escaped(self._here)}/{dropped.place}">{escaped(dropped.name, 300)}</a>'
        return (
            f'<article class="drop"><p class="soft">{escaped(dropped.stage, 200)}{_DOT}'
            f"{escaped(dropped.reason, 300)}{score}</p>{text}<p>{link}</p></article>"
        )

    def _shown_text(self, row: SourceRow, search: str) -> str:
        """The text of a row, or the other column that contains what is searched for."""
        text = self._view.text_of(row)
        if search and search.casefold() not in text.casefold():
            for name, value in row.values.items():
                if isinstance(value, str) and search.casefold() in value.casefold():
                    text = f"{name}: {value}"
        return " ".join(text.split())

    def _turn(self, fields: Mapping[str, str], found: _Found, is_later: bool) -> str:
        kept = {name: value for name, value in fields.items() if value}
        earlier = later = ""
        if is_later and found.rows:
            earlier = f"{self._here}?{urlencode({**kept, 'before': str(found.rows[0][0].place)})}"
        elif is_later:
            earlier = f"{self._here}?{urlencode(kept)}"
        if found.following is not None:
            later = f"{self._here}?{urlencode({**kept, 'after': str(found.following)})}"
        return turn_pages(earlier, later)


def _select(name: str, label: str, counts: Mapping[str, int], chosen: str) -> str:
    known = counts if chosen in counts or not chosen else {**counts, chosen: 0}
    options = ['<option value="">all</option>']
    for value, count in sorted(known.items(), key=lambda item: -item[1]):
        selected = " selected" if value == chosen else ""
        number = f" ({figures.number(count)})" if count else ""
        options.append(f'<option value="{escaped(value)}"{selected}>{escaped(value, 80)}{number}</option>')
    return f'<label>{label}<select name="{name}">{"".join(options)}</select></label>'


def _contains(row: SourceRow, search: str) -> bool:
    wanted = search.casefold()
    return any(isinstance(value, str) and wanted in value.casefold() for value in row.values.values())


def _marked(text: str, search: str) -> str:
    """The text around the first place where it contains what is searched for, marked there."""
    at = text.lower().find(search.lower()) if search else -1
    if at < 0:
        return escaped(text, _EXCERPT)
    begin = max(at - _EXCERPT // 3, 0)
    before = ("\N{HORIZONTAL ELLIPSIS}" if begin else "") + text[begin:at]
    end = at + len(search)
    return f"{escaped(before)}<mark>{escaped(text[at:end])}</mark>{escaped(text[end:], _EXCERPT)}"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr, indent=1)
