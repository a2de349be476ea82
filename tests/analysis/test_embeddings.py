"""A look at embeddings: the same sample each time, of bounded size, in reports and on pages of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.analysis.embeddings import map_embeddings
from tamis.cli import main
from tamis.errors import DataError
from tamis.pipeline.pipeline import Pipeline
from tamis.runs.embedding_sample import EmbeddingColumns, sample_embeddings
from tamis.stages.io import JsonlWriter, ParquetReader, ParquetWriter
from tamis.stages.text.embedders import HashedEmbeddingStage
from tamis.tasks import DocumentBatch

SUBJECTS = ("sailing boats at sea", "boiling eggs in water", "growing red roses")
TEXTS = [f"chapter {i} on {SUBJECTS[i % 3]}, <b>{SUBJECTS[i % 3]}</b>" for i in range(90)]


def embedded(texts: list[str | None]) -> pa.Table:
    made = HashedEmbeddingStage(dim=64).process(DocumentBatch({"text": texts})).data
    return made.append_column("subject", pa.array([i % 3 for i in range(len(texts))]))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    table = embedded([*TEXTS, None, "..."])
    for i in range(4):
        pq.write_table(table.slice(23 * i, 23), tmp_path / f"data/{i}.parquet", row_group_size=7)
    return str(tmp_path / "data")


def test_a_sample_is_bounded_and_the_same_each_time(folder: str) -> None:
    files = sorted(str(path) for path in Path(folder).glob("*.parquet"))[:3]  # the last one has rows without embedding
    sample = sample_embeddings(files, 12, EmbeddingColumns())
    again = sample_embeddings(files, 12, EmbeddingColumns())
    assert len(sample) == len(sample.texts) == 12
    assert sample.texts == again.texts
    assert np.array_equal(sample.vectors, again.vectors)
    assert np.allclose(np.linalg.norm(sample.vectors, axis=1), 1)


def test_rows_without_an_embedding_are_left_out(tmp_path: Path) -> None:
    pq.write_table(embedded(["a text", None, "...", "another"]), tmp_path / "a.parquet")
    sample = sample_embeddings([str(tmp_path / "a.parquet")], 100, EmbeddingColumns(cluster="subject"))
    assert (sample.texts, sample.clusters, sample.rows) == (["a text", "another"], ["0", "0"], 4)


def test_clusters_have_the_words_of_their_subjects(folder: str) -> None:
    made = map_embeddings(folder)
    assert len(made.typical) == len(set(next(iter(made.clusters.values())))) <= 12
    for cluster in made.typical:
        subject = next(words for words in SUBJECTS if words in cluster.example)
        assert set(cluster.words) & set(subject.split())
        assert not set(cluster.words) & {word for words in SUBJECTS if words != subject for word in words.split()}


def test_clusters_of_a_column(folder: str) -> None:
    made = map_embeddings(folder, cluster_field="subject")
    (diversity,) = made.diversity.values()
    assert {cluster.name for cluster in made.typical} == {"0", "1", "2"}
    assert diversity.clusters == 3
    assert all(len(cluster.words) > 2 for cluster in made.typical)


def test_before_and_after_side_by_side(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(embedded([TEXTS[0], TEXTS[1], TEXTS[2]]), tmp_path / "after.parquet")
    page = str(tmp_path / "map.html")
    assert main(["map", folder, str(tmp_path / "after.parquet"), "--output", page]) == 0
    shown = capsys.readouterr().out
    assert "Vendi score" in shown
    assert "boats" in shown
    html = Path(page).read_text(encoding="utf-8")
    assert html.count('<svg class="map"') == 2
    for picture in re.findall(r"<svg class=\"map\".*?</svg>", html, re.DOTALL):
        dots = ElementTree.fromstring(picture).findall("circle")
        assert len(dots) in (90, 3)
        for dot in dots:
            assert 0 <= float(dot.attrib["cx"]) <= 640
            assert 0 <= float(dot.attrib["cy"]) <= 420
            assert dot.find("title").text.partition(": ")[2].startswith("chapter")
    assert "<b>" not in html.partition("<h2>")[2]
    figures = json.loads(Path(tmp_path / "map.json").read_text(encoding="utf-8"))["data_sets"]
    before, after = figures.values()
    assert after["mean_distance"] > before["mean_distance"]
    assert after["near_duplicates"] < before["near_duplicates"]


def test_a_single_row(folder: str) -> None:
    made = map_embeddings(f"{folder}/0.parquet", rows=1)
    assert [cluster.rows for cluster in made.typical] == [1]
    assert "<circle" in made.page()


def test_what_cannot_be_mapped(folder: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'vector', only text, embeddings, subject"):
        map_embeddings(folder, embedding_field="vector")
    with pytest.raises(DataError, match="no column 'topic'"):
        map_embeddings(folder, cluster_field="topic")
    pq.write_table(embedded(["", "..."]), tmp_path / "empty.parquet")
    with pytest.raises(DataError, match="no row of the sample has an embedding"):
        map_embeddings(str(tmp_path / "empty.parquet"))
    pq.write_table(pa.table({"embeddings": [[1.0, 2.0]]}), tmp_path / "short.parquet")
    with pytest.raises(DataError, match=r"different lengths: 64 in .* 2 in"):
        map_embeddings([folder, str(tmp_path / "short.parquet")])
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"broken\.parquet"):
        map_embeddings(str(tmp_path / "broken.parquet"))


def test_the_report_of_a_run_shows_its_embeddings(folder: str, tmp_path: Path) -> None:
    stages = [
        ParquetReader(folder, fields=["text"]),
        HashedEmbeddingStage(dim=32),
        ParquetWriter(str(tmp_path / "out")),
    ]
    Pipeline("embed", stages=stages).run(run_dir=str(tmp_path / "run"))
    report = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "<h2>Embeddings" in report
    assert report.count("<circle") == len(TEXTS)
    assert "Vendi score" in report
    assert "boats" in report


def test_the_report_of_a_run_without_embeddings_has_no_such_section(folder: str, tmp_path: Path) -> None:
    for name, stages in (
        ("plain", [ParquetWriter(str(tmp_path / "plain"), fields=["text"])]),
        ("dropped", [HashedEmbeddingStage(), ParquetWriter(str(tmp_path / "dropped"), fields=["text"])]),
        ("lines", [HashedEmbeddingStage(), JsonlWriter(str(tmp_path / "lines"))]),
    ):
        run_dir = tmp_path / f"run-{name}"
        Pipeline(name, stages=[ParquetReader(folder, fields=["text"]), *stages]).run(run_dir=str(run_dir))
        assert "<h2>Embeddings" not in (run_dir / "report.html").read_text(encoding="utf-8")
