"""Keep one language, embed, filter with a classifier trained here, keep one of the documents that are alike: on CPUs.

It runs on the sample data that ships with tamis and downloads nothing. It needs ``pip install -e '.[language]'``.
"""

import json
from pathlib import Path

import pyarrow.parquet as pq

from tamis import Pipeline
from tamis.quickstart import sample_files
from tamis.stages.deduplication.semantic import SemanticDeduplicationStage
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from tamis.stages.text.columns import DropColumns
from tamis.stages.text.embedders import HashedEmbeddingStage
from tamis.stages.text.filters import LanguageFilter, ScoreFilter
from tamis.stages.text.trained_classifier import TrainedClassifier
from tamis.training import train_classifier

# 1. Keep English documents, and give each a vector.
embed = Pipeline(
    "embed",
    stages=[
        JsonlReader(sample_files(), fields=["id", "text"], on_error="quarantine"),
        ScoreFilter(LanguageFilter(["en"], min_score=0.5)),
        HashedEmbeddingStage(),
        ParquetWriter("embedded"),
    ],
)
embedded = embed.run(progress="off")
print("documents in English:", embedded.rows)

# 2. Label some of them. A list that ships with the sample names the pages that kept their navigation bars, tables of
#    contents and lists of links. Labels of your own are a column, too.
kinds = json.loads(Path(sample_files()[0]).with_name("dirt.json").read_text(encoding="utf-8"))["classes"]
menus = {page for kind in ("navigation_bars", "index_pages", "url_lists") for page in kinds[kind]["ids"]}
rows = pq.read_table(embedded.outputs).slice(0, 1500)
labels = ["menus" if page in menus else "prose" for page in rows["id"].to_pylist()]
pq.write_table(rows.append_column("label", [labels]), "labelled.parquet")

# 3. Train a classifier on the vectors. ``quality-model/README.md`` is its card.
trained = train_classifier("labelled.parquet", "quality-model", embedding_field="embeddings")
for label in trained.evaluation.by_label:
    print(f"{label.label}: precision {label.precision:.2f}, recall {label.recall:.2f} of {label.rows} test documents")

# 4. Filter all documents with it, and of those that are alike keep one.
curate = Pipeline(
    "curate",
    stages=[
        ParquetReader(embedded.outputs),
        TrainedClassifier("quality-model", filter_by=["prose"], embedding_field="embeddings"),
        SemanticDeduplicationStage(id_field="id", embedding_field="embeddings", n_clusters=16, eps=0.1),
        DropColumns(["embeddings"]),
        JsonlWriter("curated"),
    ],
)
result = curate.run(progress="off")
for stage in result.stages:
    for reason, dropped in stage.dropped.items():
        print(f"{stage.name}: {dropped} rows, {reason}")
print("documents that are left:", result.rows)
print(result.duplicates())
