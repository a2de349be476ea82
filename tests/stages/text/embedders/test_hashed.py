"""The stage that makes vectors by hashing words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import ColumnError, DataError
from tamis.kernels.hashed_words import HashedWords
from tamis.pipeline.pipeline import Pipeline
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.stages.text.embedders import HashedEmbeddingStage, write_word_rarity
from tamis.stages.vectors import vectors_of
from tamis.tasks import DocumentBatch

TEXTS = ["a small red boat", "", None, "ein kleines rotes Boot", "..."]


def test_vectors_are_a_column_of_lists_of_fixed_size() -> None:
    made = HashedEmbeddingStage(embedding_field="vector", dim=32).process(DocumentBatch({"text": TEXTS}))
    column = made.data["vector"]
    assert column.type == pa.list_(pa.float32(), 32)
    assert column.is_null().to_pylist() == [False, True, True, False, True]
    vectors, missing = vectors_of(column, "vector")
    assert vectors[~missing].tolist() == HashedWords(32).vectors(pa.array(TEXTS))[[0, 3]].tolist()


def test_a_batch_without_rows() -> None:
    made = HashedEmbeddingStage(dim=8).process(DocumentBatch(pa.table({"text": pa.array([], pa.string())})))
    assert made.data["embeddings"].type == pa.list_(pa.float32(), 8)


def test_the_same_bits_whatever_the_pipeline(tmp_path: Path) -> None:
    texts = [f"document {i} on subject {i % 7}" for i in range(100)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in.parquet", row_group_size=13)
    for out, options in (("a", {}), ("b", {"blocksize": 200})):
        Pipeline(
            "embed",
            stages=[
                ParquetReader(str(tmp_path / "in.parquet"), **options),
                HashedEmbeddingStage(dim=16),
                ParquetWriter(str(tmp_path / out)),
            ],
        ).run()
    one, other = (
        pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / out).glob("*.parquet"))).sort_by("text")
        for out in ("a", "b")
    )
    assert one.equals(other)
    assert one["embeddings"].type == pa.list_(pa.float32(), 16)
    expected = HashedWords(16).vectors(one["text"])
    assert np.array_equal(vectors_of(one["embeddings"], "embeddings")[0], expected)


def test_rarity_from_a_file_changes_what_counts(tmp_path: Path) -> None:
    texts = [f"standard disclaimer applies here {i} item{i}" for i in range(200)]
    write_word_rarity(str(tmp_path / "rarity.npy"), [pa.array(texts)])
    stages = HashedEmbeddingStage(), HashedEmbeddingStage(rarity_path=str(tmp_path / "rarity.npy"))
    near, far = (
        vectors_of(stage.process(DocumentBatch({"text": texts[:2]})).data["embeddings"], "")[0] for stage in stages
    )
    assert near[0] @ near[1] > 0.6 > far[0] @ far[1]


def test_a_file_that_is_no_rarity(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("not numbers")
    np.save(tmp_path / "short.npy", np.zeros(5, np.uint8))
    np.save(tmp_path / "objects.npy", np.array([{}], object))
    for name, message in (
        ("missing.npy", "missing.npy"),
        ("text.npy", r"not a file of write_word_rarity"),
        ("short.npy", "it has other numbers"),
        ("objects.npy", r"not a file of write_word_rarity"),
    ):
        with pytest.raises(DataError, match=message):
            HashedEmbeddingStage(rarity_path=str(tmp_path / name)).process(DocumentBatch({"text": ["a"]}))


def test_columns_that_are_not_there_or_hold_no_text() -> None:
    with pytest.raises(ColumnError, match="Did you mean 'text'"):
        HashedEmbeddingStage(text_field="txt").process(DocumentBatch({"text": ["a"]}))
    with pytest.raises(TypeError, match="works on text"):
        HashedEmbeddingStage().process(DocumentBatch({"text": [1]}))
    with pytest.raises(ValueError, match="the column with the text"):
        HashedEmbeddingStage(embedding_field="text")
    with pytest.raises(ValueError, match="dim = 0"):
        HashedEmbeddingStage(dim=0)
