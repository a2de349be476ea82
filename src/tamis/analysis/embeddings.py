"""``tamis map``: a look at the embeddings of one or several data sets."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import tamis
from tamis.errors import DataError
from tamis.runs import figures
from tamis.runs.embedding_figures import Cluster, Diversity, clusters_of, diversity_of, grouped
from tamis.runs.embedding_sample import EmbeddingColumns, EmbeddingSample, sample_embeddings
from tamis.runs.html import Page, escaped, render_page
from tamis.runs.pages.embedding_section import MOST_CLUSTERS, cluster_table, diversity_table, embedding_map
from tamis.stages.io.listing import Listing
from tamis.stages.io.paths import open_write, path_text, writing

__all__ = ["EmbeddingMap", "map_embeddings"]

_LISTED_CLUSTERS: Final = 30


@dataclass(frozen=True)
class EmbeddingMap:
    """What the embeddings of some data sets look like.

    Args:
        samples: The sample of each data set, by its path.
        clusters: The cluster of each row of each sample.
        diversity: How diverse each sample is.
        typical: The largest clusters of all samples together, with their typical words.
    """

    samples: dict[str, EmbeddingSample]
    clusters: dict[str, list[str]]
    diversity: dict[str, Diversity]
    typical: list[Cluster]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: figures and clusters, without the rows."""
        return {
            "data_sets": {name: diversity.to_dict() for name, diversity in self.diversity.items()},
            "clusters": [asdict(cluster) for cluster in self.typical],
        }

    def write(self, path: str) -> None:
        """Write a page with the map, and the figures as JSON beside it.

        Args:
            path: The page, ``.html``.
        """
        for file, content in (
            (path, self.page()),
            (f"{os.path.splitext(path)[0]}.json", json.dumps(self.to_dict(), indent=1)),
        ):
            with writing(file), open_write(file) as target:
                target.write(content.encode())

    def page(self) -> str:
        """The page: one HTML file that needs nothing else."""
        rows = sum(len(sample) for sample in self.samples.values())
        names = list(self.samples)
        where = escaped(", ".join(names), 600)
        head = f'<p class="soft">From {figures.number(rows)} rows that are spread over {where}.</p>'
        several = f" {escaped(' | '.join(names), 300)}" if len(names) > 1 else ""
        sections = [
            f"<h2>Diversity</h2>{diversity_table(self.diversity)}",
            f"<h2>Map<small>{several}</small></h2>"
            f"{embedding_map(list(self.samples.values()), [self.clusters[name] for name in names])}",
            f"<h2>Clusters</h2>{cluster_table(self.typical, rows)}",
        ]
        return render_page(
            Page("Embeddings", os.path.basename(names[0].rstrip("/")), head, sections, tamis.__version__)
        )

    def _repr_html_(self) -> str:
        rows = sum(len(sample) for sample in self.samples.values())
        return f"<div>{diversity_table(self.diversity)}{cluster_table(self.typical, rows)}</div>"


def map_embeddings(
    paths: str | Sequence[str],
    *,
    rows: int = 2000,
    text_field: str = "text",
    embedding_field: str = "embeddings",
    cluster_field: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> EmbeddingMap:
    """Look at the embeddings of data sets: a map, clusters with their typical words, and how diverse they are.

    Several data sets, such as one before and after deduplication, are shown in the same plane, with the same clusters.

    Args:
        paths: Parquet files, directories with them, or patterns; each is a data set.
        rows: How many rows of each to look at, spread over its files.
        text_field: The column with the text.
        embedding_field: The column with the embeddings.
        cluster_field: A column with clusters. When not given, the rows are put into at most 12 clusters.
        storage_options: For fsspec file systems.

    Raises:
        DataError: There are no embeddings, or those of two data sets have different lengths.

    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> from tamis.stages.text.embedders import HashedEmbeddingStage
    >>> from tamis.tasks import DocumentBatch
    >>> made = HashedEmbeddingStage().process(DocumentBatch({"text": ["sailing boats", "boats sail", "eggs"]}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(made.data, f"{folder}/a.parquet")
    ...     list(map_embeddings(folder).diversity.values())[0].rows
    3
    """
    if rows < 1:
        raise ValueError(f"rows={rows}: must be at least 1")
    columns = EmbeddingColumns(embedding_field, text_field, cluster_field or "")
    samples: dict[str, EmbeddingSample] = {}
    for path in [paths] if isinstance(paths, str) else paths:
        name, options = path_text(path), dict(storage_options or {})
        files = [file.path for file in Listing((name,), (".parquet",), options).files()]
        samples[name] = sample_embeddings(files, rows, columns, options)
        if not len(samples[name]):
            raise DataError(f"no row of the sample has an embedding in the column {embedding_field!r}", path=name)
    lengths = {name: sample.vectors.shape[1] for name, sample in samples.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} in {name}" for name, length in lengths.items())
        raise DataError(f"the embeddings have different lengths: {told}")
    clusters = _clusters(samples, bool(cluster_field))
    together = _joined(list(samples.values()))
    everywhere = [name for each in clusters.values() for name in each]
    return EmbeddingMap(
        samples,
        clusters,
        {name: diversity_of(sample.vectors, clusters[name]) for name, sample in samples.items()},
        clusters_of(together.vectors, together.texts, everywhere, _LISTED_CLUSTERS),
    )


def _clusters(samples: dict[str, EmbeddingSample], recorded: bool) -> dict[str, list[str]]:
    if recorded:
        return {name: sample.clusters for name, sample in samples.items()}
    found, made, at = grouped(_joined(list(samples.values())).vectors, MOST_CLUSTERS), {}, 0
    for name, sample in samples.items():
        made[name] = found[at : at + len(sample)]
        at += len(sample)
    return made


def _joined(samples: list[EmbeddingSample]) -> EmbeddingSample:
    import numpy as np

    vectors = np.concatenate([sample.vectors for sample in samples])
    return EmbeddingSample(vectors, [text for sample in samples for text in sample.texts])
