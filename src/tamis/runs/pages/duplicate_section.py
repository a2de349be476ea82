"""What deduplication removed: sizes of groups, pairs with their differences, rates by source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tamis.errors import TamisError
from tamis.runs import figures
from tamis.runs.duplicate_sources import OTHERS, By
from tamis.runs.duplicates import DuplicatePair, Duplicates, deduplication_stages
from tamis.runs.html import cell, escaped, fill, fixed, html_table
from tamis.runs.pages.image_section import duplicate_images_part
from tamis.runs.pages.run_view import RunView
from tamis.runs.source_rows import ReadLimits
from tamis.runs.text_differences import compared, shortened_spans

_MOST_ROWS: Final = 1_000_000
_PAIRS: Final = 8
_OPEN_PAIRS: Final = 3
_LISTED: Final = 12
_STAGES: Final = 20
_READING_S: Final = 2.0
_LONGEST: Final = 3_000
_LIMITS: Final = ReadLimits(row_bytes=2**20, scan_bytes=32 * 2**20, value_characters=20_000, group_bytes=64 * 2**20)


def duplicates_sections(view: RunView) -> Iterator[str]:
    """A section for each stage that removed duplicates; nothing while the run goes on, since the ledger still grows."""
    stages = [] if view.is_running or not view.path else list(deduplication_stages(view))[:_STAGES]
    yield from (_section(view, stage) for stage in stages)


def _section(view: RunView, stage: str) -> str:
    try:
        found = Duplicates(view.path, stage, most_rows=_MOST_ROWS)
        removed = deduplication_stages(view, stage)[stage]
        parts = [_sizes(found), duplicate_images_part(view, stage) or _pairs(found), _sources(found)]
        heading = _heading(found, removed)
    except (TamisError, OSError) as error:
        return f'<h2>Duplicates: {escaped(stage, 120)}</h2><p class="soft">{escaped(error, 400)}</p>'
    return f"<h2>Duplicates: {escaped(stage, 120)}<small>{heading}</small></h2>{''.join(parts)}"


def _heading(found: Duplicates, removed: int) -> str:
    rows = found.totals.rows
    share = f" ({figures.percent(removed / rows)})" if rows else ""
    text = f"{figures.number(removed)} of {figures.number(rows)} rows removed{share}"
    if found.is_partial:
        part = figures.number(found.removed)
        return f"{text}; what follows is counted from {part} of them. result.duplicates() counts all"
    groups = f"{figures.number(found.groups)} group{'s' * (found.groups != 1)}"
    return f"{text}; {groups}, in each of which one row stays" if found.groups else text


# --- groups ---------------------------------------------------------------------------------------------------------


def _sizes(found: Duplicates) -> str:
    if found.is_partial or not found.groups:
        return ""
    bins = _binned(found.sizes)
    most = max(groups for _, groups, _ in bins)
    rows = [
        f'<tr><td class="name">{escaped(name)}</td>'
        f'<td class="bar"><span class="track">{fill(groups / most)}</span></td>'
        f"{cell(figures.number(groups))}{cell(figures.number(removed))}</tr>"
        for name, groups, removed in bins
    ]
    heads = ("Rows in a group", '<span class="hidden">Share of the most frequent</span>', "Groups", "Rows removed")
    return f"<h3>Sizes of groups</h3>{html_table(heads, rows)}"


def _binned(sizes: Mapping[int, int]) -> list[tuple[str, int, int]]:
    """Groups and removed rows by size: each size up to four, then ranges that double."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for size, groups in sizes.items():
        low, high = size, size
        if size > 4:
            high = 1 << (size - 1).bit_length()
            low = high // 2 + 1
        before = found.get((low, high), (0, 0))
        found[low, high] = before[0] + groups, before[1] + groups * (size - 1)
    return [
        (figures.number(low) if low == high else f"{figures.number(low)} to {figures.number(high)}", groups, removed)
        for (low, high), (groups, removed) in sorted(found.items())
    ]


# --- pairs ----------------------------------------------------------------------------------------------------------


def _pairs(found: Duplicates) -> str:
    pairs = found.spread_sample(_PAIRS, limits=_LIMITS, most_s=_READING_S)
    if not pairs:
        return ""
    note = "the texts are as in their sources; words that only one of them has are marked"
    first, more = pairs[:_OPEN_PAIRS], pairs[_OPEN_PAIRS:]
    folded = f"<details><summary>{len(more)} more</summary>{''.join(map(_pair, more))}</details>" if more else ""
    return f'<h3>Pairs <small class="soft">{note}</small></h3>{"".join(map(_pair, first))}{folded}'


def _pair(pair: DuplicatePair) -> str:
    similarity = "" if pair.similarity is None else f"similarity {pair.similarity:.2f}"
    if pair.problem:
        names = f"{pair.removed}; kept: {pair.kept}" if pair.kept else pair.removed
        shown = f'<p>{escaped(names, 600)}</p><p class="soft">{escaped(pair.problem, 400)}</p>'
        told = similarity
    else:
        spans = compared(pair.kept_text, pair.removed_text)
        differ = any(not span.equal for span in spans)
        told = "; ".join(filter(None, (similarity, "" if differ else "the same words")))
        spans = shortened_spans(spans)
        kept = "".join(_words(span.one, span.equal, span.skipped_one, "kept") for span in spans)
        removed = "".join(_words(span.other, span.equal, span.skipped_other, "lost") for span in spans)
        shown = (
            f'<div class="pair">{_side("Kept", "kept", pair.kept, kept)}'
            f"{_side('Removed', 'lost', pair.removed, removed)}</div>"
        )
    return f'<article class="drop"><p class="soft">{escaped(told)}</p>{shown}</article>'


def _side(title: str, kind: str, name: str, text: str) -> str:
    head = f'<p class="soft"><b>{title}</b> {escaped(name, 300)}</p>'
    return f'<div class="excerpt {kind}">{head}<p>{text or "(empty)"}</p></div>'


def _words(words: Sequence[str], equal: bool, skipped: int, kind: str) -> str:
    text = "".join(words)
    shown = escaped(text, _LONGEST)
    if text and not equal:
        shown = f'{" " * text.startswith(" ")}<mark class="{kind}">{escaped(text.strip(), _LONGEST)}</mark>'
    more = f' <span class="soft">[{figures.number(skipped)} more words]</span>' if skipped else ""
    return shown + more


# --- sources --------------------------------------------------------------------------------------------------------


def _sources(found: Duplicates) -> str:
    by: By = "folder" if len(found.folders) > 1 else "file"
    rates = found.by_source(by, _LISTED)
    pairs = found.between_sources(by, _LISTED)
    below = _common(
        name for name in (*(r.source for r in rates), *(p.removed for p in pairs), *(p.kept for p in pairs))
    )
    rows = [
        f'<tr><td class="name">{_name(rate.source, below)}</td>'
        f"{cell('' if rate.rows is None else figures.number(rate.rows), rate.rows or 0)}"
        f"{cell(figures.number(rate.removed), rate.removed, 'loss')}{_share(rate.share)}</tr>"
        for rate in rates
    ]
    where = f' <small class="soft">below {escaped(below, 300)}</small>' if below else ""
    shown = f"<h3>By {by}{where}</h3>{html_table((by.capitalize(), 'Rows read', 'Removed', 'Share'), rows)}"
    if len(pairs) < 2:
        return shown
    most = max(pair.rows for pair in pairs)
    rows = [
        f'<tr><td class="name">{_name(pair.removed, below)}</td><td class="name words">{_name(pair.kept, below)}</td>'
        f'<td class="bar"><span class="track">{fill(pair.rows / most, "lost")}</span></td>'
        f"{cell(figures.number(pair.rows))}</tr>"
        for pair in pairs
    ]
    heads = ("Removed from", "Kept in", '<span class="hidden">Share of the most frequent</span>', "Rows")
    return f"{shown}<h3>Between {by}s{where}</h3>{html_table(heads, rows, words=('Kept in',))}"


def _share(share: float | None) -> str:
    value = -1.0 if share is None else share
    bar = "" if share is None else f'<span class="share">{fill(share, "lost")}</span>'
    return f'<td data-value="{value}">{bar}{fixed(figures.percent(share))}</td>'


def _common(names: Iterable[str]) -> str:
    """The folder that all sources are in, if they are files; empty if there is none."""
    paths = {name for name in names if name != OTHERS and name}
    if len(paths) < 2 or not all(os.path.isabs(path) for path in paths):
        return ""
    common = os.path.commonpath(list(paths))
    return common if len(common) > 1 and common not in paths else os.path.dirname(common) if len(common) > 1 else ""


def _name(source: str, below: str) -> str:
    short = source[len(below) :].lstrip("/") if below and source.startswith(below) else source
    return escaped(short or "(not known)", 300)
