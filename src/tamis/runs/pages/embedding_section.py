"""Embeddings on a page: a map, clusters with their typical words, and how diverse they are."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tamis.errors import TamisError
from tamis.runs import figures
from tamis.runs.embedding_figures import Cluster, Diversity, clusters_of, diversity_of, grouped, principal_axes
from tamis.runs.embedding_sample import EmbeddingColumns, EmbeddingSample, opened_parquet, sample_embeddings
from tamis.runs.html import cell, escaped, html_table
from tamis.runs.pages.run_view import RunView
from tamis.stages.io.paths import is_local

__all__ = ["cluster_table", "diversity_table", "embedding_map", "embeddings_section"]

MOST_CLUSTERS: Final = 12

_SAMPLED: Final = 1_000
_WIDTH, _HEIGHT, _MARGIN = 640, 420, 12
_COLOURS: Final = (
    *("#2f7f6f", "#c4622d", "#4a6fb5", "#b08a1e", "#8b5aa8", "#5b8f2d"),
    *("#bf4a6a", "#3d93a8", "#8a6a4a", "#6b6fc9", "#a05d8c", "#7d7f84"),
)
_MARK_CHARACTERS: Final = 90
_EXAMPLE_CHARACTERS: Final = 160


def embeddings_section(view: RunView) -> str:
    """The embeddings that a run wrote to Parquet files on this machine; nothing if it wrote none, or still runs."""
    columns = _written_columns(view)
    if columns is None or view.is_running:
        return ""
    paths = [str(output.get("path", "")) for output in view.summary.outputs]
    files = [path for path in paths if path.endswith(".parquet") and is_local(path)]
    try:
        if not files or not _has_column(files[0], columns.embedding):
            return ""
        sample = sample_embeddings(files, _SAMPLED, columns)
    except (TamisError, OSError) as error:
        return f'<h2>Embeddings</h2><p class="soft">{escaped(error, 400)}</p>'
    if not len(sample):
        return ""
    clusters = grouped(sample.vectors, MOST_CLUSTERS)
    note = f"column {columns.embedding}; from {figures.number(len(sample))} rows that are spread over the output"
    return (
        f"<h2>Embeddings<small>{escaped(note, 200)}</small></h2>"
        f"{diversity_table({'': diversity_of(sample.vectors, clusters)})}{embedding_map([sample], [clusters])}"
        f"{cluster_table(clusters_of(sample.vectors, sample.texts, clusters, MOST_CLUSTERS), len(sample))}"
    )


def diversity_table(sets: Mapping[str, Diversity]) -> str:
    """How diverse some samples are, side by side.

    Args:
        sets: By name.
    """
    measures: tuple[tuple[str, str, str], ...] = (
        ("mean_distance", "Mean distance of two rows (1 - cosine)", ".3f"),
        ("effective_directions", "Vendi score: how many different rows that is worth", ",.1f"),
        ("near_duplicates", "Rows with another one nearer than a cosine of 0.95", ".1%"),
        ("clusters", "Clusters", ",d"),
        ("effective_clusters", "Effective number of clusters", ".1f"),
        ("largest_cluster", "Share of the largest cluster", ".1%"),
        ("rows", "Rows compared", ",d"),
    )
    rows = [
        f'<tr><td class="name">{label}</td>'
        f"{''.join(cell(format(getattr(diversity, name), form)) for diversity in sets.values())}</tr>"
        for name, label, form in measures
    ]
    return html_table(("Diversity", *(escaped(name or "Value", 80) for name in sets)), rows)


def embedding_map(samples: Sequence[EmbeddingSample], clusters: Sequence[Sequence[str]]) -> str:
    """Samples in the plane of the two directions in which all of them differ most, as SVG: one map for each.

    Args:
        samples: At least one row in all.
        clusters: The cluster of each row of each sample.
    """
    vectors = np.concatenate([sample.vectors for sample in samples if len(sample)])
    middle, axes, shares = principal_axes(vectors)
    everywhere = (vectors - middle) @ axes.T
    low, high = everywhere.min(axis=0), everywhere.max(axis=0)
    scale = np.array([_WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN]) / np.maximum(high - low, 1e-9)
    names = sorted({name for each in clusters for name in each}, key=_order)
    colours = {name: _COLOURS[min(place, len(_COLOURS) - 1)] for place, name in enumerate(names)}
    maps = []
    for sample, of_each in zip(samples, clusters, strict=True):
        places = (
            ((sample.vectors - middle) @ axes.T - low) * scale + _MARGIN if len(sample) else np.zeros((0, 2))
        ).round(1)
        dots = "".join(
            f'<circle cx="{x}" cy="{_HEIGHT - y:.1f}" r="3.2" fill="{colours[name]}" fill-opacity=".65">'
            f"<title>{escaped(name, 40)}: {escaped(' '.join(text[:400].split()), _MARK_CHARACTERS)}</title></circle>"
            for (x, y), name, text in zip(places.tolist(), of_each, sample.texts, strict=True)
        )
        maps.append(
            f'<svg class="map" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="A map of the embeddings: a dot '
            f'for each row, coloured by cluster">{dots}</svg>'
        )
    told = f"the two directions hold {shares[0]:.1%} and {shares[1]:.1%} of all differences; colours are clusters"
    return f'<div class="charts">{"".join(maps)}</div><p class="soft">{told}</p>'


def cluster_table(clusters: Sequence[Cluster], rows: int) -> str:
    """Clusters with their size and typical words.

    Args:
        clusters: Some clusters.
        rows: How many rows the sample has.
    """
    shown = [
        f'<tr><td class="name">{escaped(each.name, 60)}</td>'
        f"{cell(figures.percent(each.rows / rows), each.rows)}"
        f'<td class="name words">{escaped(", ".join(each.words), 200)}</td>'
        f'<td class="name words soft">{escaped(each.example, _EXAMPLE_CHARACTERS)}</td></tr>'
        for each in clusters
    ]
    return html_table(("Cluster", "Share", "Typical words", "Nearest to its middle"), shown, "", _WORDY)


_WORDY: Final = ("Typical words", "Nearest to its middle")


def _order(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def _written_columns(view: RunView) -> EmbeddingColumns | None:
    """The columns of the last stage of a run that makes embeddings."""
    found = None
    for vertex in view.outline.get("vertices", ()):
        parameters = vertex.get("parameters", {})
        embedding = _literal(parameters.get("embedding_field"))
        if embedding:
            found = EmbeddingColumns(embedding, _literal(parameters.get("text_field")) or "text")
    return found


def _literal(text: Any) -> str:
    try:
        value = ast.literal_eval(text) if isinstance(text, str) else ""
    except (ValueError, SyntaxError):
        return ""
    return value if isinstance(value, str) else ""


def _has_column(path: str, name: str) -> bool:
    with opened_parquet(path, {}) as parquet:
        return name in parquet.schema_arrow.names
