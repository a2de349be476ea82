"""Rows are found by the embedding of a text, made by the stage that made theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.analysis.search import files as search_files
from tamis.analysis.search import search
from tamis.cli import main
from tamis.errors import DataError, PlanError
from tamis.pipeline.pipeline import Pipeline
from tamis.stages.base import CompositeStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.io import JsonlReader, ParquetWriter
from tamis.stages.text.embedders import HashedEmbeddingStage
from tamis.stages.vectors import vector_column, vectors_of
from tamis.tasks import DocumentBatch

SUBJECTS = ("sailing boats", "boiling eggs", "repairing cars", "growing roses", "baking bread")
TEXTS = [f"chapter {i} about {SUBJECTS[i % 5]} and more on {SUBJECTS[i % 5]}" for i in range(60)]


def save(folder: Path, texts: list[str | None] = TEXTS, stage: HashedEmbeddingStage | None = None) -> None:
    """Embed texts by a run, to several files."""
    folder.mkdir()
    source = folder / "source.jsonl"
    source.write_text("".join(json.dumps({"body": text, "n": i}) + "\n" for i, text in enumerate(texts)))
    made = stage or HashedEmbeddingStage(text_field="body", dim=128)
    Pipeline("embed", stages=[JsonlReader(str(source), blocksize=500), made, ParquetWriter(str(folder / "out"))]).run()


def test_the_stage_of_the_run_embeds_the_text(tmp_path: Path) -> None:
    save(tmp_path / "a")
    result = search(str(tmp_path / "a/out"), "roses that grow: growing a rose", k=12)
    assert len(list((tmp_path / "a/out").glob("*.parquet"))) > 1
    assert [hit.values["n"] % 5 for hit in result] == [3] * 12
    assert result.rows == 60
    assert result[0].score >= result[-1].score
    assert "HashedEmbeddingStage" in result.stage
    assert "about growing roses" in result.text_of(result[0])
    assert result.text_of(result[0], 7) == "chapter ..."
    assert "embeddings" not in result[0].values


def test_hits_name_their_rows(tmp_path: Path) -> None:
    save(tmp_path / "a")
    for hit in search(str(tmp_path / "a/out"), "baking bread chapter 14", k=5):
        row = pq.read_table(hit.file).slice(hit.row, 1).to_pylist()[0]
        assert row["n"] == hit.values["n"]
        assert hit.name == f"{hit.file}:{hit.row}"


def test_the_same_hits_for_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a", [*TEXTS, *TEXTS, None, "..."])
    expected = search(str(tmp_path / "a/out"), "boiling an egg", k=30)
    stage = HashedEmbeddingStage("body", dim=128)
    query = vectors_of(stage.process(DocumentBatch({"body": ["boiling an egg"]})).data["embeddings"], "")[0][0]
    rows = pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / "a/out").glob("*.parquet")))
    vectors, missing = vectors_of(rows["embeddings"], "")
    order = np.lexsort((np.arange(len(rows)), -(vectors.astype(float) @ query.astype(float)).round(12)))
    assert [hit.values["n"] for hit in expected] == rows["n"].take(pa.array(order[:30])).to_pylist()
    assert expected.without == missing.sum() == 2
    for size in (1, 128 * 4 * 7):
        monkeypatch.setattr(search_files, "_BLOCK_BYTES", size)
        assert search(str(tmp_path / "a/out"), "boiling an egg", k=30) == expected


def test_one_file_that_a_run_wrote(tmp_path: Path) -> None:
    save(tmp_path / "a")
    file = sorted((tmp_path / "a/out").glob("*.parquet"))[0]
    result = search(str(file), "eggs", k=100)
    assert len(result) == result.rows == pq.read_metadata(file).num_rows


def test_files_without_a_record_need_the_stage(tmp_path: Path) -> None:
    made = HashedEmbeddingStage(dim=32).process(DocumentBatch({"text": TEXTS})).data
    pq.write_table(made, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="it is not known which stage made the embeddings"):
        search(str(tmp_path), "eggs")
    result = search(str(tmp_path), "boiling eggs", k=2, stage=HashedEmbeddingStage(dim=32))
    assert all("boiling eggs" in hit.values["text"] for hit in result)
    assert len(result) == 2


def test_lists_of_any_kind_are_embeddings(tmp_path: Path) -> None:
    vectors = HashedEmbeddingStage(dim=32).process(DocumentBatch({"text": TEXTS})).data["embeddings"]
    for i, kind in enumerate((pa.list_(pa.float32()), pa.list_(pa.float64(), 32), pa.large_list(pa.float64()))):
        pq.write_table(pa.table({"embeddings": vectors.cast(kind), "n": range(60)}), tmp_path / f"{i}.parquet")
    result = search(str(tmp_path), "boiling eggs", k=6, stage=HashedEmbeddingStage(dim=32))
    first = result[0].row
    assert [hit.row for hit in result[:3]] == [first] * 3
    assert [Path(hit.file).name for hit in result[:3]] == ["0.parquet", "1.parquet", "2.parquet"]


def test_another_stage_than_the_one_of_the_run_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "a")
    with pytest.raises(DataError, match=r"were made by HashedEmbeddingStage\(.*dim=128.*not by.*dim=64"):
        search(str(tmp_path / "a/out"), "eggs", stage=HashedEmbeddingStage(dim=64))
    assert search(str(tmp_path / "a/out"), "eggs", stage=HashedEmbeddingStage(dim=128)).rows == 60


def test_outputs_of_different_stages_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a")
    save(tmp_path / "b", stage=HashedEmbeddingStage(text_field="body", dim=128, seed=7))
    with pytest.raises(DataError, match=r"seed=7.*cannot be compared"):
        search([str(tmp_path / "a/out"), str(tmp_path / "b/out")], "eggs")


def test_vectors_of_another_length_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"embeddings": vector_column(np.ones((3, 5), np.float32))}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: .*vectors of length 5, and the text's has 512"):
        search(str(tmp_path), "eggs", stage=HashedEmbeddingStage())


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"embedding": [[1.0]]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no column 'embeddings', only embedding. Did you mean 'embedding'"):
        search(str(tmp_path), "eggs", stage=HashedEmbeddingStage())


def test_what_cannot_be_searched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or directory"):
        search(str(tmp_path / "missing"), "eggs", stage=HashedEmbeddingStage())
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"a\.parquet"):
        search(str(tmp_path), "eggs", stage=HashedEmbeddingStage())
    with pytest.raises(DataError, match="has no embedding for the text '---'"):
        search(str(tmp_path), "---", stage=HashedEmbeddingStage())


def test_a_stage_that_makes_no_embeddings_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"embeddings": [[1.0]]}), tmp_path / "a.parquet")
    with pytest.raises(PlanError, match="is not a stage that makes embeddings of texts"):
        search(str(tmp_path), "eggs", stage=ExactDeduplication())


def test_no_row_with_an_embedding(tmp_path: Path) -> None:
    save(tmp_path / "a", ["", "..."])
    result = search(str(tmp_path / "a/out"), "eggs")
    assert (len(result), result.rows, result.without) == (0, 2, 2)


@dataclass(repr=False)
class Both(CompositeStage[DocumentBatch, DocumentBatch]):
    """An embedding by several stages."""

    text_field: str = "text"
    embedding_field: str = "embeddings"

    def decompose(self) -> list[HashedEmbeddingStage]:
        return [
            HashedEmbeddingStage(self.text_field, "other", dim=3),
            HashedEmbeddingStage(self.text_field, self.embedding_field, dim=32),
        ]


def test_a_stage_that_unfolds_into_several(tmp_path: Path) -> None:
    made = HashedEmbeddingStage(dim=32).process(DocumentBatch({"text": TEXTS})).data
    pq.write_table(made, tmp_path / "a.parquet")
    result = search(str(tmp_path), "baking", k=3, stage=Both())
    assert result.hits == search(str(tmp_path), "baking", k=3, stage=HashedEmbeddingStage(dim=32)).hits


RECORD = "name: a\nstages:\n  - JsonlReader: {file_paths: a}\n  - "


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("StaticEmbeddingStage: {model: {Model: {name: a/b, trust_remote_code: true}}}", "trust_remote_code"),
        ("StaticEmbeddingStage: {model: {Model: {name: a/b, allow_pickle: true}}}", "allow_pickle"),
        ("os:system: {embedding_field: embeddings}", "it is not known which stage"),
        ("HashedEmbeddingStage: {embedding_field: other}", "it is not known which stage"),
        ("ExactDeduplication", "it is not known which stage"),
    ],
)
def test_a_record_runs_no_code(tmp_path: Path, stage: str, message: str) -> None:
    pq.write_table(pa.table({"embeddings": [[1.0]]}), tmp_path / "a.parquet")
    (tmp_path / "RUN.json").write_text(json.dumps({"recipe": RECORD + stage}))
    with pytest.raises(DataError, match=message):
        search(str(tmp_path), "eggs")


@pytest.mark.parametrize("record", ["", "[]", '{"recipe": 5}', '{"recipe": "a: ["}'])
def test_a_damaged_record_counts_as_none(tmp_path: Path, record: str) -> None:
    pq.write_table(pa.table({"embeddings": [[1.0]]}), tmp_path / "a.parquet")
    (tmp_path / "RUN.json").write_text(record)
    with pytest.raises(DataError, match="it is not known which stage"):
        search(str(tmp_path), "eggs")


def test_the_stage_inside_a_branch_is_found(tmp_path: Path) -> None:
    made = HashedEmbeddingStage(dim=32).process(DocumentBatch({"text": TEXTS})).data
    pq.write_table(made, tmp_path / "a.parquet")
    recipe = f"{RECORD}Route:\n      by: lang\n      branches:\n        en: [HashedEmbeddingStage: {{dim: 32}}]\n"
    (tmp_path / "RUN.json").write_text(json.dumps({"recipe": recipe}))
    assert "dim=32" in search(str(tmp_path), "eggs").stage


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "a", [*TEXTS, None])
    folder = str(tmp_path / "a/out")
    assert main(["search", folder, "repairing a car", "--k", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("about repairing cars") == 2
    assert "61 rows compared, 1 of them without an embedding." in shown
    assert main(["search", folder, "repairing a car", "--k", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [hit["values"]["n"] % 5 for hit in found["hits"]] == [2, 2]
    assert found["rows_without_embedding"] == 1
    assert main(["search", folder, "cars", "--stage", "HashedEmbeddingStage: {dim: 5}"]) == 1
    assert "cannot be compared" in capsys.readouterr().err
    assert main(["search", folder, "cars", "--stage", "ExactDeduplication"]) == 1
    assert "ExactDeduplication" in capsys.readouterr().err
    assert main(["search", folder, "cars", "--stage", "HashedEmbedingStage"]) == 1
    assert "Did you mean 'HashedEmbeddingStage'" in capsys.readouterr().err
