"""From several sources to token files: the same bytes whoever does it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from tokenizers import Tokenizer, models, pre_tokenizers

from tamis.pipeline import Pipeline
from tamis.stages.io import JsonlReader, ParquetReader
from tamis.stages.mixing import Blend, GlobalShuffle, ReadSources, Sample
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter
from tamis.stages.text.segments import DocumentJoiner, DocumentSplitter
from tamis.testing import run_everywhere


def test_token_files_are_the_same_on_every_executor(tmp_path: Path) -> None:
    rows = [{"id": f"{i}", "text": f"a|b|{'c ' * (i % 5)}"} for i in range(200)]
    pl.DataFrame(rows[:40]).write_ndjson(tmp_path / "wiki.jsonl")
    pl.DataFrame(rows[40:]).write_parquet(tmp_path / "web.parquet", row_group_size=20)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate("?abc")}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    readers = {
        "wiki": JsonlReader(str(tmp_path / "wiki.jsonl"), blocksize=500),
        "web": ParquetReader(str(tmp_path / "web.parquet"), blocksize=1000),
    }

    def make(folder: Path) -> Pipeline:
        stages = [
            ReadSources(readers),
            Sample(fraction=0.9),
            Sample(rows=150, seed=1),
            Blend({"wiki": 1, "web": 1}, target=120),
            GlobalShuffle(partitions=3),
            DocumentSplitter("|"),
            DocumentJoiner(" ", document_id_field="id", partitions=2),
            MegatronTokenizerWriter(str(folder), str(tmp_path / "tokenizer.json")),
        ]
        return Pipeline("tokens", stages=stages)

    written: list[int] = []
    run_everywhere(make, check=lambda result: written.append(result.summary.output_files), workers=2)
    assert len(set(written)) == 1
    assert written[0] >= 2  # a .bin and its .idx at the least
