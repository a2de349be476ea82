"""The page of an analysis of images: one HTML file. All text that comes from data goes through ``escaped``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

import tamis
from tamis.analysis.images.duplicates import NEAR_BITS
from tamis.analysis.images.pictures import Pictures
from tamis.analysis.images.result import SIZES, DuplicateGroups, ImageAnalysis
from tamis.analysis.page_parts import bar_table, some_names
from tamis.analysis.scores import PERCENTILES, scores_part
from tamis.runs import figures
from tamis.runs.figures import shown_bounds, shown_score
from tamis.runs.histograms import Bin
from tamis.runs.html import Page, Tile, cell, escaped, html_table, render_page, tiles_of
from tamis.runs.pages.charts import Scale, histogram
from tamis.runs.pages.contact_sheet import SheetEntry, contact_sheet, side_by_side
from tamis.stages.image.filters import ImageFilter
from tamis.stages.text.filters.base import SHARE
from tamis.tasks.scored import Bounds

__all__ = ["image_page"]

_EXTREMES: Final = 6
_GROUPS: Final = 8
_EACH_GROUP: Final = 6
_BROKEN: Final = 20
_BINS: Final = 200
_NAMES: Final = {"nbytes": "bytes", "caption_characters": "caption, characters"}


def image_page(analysis: ImageAnalysis) -> str:
    """The analysis as one HTML page that needs nothing else."""
    title = some_names([os.path.basename(path.rstrip("/")) or path for path in analysis.paths], 2)
    head = f'<p class="soft">{_looked_at(analysis)}</p>{_tiles(analysis)}'
    return render_page(Page("Analysis", title, head, _sections(analysis), tamis.__version__))


def _sections(analysis: ImageAnalysis) -> Iterator[str]:
    pictures = Pictures(analysis.table)
    yield _overview(analysis)
    yield _recipe(analysis)
    yield _sizes(analysis)
    yield _broken(analysis)
    yield _duplicates(analysis, pictures)
    yield _captions(analysis)
    yield _filters(analysis, pictures)


def _looked_at(analysis: ImageAnalysis) -> str:
    images, where = figures.number(analysis.images), escaped(some_names(analysis.paths, 3))
    text = f"All {images} images of {where}."
    if analysis.fraction < 1:
        text = f"{images} images, {figures.percent(analysis.fraction)} of those in {where}, chosen by their names."
    if analysis.quarantined:
        text += f" {figures.number(analysis.quarantined)} could not be read; run/quarantine has them."
    return text


def _tiles(analysis: ImageAnalysis) -> str:
    images, nbytes = analysis.images, int(analysis.table["nbytes"].sum() or 0)
    size = " x ".join(shown_score(analysis.percentile(name, 50)) for name in ("width", "height"))
    formats = ", ".join(name for name, _ in analysis.counts("image_format")[:3])
    exact, near = analysis.exact.removed, analysis.near.removed
    return tiles_of(
        [
            Tile("Images", figures.number(images), formats),
            Tile("Size", figures.size(nbytes), f"{figures.size(nbytes // max(images, 1))} per image"),
            Tile("Median", size, "pixels, each side by itself"),
            Tile("Broken", figures.number(len(analysis.broken)), figures.percent(len(analysis.broken) / images)),
            Tile("Duplicates", figures.number(exact), f"the same bytes; {figures.number(near)} nearly the same"),
            Tile("Kept by defaults", figures.percent(analysis.kept_share_of_all()), f"{len(analysis.filters)} filters"),
        ]
    )


def _overview(analysis: ImageAnalysis) -> str:
    proposed = {proposal.filter.name: proposal for proposal in analysis.together}
    rows = []
    for one in analysis.filters:
        kept, alone = analysis.kept_share(one.name), analysis.alone.get(one.name)
        by_it, together = analysis.dropped_alone_share(one.name), proposed.get(one.name)
        rows.append(
            f'<tr><td class="name"><a href="#{escaped(one.name)}">{escaped(one.name)}</a></td>'
            f'<td class="words">{escaped(shown_bounds(one.bounds()))}</td>'
            f"{cell(figures.percent(kept), kept)}{cell(figures.percent(by_it), by_it)}"
            f'<td class="words">{escaped(shown_bounds(alone.filter.bounds())) if alone else ""}</td>'
            f'<td class="words">{escaped(shown_bounds(together.filter.bounds())) if together else ""}</td></tr>'
        )
    heads = ["Filter", "Default keeps", "Share kept", "Dropped by it alone"]
    heads += [f"To keep {figures.percent(analysis.keep_rate)} alone", "With the others"]
    table = html_table(heads, rows, "sortable", words=(heads[1], heads[4], heads[5]))
    return f"<h2>Filters<small>what each keeps, and thresholds for another share</small></h2>{table}"


def _recipe(analysis: ImageAnalysis) -> str:
    if not analysis.together:
        return ""
    share, wanted = analysis.proposed_share(), figures.percent(analysis.keep_rate)
    note = (
        f"With the thresholds of the last column, {len(analysis.together)} filters one after the other keep "
        f"{figures.percent(share)} of the images; {wanted} was requested. Each of them drops the same small share: the "
        "images with the most extreme scores. What is rare here need not be bad: look at the pictures below."
    )
    return (
        "<h2>Recipe<small>recipe.yaml, for tamis run</small></h2>"
        f"<p>{escaped(note)}</p>"
        f"<details><summary>Show the recipe</summary><pre>{escaped(analysis.recipe)}</pre></details>"
    )


def _sizes(analysis: ImageAnalysis) -> str:
    rows = []
    for name in SIZES:
        percentiles = "".join(cell(shown_score(analysis.percentile(name, p))) for p in PERCENTILES)
        rows.append(f'<tr><td class="name">{_NAMES.get(name, name)}</td>{percentiles}</tr>')
    table = html_table(["Per image", *(f"{p}%" for p in PERCENTILES)], rows)
    whole = len(analysis.whole)
    sides = [f"{row['width']} x {row['height']}" for row in analysis.whole.select("width", "height").to_dicts()]
    common = pl.Series("size", sides, pl.String).value_counts().sort(["count", "size"], descending=[True, False])
    return (
        f"<h2>Sizes and formats<small>percentiles</small></h2>{table}"
        f'<div class="pair"><div><h3>Formats</h3>{bar_table(analysis.counts("image_format"), whole)}</div>'
        f"<div><h3>Most frequent sizes</h3>{bar_table(list(common.iter_rows()), whole)}</div></div>"
    )


def _broken(analysis: ImageAnalysis) -> str:
    broken = analysis.broken
    if not len(broken):
        return ""
    rows = [
        f'<tr><td class="name">{escaped(_name(row), 300)}</td>'
        f'<td class="words name">{escaped(row["problem"], 300)}</td>'
        f"{cell(figures.number(row['nbytes'] or 0), row['nbytes'] or 0)}</tr>"
        for row in broken.head(_BROKEN).to_dicts()
    ]
    shown = f"; {_BROKEN} are shown, sample.parquet has all" if len(broken) > _BROKEN else ""
    table = html_table(("Image", "Problem", "Bytes"), rows, words=("Problem",))
    return f"<h2>Broken files<small>{figures.number(len(broken))} cannot be decoded{shown}</small></h2>{table}"


def _duplicates(analysis: ImageAnalysis, pictures: Pictures) -> str:
    kinds = (
        ("The same bytes", analysis.exact),
        ("The same pixels", analysis.pixels),
        (f"Perceptual hashes that differ in at most {NEAR_BITS} of 64 bits", analysis.near),
    )
    rows = [
        f'<tr><td class="name">{name}</td>{cell(figures.number(len(found.groups)))}'
        f"{cell(figures.number(found.removed))}{cell(figures.percent(found.removed / max(analysis.images, 1)))}</tr>"
        for name, found in kinds
    ]
    table = html_table(("What is compared", "Groups", "Would be removed", "Of all"), rows)
    note = "among the images that were measured" if analysis.fraction < 1 else "a group keeps one image"
    return f"<h2>Duplicates<small>{note}</small></h2>{table}{_groups(analysis.near, pictures)}"


def _groups(found: DuplicateGroups, pictures: Pictures) -> str:
    sheets = []
    for group in found.groups[:_GROUPS]:
        more = f"and {len(group) - _EACH_GROUP} more" if len(group) > _EACH_GROUP else ""
        entries = [SheetEntry(pictures.of(row), pictures.title(row), pictures.size(row)) for row in group[:_EACH_GROUP]]
        sheets.append(f"{contact_sheet(entries)}{escaped(more)}")
    if not sheets:
        return ""
    shown = f"the {len(sheets)} largest of {len(found.groups)} groups" if len(found.groups) > _GROUPS else "groups"
    return f'<h3>Nearly the same <small class="soft">{shown}</small></h3>{side_by_side(sheets)}'


def _captions(analysis: ImageAnalysis) -> str:
    captions = analysis.table["caption"].drop_nulls()
    captions = captions.filter(captions.str.strip_chars().str.len_chars() > 0)
    if not len(captions):
        return "<h2>Captions<small>no image has one</small></h2>"
    counts = captions.alias("caption").value_counts(name="images").sort(["images", "caption"], descending=[True, False])
    share = figures.percent(len(captions) / analysis.images)
    repeated = [(str(text), int(count)) for text, count in counts.iter_rows() if count > 1]
    more = f"<h3>Most frequent</h3>{bar_table(repeated, len(captions))}" if repeated else ""
    text = f"{figures.number(len(captions))} images ({share}) have one; {figures.number(len(counts))} are different"
    return f"<h2>Captions<small>{text}</small></h2>{more}"


def _filters(analysis: ImageAnalysis, pictures: Pictures) -> str:
    return scores_part(
        analysis,
        "images",
        lambda one, proposed: _chart(analysis, one, proposed),
        lambda one, other: _extremes(analysis, one, pictures),
    )


def _extremes(analysis: ImageAnalysis, one: ImageFilter, pictures: Pictures) -> str:
    """The images with the lowest and the highest scores, each picture once."""
    scored = analysis.table.with_row_index("row").filter(pl.col("problem").is_null())
    scored = scored.select("row", "pixels_hash", score=pl.col(one.name)).unique("pixels_hash", maintain_order=True)
    if scored["score"].n_unique() < 2:
        return ""
    kept = dict(zip(scored["row"], np.asarray(one.keep_scores(scored["score"].to_numpy())), strict=True))
    parts = []
    for name, descending in (("Lowest", False), ("Highest", True)):
        some = scored.sort(["score", "row"], descending=[descending, False]).head(_EXTREMES)
        entries = [
            SheetEntry(pictures.of(row), shown_score(score), pictures.title(row), "kept" if kept[row] else "lost")
            for row, score in zip(some["row"].to_list(), some["score"].to_list(), strict=True)
        ]
        parts.append(f"<p>{name}</p>{contact_sheet(entries)}")
    return f"<details><summary>The extremes</summary>{''.join(parts)}</details>"


def _chart(analysis: ImageAnalysis, one: ImageFilter, proposed: Bounds) -> str:
    values, bounds = np.sort(analysis.scores(one.name)), one.bounds()
    if not len(values):
        return ""
    lowest, most = (analysis.percentile(one.name, percent) for percent in (0, 99.5))
    scale = Scale.of(one.score_range == SHARE, lowest, most, [*bounds, *proposed])
    return histogram(one.name, _bins(values, one), scale, bounds, proposed, "images")


def _bins(values: np.ndarray[tuple[int], np.dtype[np.float64]], one: ImageFilter) -> Iterator[Bin]:
    """Scores that lie side by side, put together where there are many: a bin is all kept, or all dropped."""
    kept = np.asarray(one.keep_scores(values))
    edges = np.flatnonzero(kept[1:] != kept[:-1]) + 1
    for part in np.split(np.arange(len(values)), edges):
        for some in np.array_split(part, min(_BINS, len(part))):
            count = len(some)
            low, high = float(values[some[0]]), float(values[some[-1]])
            yield Bin(low, high, count, 0) if kept[some[0]] else Bin(low, high, 0, count)


def _name(row: dict[str, object]) -> str:
    return str(row["image_id"] or f"{row['source']}:{row['position']}{row['part'] or ''}")
