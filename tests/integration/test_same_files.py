"""One worker or eight, inline, threads or processes: the same files, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.quickstart import quickstart_pipeline, sample_files
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.exchange import ShuffleStage
from tamis.stages.flow import Route, Tee
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.io.card_files import CARD_FILES
from tamis.tasks import DocumentBatch

WAYS: list[tuple[Any, int]] = [("inline", 0), ("threads", 1), ("threads", 8), ("processes", 2)]


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name[0] != "." and p.name not in CARD_FILES
    }


def files_of(tmp_path: Path, pipeline: Pipeline, output: Path, way: tuple[Any, int], mode: Any) -> dict[str, bytes]:
    executor = LocalExecutor(way[1], way[0], execution_mode=mode, memory_budget="64MiB")
    pipeline.run(executor, run_dir=str(tmp_path / f"run-{output.name}"), progress="off")
    return contents(output)


@pytest.mark.parametrize("mode", ["streaming", pytest.param("batch", marks=pytest.mark.exhaustive)])
def test_the_quickstart_writes_the_same_files(tmp_path: Path, mode: str) -> None:
    found = []
    for way in WAYS:
        output = tmp_path / f"{way[0]}-{way[1]}"
        found.append(files_of(tmp_path, quickstart_pipeline(str(output)), output, way, mode))
    assert len(found[0]) > 10
    assert all(f == found[0] for f in found)


class ShortestPerLanguage(ShuffleStage):
    def reduce(self, partition: DocumentBatch) -> DocumentBatch:
        frame = partition.to_polars()
        return DocumentBatch(
            frame.sort(frame["text"].str.len_bytes(), maintain_order=True).group_by("lang", maintain_order=True).head(5)
        )


@processing_stage(name="shout")
def shout(task: DocumentBatch) -> DocumentBatch:
    import pyarrow.compute as pc

    at = task.data.column_names.index("text")
    return task.with_table(task.data.set_column(at, "text", pc.utf8_upper(task.data["text"])))


def branched(output: Path) -> Pipeline:
    reader = JsonlReader(sample_files(), fields=["id", "text", "lang"], blocksize="1MiB", on_error="quarantine")
    stages: list[ProcessingStage[Any, Any]] = [
        reader,
        Tee([JsonlWriter(str(output / "all"), shard_bytes="2MB", compression="gz")]),
        Route("lang", {"de": [shout], "en": [ExactDeduplication()], "ja": [JsonlWriter(str(output / "ja"))]}),
        Tee([ShortestPerLanguage(by=["lang"], partitions=4), JsonlWriter(str(output / "short"))]),
        ParquetWriter(str(output / "by-language"), partition_by="lang", shard_bytes="300kB"),
    ]
    return Pipeline("branched", stages=stages)


def test_branches_shuffles_and_shards_write_the_same_files(tmp_path: Path) -> None:
    found = []
    for way in WAYS:
        output = tmp_path / f"{way[0]}-{way[1]}"
        found.append(files_of(tmp_path, branched(output), output, way, "streaming"))
    folders = {name.partition("/")[0] for name in found[0]}
    assert folders == {"all", "ja", "short", "by-language"}
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        assert [name for name in other if other[name] != found[0][name]] == []
