"""The pages that are served: list of runs, one run, its drops, its quarantine, two runs side by side.

All text that comes from data goes through :func:`tamis.runs.html.escaped`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import tamis
from tamis.runs import figures
from tamis.runs.html import Page, cell, escaped, html_table, render_page, state_badge
from tamis.runs.pages.compare import compare_runs
from tamis.runs.pages.drop_browser import DropBrowser
from tamis.runs.pages.drop_section import QUARANTINED
from tamis.runs.pages.known_runs import KnownRuns, RunEntry
from tamis.runs.pages.links import Links, turn_pages
from tamis.runs.pages.run_view import NO_REASON_YET, RunView, load_view
from tamis.runs.pages.set_aside_rows import set_aside_rows
from tamis.runs.report import page_head
from tamis.runs.report_sections import moment, quarantine_examples, sections, set_aside_words

_SCRIPTS: Final = ("page.js", "ui.js")
_PER_PAGE: Final = 20

Parts = Callable[[], tuple[dict[str, str], bool]]
"""Gives the live parts of a page, and whether they may still change."""


class NotFoundError(Exception):
    """There is no such page."""


class Site:
    """Makes the pages for one request.

    Args:
        runs: The runs that may be shown.
        nonce: The nonce of the page's security policy.
    """

    def __init__(self, runs: KnownRuns, nonce: str) -> None:
        self._runs, self._nonce = runs, nonce

    def page(self, parts: Sequence[str], parameters: Mapping[str, str]) -> str:
        """The page at a path.

        Raises:
            NotFoundError: There is none.
        """
        match list(parts):
            case []:
                return self._list() if not self._runs.is_single else self._run(next(iter(self._runs.paths())))
            case ["compare"]:
                return self._compare(parameters)
            case ["runs", name]:
                return self._run(name)
            case ["runs", name, "drops"]:
                return self._drops(name, parameters)
            case ["runs", name, "drops", place]:
                return self._one_drop(name, place)
            case ["runs", name, "quarantine"]:
                return self._quarantine(name, parameters)
        raise NotFoundError("There is no such page.")

    def parts(self, parts: Sequence[str]) -> Parts:
        """What changes on the page at a path."""
        match list(parts):
            case []:
                return lambda: ({"list": self._list_table(self._runs.entries())}, True)
            case ["runs", name]:
                self._path(name)
                return lambda: self._run_parts(name)
        raise NotFoundError("There is no such page.")

    def problem(self, text: str) -> str:
        """A page that says what went wrong."""
        return self._render(
            "Problem", "This cannot be shown", f'<div class="error"><pre>{escaped(text)}</pre></div>', []
        )

    # -- pages ---------------------------------------------------------------------------------------------------------

    def _list(self) -> str:
        entries = self._runs.entries()
        head = f'<p class="soft">{escaped(self._runs.place)}</p>'
        body = f'<div data-part="list" data-events="/events">{self._list_table(entries)}</div>'
        return self._render("tamis", "Runs", head, [body, _compare_form(entries)], navigation=self._navigation(""))

    def _list_table(self, entries: Sequence[RunEntry]) -> str:
        if not entries:
            return '<p class="soft">There are no runs here yet. This page shows them as they begin.</p>'
        rows = []
        for entry in entries:
            rows.append(
                f'<tr><td class="name"><a href="{_run_link(entry.name)}">{escaped(entry.name, 120)}</a></td>'
                f'<td class="words">{state_badge(entry.state)}</td>'
                f'<td class="name words">{escaped(entry.pipeline, 120)}</td>'
                f"{cell(moment(entry.started))}"
                f"{cell('' if entry.seconds is None else figures.duration(entry.seconds), entry.seconds or 0)}"
                f"{cell('' if entry.rows is None else figures.number(entry.rows), entry.rows or 0)}</tr>"
            )
        heads = ("Run", "State", "Pipeline", "Started", "Time", "Rows written")
        return html_table(heads, rows, "sortable", words=("Pipeline", "State"))

    def _run(self, name: str) -> str:
        view = load_view(self._path(name))
        parts = self._parts_of(view, name)
        events = f' data-events="{_run_link(name)}/events"' if view.is_running else ""
        head = f'<div data-part="head"{events}>{parts["head"]}</div>'
        body = f'<div data-part="sections">{parts["sections"]}</div>'
        live = "connecting" if view.is_running else ""
        navigation = self._navigation(name, "overview", live)
        return self._render("Run", view.summary.pipeline, head, [body], view.summary.state, navigation)

    def _run_parts(self, name: str) -> tuple[dict[str, str], bool]:
        view = load_view(self._path(name))
        return self._parts_of(view, name), view.is_running

    def _parts_of(self, view: RunView, name: str) -> dict[str, str]:
        if view.summary.rows_set_aside + view.summary.tasks_set_aside and not view.summary.quarantine:
            view.summary.quarantine = set_aside_rows(view.path, 5)
        shown = "".join(f"<section>{section}</section>" for section in sections(view, _links(name), {}))
        head = _progress(view) + page_head(view)
        return {
            "badge": state_badge(view.summary.state),
            "head": head,
            "sections": shown or '<p class="soft">Nothing has been counted yet.</p>',
        }

    def _drops(self, name: str, parameters: Mapping[str, str]) -> str:
        browser = DropBrowser(load_view(self._path(name)), f"{_run_link(name)}/drops")
        body = browser.page(parameters)
        return self._render("Dropped rows", name, "", [body], navigation=self._navigation(name, "drops"))

    def _one_drop(self, name: str, place: str) -> str:
        browser = DropBrowser(load_view(self._path(name)), f"{_run_link(name)}/drops")
        body = browser.one(place)
        if body is None:
            raise NotFoundError("There is no such row in the drop ledger.")
        return self._render("Dropped row", name, "", [body], navigation=self._navigation(name, "drops"))

    def _quarantine(self, name: str, parameters: Mapping[str, str]) -> str:
        view = load_view(self._path(name))
        text = parameters.get("from", "0")
        skip = min(int(text), 10**9) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
        rows = set_aside_rows(view.path, _PER_PAGE + 1, skip)
        body = quarantine_examples(rows[:_PER_PAGE]) or '<p class="soft">Nothing was set aside.</p>'
        here = f"{_run_link(name)}/quarantine"
        earlier = f"{here}?from={max(skip - _PER_PAGE, 0)}" if skip else ""
        later = f"{here}?from={skip + _PER_PAGE}" if len(rows) > _PER_PAGE else ""
        counted = set_aside_words(view.summary)
        head = f'<p class="soft">{escaped(counted)} set aside</p>' if counted else ""
        return self._render(
            "Quarantine",
            name,
            head,
            [body + turn_pages(earlier, later)],
            navigation=self._navigation(name, "quarantine"),
        )

    def _compare(self, parameters: Mapping[str, str]) -> str:
        names = [parameters.get("a", ""), parameters.get("b", "")]
        first, second = (load_view(self._path(name)) for name in names)
        form = _compare_form(self._runs.entries(), *names)
        links = [f'<a href="{_run_link(name)}">{escaped(name, 120)}</a>' for name in names]
        head = f"<p>{links[0]} and {links[1]}</p>"
        body = [compare_runs(first, second, names[0], names[1]), form]
        return self._render("Comparison", "Two runs", head, body, navigation=self._navigation(""))

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        path = self._runs.paths().get(name)
        if path is None:
            raise NotFoundError("There is no such run.")
        return path

    def _navigation(self, name: str, current: str = "", live: str = "") -> str:
        links = [] if self._runs.is_single else [("/", "All runs", not name)]
        if name:
            link = _run_link(name)
            links += [
                (link, "Run", current == "overview"),
                (f"{link}/drops", "Dropped rows", current == "drops"),
                (f"{link}/quarantine", "Quarantine", current == "quarantine"),
            ]
        shown = "".join(
            f'<a href="{href}"{" aria-current=page" if here else ""}>{text}</a>' for href, text, here in links
        )
        status = f'<span class="live" role="status">{escaped(live)}</span>'
        return f'<nav class="top" aria-label="Pages">{shown}{status}</nav>'

    def _render(
        self, kind: str, title: str, head: str, body: Sequence[str], badge: str = "", navigation: str | None = None
    ) -> str:
        navigation = self._navigation("") if navigation is None else navigation
        return render_page(
            Page(kind, title, head, body, tamis.__version__, badge, navigation, self._nonce, scripts=_SCRIPTS)
        )


def _progress(view: RunView) -> str:
    """How far a running run has come."""
    if not view.is_running or not view.samples:
        return ""
    last = view.samples[-1]
    if last.fraction is None:
        return f"<p>{escaped(last.state)} since {escaped(figures.duration(last.seconds))}</p>"
    left = ""
    if 0 < last.fraction < 1:
        left = f", {figures.rough_duration(last.seconds * (1 - last.fraction) / last.fraction)} left"
    percent = figures.percent(last.fraction)
    return (
        f'<p><progress max="1" value="{last.fraction:.4f}" aria-label="Progress">{percent}</progress> '
        f"{percent}{escaped(left)}</p>"
    )


def _links(name: str) -> Links:
    quarantine = f"{_run_link(name)}/quarantine"

    def drops(stage: str, reason: str) -> str:
        if reason == QUARANTINED:
            return quarantine
        wanted = {"stage": stage} if reason == NO_REASON_YET else {"stage": stage, "reason": reason}
        return f"{_run_link(name)}/drops?{urlencode(wanted, errors='replace')}"

    return Links({"quarantine": quarantine}, drops)


def _run_link(name: str) -> str:
    return f"/runs/{quote(name, safe='', errors='replace')}"


def _compare_form(entries: Sequence[RunEntry], first: str = "", second: str = "") -> str:
    if len(entries) < 2:
        return ""
    chosen = (second or entries[0].name, first or entries[1].name)
    fields = []
    for field, label, name in (("a", "Earlier run", chosen[1]), ("b", "Later run", chosen[0])):
        options = "".join(
            f'<option value="{escaped(e.name)}"{" selected" if e.name == name else ""}>{escaped(e.name, 80)}</option>'
            for e in entries
        )
        fields.append(f'<label>{label}<select name="{field}">{options}</select></label>')
    return (
        f'<h2>Compare two runs</h2><form class="filters" action="/compare">{"".join(fields)}'
        '<button class="plain">Compare</button></form>'
    )
