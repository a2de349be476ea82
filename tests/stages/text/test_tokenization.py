"""Token counts, token ids, and the files that training programs read."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tamis.errors import DataError, PlanError, TamisError
from tamis.pipeline import Pipeline
from tamis.stages.io.megatron import MegatronPair, merge_file_prefixes
from tamis.stages.text.io.writer.megatron_tokenizer import MegatronTokenizerWriter
from tamis.stages.text.sequence_packing import PackedParquetWriter
from tamis.stages.text.tokenization import TokenCount, Tokenize
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

WORDS = ["a", "b", "c", "<end>", "?"]
ROWS = [{"text": "a b c"}, {"text": ""}, {"text": None}, {"text": "c zebra"}]
IDS = [[0, 1, 2], [], [], [2, 4]]


def save_tokenizer(folder: Path, size: int = 5) -> str:
    """Words by number; what is unknown is ``?``."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    vocabulary.update({f"word {i}": i for i in range(len(WORDS), size)})
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def run(stages: list[Any], tasks: list[DocumentBatch], folder: Path) -> Any:
    return Pipeline("tokens", stages=stages).run(initial_tasks=tasks, run_dir=str(folder / "run"), progress="off")


def test_counts(tokenizer: str) -> None:
    found = run_stage(TokenCount(tokenizer, tokenization_batch_size=2), ROWS)
    assert [row["num_tokens"] for row in found] == [3, 0, 0, 2]
    assert found.stages[0].custom == {"tokens": 5}


def test_ids_with_and_without_an_end(tokenizer: str) -> None:
    assert [row["input_ids"] for row in run_stage(Tokenize(tokenizer), ROWS)] == IDS
    ended = run_stage(Tokenize(tokenizer, append_eos=True, eos_token="<end>", tokens_field="ids"), ROWS)
    assert [row["ids"] for row in ended] == [[*ids, 3] for ids in IDS]


def test_an_end_that_nobody_names_is_an_error(tokenizer: str) -> None:
    with pytest.raises(TamisError, match="does not say which token ends a text"):
        run_stage(Tokenize(tokenizer, append_eos=True), ROWS)


def test_a_secret_is_shown_nowhere() -> None:
    stages = [TokenCount("gpt2", hf_token="hf_secret"), MegatronTokenizerWriter("out", "gpt2", hf_token="hf_secret")]
    pipeline = Pipeline("p", stages=stages)
    assert "hf_secret" not in pipeline.to_recipe() + pipeline.describe() + repr(stages)
    assert stages[1].decompose()[0].writer.hf_token == "hf_secret"  # type: ignore[attr-defined]  # it is the writer's stage


@pytest.mark.parametrize(("append_eod", "end"), [(False, []), (True, [3])])
def test_megatron_pairs_are_laid_out_as_megatron_reads_them(
    tokenizer: str, tmp_path: Path, append_eod: bool, end: list[int]
) -> None:
    writer = MegatronTokenizerWriter(
        str(tmp_path / "out"), tokenizer, append_eod=append_eod, eos_token="<end>", tokenization_batch_size=3
    )
    run([writer], [DocumentBatch(ROWS)], tmp_path)
    assert sorted(p.name for p in (tmp_path / "out").glob("part-*")) == ["part-000000.bin", "part-000000.idx"]
    sequences = [ids + end for ids in IDS]
    lengths = [len(ids) for ids in sequences]
    expected = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 4, 5)
    expected += np.array(lengths, "<i4").tobytes()
    expected += np.array([2 * sum(lengths[:i]) for i in range(4)], "<i8").tobytes()
    expected += np.arange(5, dtype="<i8").tobytes()
    assert (tmp_path / "out" / "part-000000.idx").read_bytes() == expected
    assert (tmp_path / "out" / "part-000000.bin").read_bytes() == np.array(
        [token for ids in sequences for token in ids], "<u2"
    ).tobytes()
    pair = MegatronPair.open(str(tmp_path / "out" / "part-000000"))
    assert [pair[i].tolist() for i in range(len(pair))] == sequences


@pytest.mark.parametrize(("size", "kind"), [(65536, np.uint16), (65537, np.int32)])
def test_large_vocabularies_take_four_bytes(tmp_path: Path, size: int, kind: Any) -> None:
    writer = MegatronTokenizerWriter(str(tmp_path / "out"), save_tokenizer(tmp_path / "tokenizer", size))
    run([writer], [DocumentBatch(ROWS)], tmp_path)
    pair = MegatronPair.open(str(tmp_path / "out" / "part-000000"))
    assert pair.tokens.dtype == kind
    assert [pair[i].tolist() for i in range(4)] == IDS


def test_pairs_are_put_together(tokenizer: str, tmp_path: Path) -> None:
    tasks = [DocumentBatch(ROWS), DocumentBatch([{"text": "b b"}])]
    run([MegatronTokenizerWriter(str(tmp_path / "out"), tokenizer)], tasks, tmp_path)
    prefixes = sorted(str(path.with_suffix("")) for path in (tmp_path / "out").glob("*.idx"))
    merged = merge_file_prefixes(prefixes, str(tmp_path / "all"))
    assert [merged[i].tolist() for i in range(len(merged))] == [*IDS, [1, 1]]
    assert merged.documents.tolist() == [0, 1, 2, 3, 4, 5]
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["all.bin", "all.idx"]


def test_putting_together_never_leaves_an_index_of_an_earlier_pair(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run([MegatronTokenizerWriter(str(tmp_path / "out"), tokenizer)], [DocumentBatch(ROWS)], tmp_path)
    part, merged = str(tmp_path / "out" / "part-000000"), str(tmp_path / "all")
    merge_file_prefixes([part], merged)
    replace = os.replace

    def stops_before_the_index(source: str, target: str) -> None:
        if target.endswith(".idx"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stops_before_the_index)
    with pytest.raises(KeyboardInterrupt):
        merge_file_prefixes([part, part], merged)
    assert not Path(f"{merged}.idx").exists()


def test_a_pair_that_does_not_fit_together_is_refused(tokenizer: str, tmp_path: Path) -> None:
    run([MegatronTokenizerWriter(str(tmp_path / "out"), tokenizer)], [DocumentBatch(ROWS)], tmp_path)
    prefix = str(tmp_path / "out" / "part-000000")
    Path(f"{prefix}.bin").write_bytes(b"\0\0")
    with pytest.raises(DataError, match="do not fit"):
        MegatronPair.open(prefix)
    Path(f"{prefix}.idx").write_bytes(b"something else")
    with pytest.raises(DataError, match="not an index"):
        merge_file_prefixes([prefix], str(tmp_path / "all"))


def test_earlier_pairs_are_overwritten_as_pairs_and_nothing_else_is(tokenizer: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("part-000007.bin", "part-000007.idx", ".part-000007.idx.0123456789abcdef.tmp"):
        (out / name).write_bytes(b"old")
    writer = MegatronTokenizerWriter(str(out), tokenizer, mode="overwrite")
    run([writer], [DocumentBatch(ROWS)], tmp_path)
    assert sorted(p.name for p in out.glob("part-*")) == ["part-000000.bin", "part-000000.idx"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(PlanError, match="files of another kind"):
        Pipeline("again", stages=[writer]).run(
            initial_tasks=[DocumentBatch(ROWS)], run_dir=str(tmp_path / "run 2"), progress="off"
        )


def test_packed_parquet(tokenizer: str, tmp_path: Path) -> None:
    writer = PackedParquetWriter(
        str(tmp_path / "out"), tokenizer, sequence_length=4, eos_token="<end>", segment_ids_field="segments"
    )
    run([writer], [DocumentBatch(ROWS)], tmp_path)
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").to_dicts() == [
        {"input_ids": [0, 1, 2, 3], "cu_seqlens": [0, 4], "segments": [1, 1, 1, 1]},
        {"input_ids": [3, 3, 2, 4], "cu_seqlens": [0, 1, 2, 4], "segments": [1, 2, 3, 3]},
        {"input_ids": [3], "cu_seqlens": [0, 1], "segments": [1]},
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenCount(""),
        lambda: TokenCount("gpt2", tokenization_batch_size=0),
        lambda: MegatronTokenizerWriter("out", ""),
        lambda: MegatronTokenizerWriter("out", "gpt2", mode="replace"),
        lambda: PackedParquetWriter("out", "gpt2", sequence_length=0),
    ],
)
def test_wrong_parameters_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"model_identifier|batch_size|mode|sequence_length"):
        make()
