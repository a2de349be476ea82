"""The page of an analysis: one HTML file. All text that comes from data goes through ``escaped``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import tamis
from tamis.analysis.examples import Example, neighbours
from tamis.analysis.page_parts import bar_table, some_names
from tamis.analysis.result import Analysis
from tamis.analysis.scores import NO_BOUNDS, PERCENTILES, scores_part
from tamis.analysis.tables import bins_of, measures_of, small_sample_note
from tamis.kernels.scripts import SCRIPT_NAMES
from tamis.runs import figures
from tamis.runs.figures import shown_bounds, shown_score
from tamis.runs.histograms import Bin
from tamis.runs.html import Page, Tile, cell, escaped, html_table, render_page, tiles_of
from tamis.runs.pages.charts import Scale, histogram
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.stages.text.statistics.measures import BYTES, LENGTHS, WORDS

_EXCERPT: Final = 260


def analysis_page(analysis: Analysis) -> str:
    """The analysis as one HTML page that needs nothing else."""
    title = some_names([os.path.basename(path.rstrip("/")) or path for path in analysis.paths], 2)
    head = f'<p class="soft">{_looked_at(analysis)}</p>{_tiles(analysis)}'
    return render_page(Page("Analysis", title, head, _sections(analysis), tamis.__version__))


def _sections(analysis: Analysis) -> Iterator[str]:
    yield _overview(analysis)
    yield _recipe(analysis)
    yield _lengths(analysis)
    yield _languages(analysis)
    yield _sites(analysis)
    yield _columns(analysis)
    yield _filters(analysis)


def _looked_at(analysis: Analysis) -> str:
    """What the figures are about."""
    coverage, documents = analysis.coverage, figures.number(analysis.documents)
    where = escaped(some_names(analysis.paths, 3))
    if coverage.is_whole:
        text = f"All {documents} documents of {where}."
    else:
        parts = f"{figures.number(coverage.splits_read)} of {figures.number(coverage.splits)} parts"
        text = (
            f"A sample of {documents} documents out of about {figures.number(analysis.documents_in_all)} in {where}: "
            f"{figures.percent(coverage.fraction)} of those in {parts} that are spread over the input."
        )
    in_sample = len(analysis.sample)
    if in_sample < analysis.documents:
        text += (
            f" Percentiles, proposals, languages, scripts, sites and examples come from {figures.number(in_sample)} of "
            "them, chosen at random; everything else is counted over all."
        )
    if analysis.quarantined:
        text += f" {figures.number(analysis.quarantined)} rows could not be read; run/quarantine has them."
    return text


def _tiles(analysis: Analysis) -> str:
    summary, documents = analysis.summary, analysis.documents
    distinct = summary.distinct()
    about = f"\N{PLUS-MINUS SIGN} {figures.percent(2 * distinct.share_error)}" if distinct.share_error else "exact"
    if not analysis.coverage.is_whole:
        about = "within the sample; more in the whole input"
    empty = summary.total("empty")
    return tiles_of(
        [
            Tile("Documents", figures.number(documents), "all" if analysis.coverage.is_whole else "in the sample"),
            Tile(
                "Text", figures.size(summary.total(BYTES)), f"{figures.number(summary.total('characters'))} characters"
            ),
            Tile(
                "Words", figures.number(summary.total(WORDS)), f"median {shown_score(analysis.percentile(WORDS, 50))}"
            ),
            Tile("Without a word", figures.percent(empty / documents), f"{figures.number(empty)} documents"),
            Tile("Exact duplicates", figures.percent(distinct.duplicate_share), about),
            Tile("Kept by defaults", figures.percent(analysis.kept_share_of_all()), f"{len(analysis.filters)} filters"),
        ]
    )


def _overview(analysis: Analysis) -> str:
    proposed = {proposal.filter.name: proposal for proposal in analysis.together}
    rows = []
    for one in analysis.filters:
        kept, alone = analysis.kept_share(one.name), analysis.alone.get(one.name)
        together = proposed.get(one.name)
        rows.append(
            f'<tr><td class="name"><a href="#{escaped(one.name)}">{escaped(one.name)}</a></td>'
            f'<td class="words">{escaped(shown_bounds(one.bounds()))}</td>'
            f"{cell(figures.percent(kept), kept)}"
            f"{cell(figures.percent(analysis.dropped_alone_share(one.name)), analysis.dropped_alone_share(one.name))}"
            f'<td class="words">{escaped(shown_bounds(alone.filter.bounds())) if alone else ""}</td>'
            f'<td class="words">{escaped(shown_bounds(together.filter.bounds())) if together else ""}</td></tr>'
        )
    heads = ["Filter", "Default keeps", "Share kept", "Dropped by it alone"]
    heads += [f"To keep {figures.percent(analysis.keep_rate)} alone", "With the others"]
    table = html_table(heads, rows, "sortable", words=(heads[1], heads[4], heads[5]))
    return f"<h2>Filters<small>what each keeps, and thresholds for another share</small></h2>{table}"


def _recipe(analysis: Analysis) -> str:
    share, wanted = analysis.proposed_share(), figures.percent(analysis.keep_rate)
    note = (
        f"With the thresholds of the last column, {len(analysis.together)} filters one after the other keep "
        f"{figures.percent(share)} of the sample; {wanted} was requested. Each of them drops the same small share: the "
        "documents with the most extreme scores."
    )
    note = f"{note} {small_sample_note(analysis)}".rstrip()
    if share < analysis.keep_rate:
        note += " More cannot be kept: documents without words have scores that no threshold keeps."
    return (
        "<h2>Recipe<small>recipe.yaml, for tamis run</small></h2>"
        f"<p>{escaped(note)}</p>"
        f"<details><summary>Show the recipe</summary><pre>{escaped(analysis.recipe)}</pre></details>"
    )


def _lengths(analysis: Analysis) -> str:
    rows = []
    for name in LENGTHS:
        percentiles = "".join(cell(shown_score(analysis.percentile(name, p))) for p in PERCENTILES)
        mean = analysis.summary.total(name) / analysis.documents
        rows.append(f'<tr><td class="name">{name}</td>{cell(shown_score(float(f"{mean:.4g}")))}{percentiles}</tr>')
    table = html_table(["Per document", "Mean", *(f"{p}%" for p in PERCENTILES)], rows)
    charts = "".join(
        f"<div><h3>{name}</h3>{_chart(analysis, name, NO_BOUNDS, NO_BOUNDS)}</div>" for name in (WORDS, BYTES)
    )
    return f'<h2>Lengths<small>percentiles</small></h2>{table}<div class="pair">{charts}</div>'


def _languages(analysis: Analysis) -> str:
    scripts = [(f"{SCRIPT_NAMES.get(code, 'none')} ({code})", count) for code, count in analysis.shares("script")]
    if analysis.no_languages:
        languages = f'<p class="soft">{escaped(analysis.no_languages)}</p>'
    else:
        languages = bar_table(analysis.shares("language"), len(analysis.sample))
    return (
        "<h2>Languages and scripts<small>und: undetermined</small></h2>"
        f'<div class="pair"><div><h3>Languages</h3>{languages}</div>'
        f"<div><h3>Scripts</h3>{bar_table(scripts, len(analysis.sample))}</div></div>"
    )


def _sites(analysis: Analysis) -> str:
    of, to = analysis.shares("site"), analysis.shares("links")
    if not of and not to:
        return ""
    column = f"column {analysis.url_field}" if analysis.url_field else "no column with addresses"
    first = bar_table(of, len(analysis.sample)) if of else '<p class="soft">no addresses of web sites</p>'
    second = bar_table(to, len(analysis.sample)) if to else '<p class="soft">no links</p>'
    return (
        "<h2>Sites<small>share of the documents</small></h2>"
        f'<div class="pair"><div><h3>Documents come from <small class="soft">{escaped(column)}</small></h3>{first}'
        f"</div><div><h3>Texts link to</h3>{second}</div></div>"
    )


def _columns(analysis: Analysis) -> str:
    rows = []
    for name, kind, seen, nulls in analysis.summary.columns.iter_rows():
        share = nulls / seen if seen else 0.0
        rows.append(
            f'<tr><td class="name">{escaped(name, 200)}</td><td class="words"><code>{escaped(kind, 200)}</code></td>'
            f"{cell(figures.number(seen), seen)}{cell(figures.percent(share), share)}</tr>"
        )
    table = html_table(("Column", "Type", "Rows", "Null"), rows, "sortable", words=("Type",))
    return f"<h2>Columns<small>a column may have another type in another part of the input</small></h2>{table}"


def _filters(analysis: Analysis) -> str:
    return scores_part(
        analysis,
        "documents",
        lambda one, proposed: _chart(analysis, one.name, one.bounds(), proposed),
        lambda one, other: _examples(analysis, one, other),
    )


def _examples(analysis: Analysis, one: ThresholdFilter, proposed: ThresholdFilter | None) -> str:
    parts = []
    for kind, filter_with in (("default", one), ("proposed", proposed)):
        if filter_with is None or (kind == "proposed" and filter_with.bounds() == one.bounds()):
            continue
        for found in neighbours(analysis, filter_with):
            dropped = "".join(_example(e, "lost") for e in found.dropped) or '<p class="soft">none</p>'
            kept = "".join(_example(e, "kept") for e in found.kept) or '<p class="soft">none</p>'
            parts.append(
                f'<p class="soft">Near the {kind} threshold {escaped(shown_score(found.threshold))}</p>'
                f'<div class="pair"><div><p>just dropped</p>{dropped}</div><div><p>just kept</p>{kept}</div></div>'
            )
    return f"<details><summary>Documents near the thresholds</summary>{''.join(parts)}</details>" if parts else ""


def _example(example: Example, kind: str) -> str:
    name = f" \N{MIDDLE DOT} {escaped(example.name, 300)}"
    excerpt = escaped(" ".join(example.excerpt.split()), _EXCERPT) or "(empty)"
    score = escaped(shown_score(example.score))
    return f'<div class="excerpt {kind}"><p class="soft">{score}{name}</p><p>{excerpt}</p></div>'


def _chart(
    analysis: Analysis,
    measure: str,
    default: tuple[float | None, float | None],
    proposed: tuple[float | None, float | None],
) -> str:
    is_share = measures_of(analysis)[measure]
    lowest, most = (analysis.percentile(measure, percent) for percent in (0, 99.5))
    scale = Scale.of(is_share, lowest, most, [*default, *proposed])
    return histogram(measure, _bins(analysis, measure, default), scale, default, proposed, "documents")


def _bins(analysis: Analysis, measure: str, default: tuple[float | None, float | None]) -> Iterator[Bin]:
    low_bound, high_bound = default
    for low, high, documents in bins_of(analysis, measure).iter_rows():
        # The middle of a bin may be on the other side of a threshold in it; its lower edge is a value of the bin.
        is_kept = (low_bound is None or low >= low_bound) and (high_bound is None or low <= high_bound)
        end = low if high is None else high
        yield Bin(low, end, documents, 0) if is_kept else Bin(low, end, 0, documents)
