"""Tokenizers from files and directories, fast and slow, with tokenizers made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import models, pre_tokenizers, processors, trainers

from tamis.errors import DataError
from tamis.models.tokenizers import load_tokenizer

TEXTS = pa.array(["the quick brown fox", "", None, "naïve 日本 \x00"])


@pytest.fixture(scope="module")
def fast() -> Fast:
    """Byte-level BPE that puts a token before each text, and is set to cut and fill up texts."""
    made = Fast(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the quick brown fox", "the lazy dog"] * 10, trainer)
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    return made


@pytest.fixture(scope="module")
def folder(fast: Fast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fast")
    cutting = Fast.from_str(fast.to_str())
    cutting.enable_truncation(3)
    cutting.enable_padding(length=3)
    cutting.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    return path


def test_a_directory_and_its_file_are_the_same(folder: Path, fast: Fast) -> None:
    for place in (folder, folder / "tokenizer.json"):
        tokenizer = load_tokenizer(str(place))
        assert tokenizer.eos_token_id == 1
        assert tokenizer.vocab_size == fast.get_vocab_size()
        expected = [fast.encode(t or "", add_special_tokens=False).ids for t in TEXTS.to_pylist()]
        assert tokenizer.encode_column(TEXTS).to_pylist() == expected


def test_special_tokens_are_added_when_asked_for(folder: Path, fast: Fast) -> None:
    found = load_tokenizer(str(folder)).encode_column(TEXTS, add_special_tokens=True).to_pylist()
    assert found == [fast.encode(t or "").ids for t in TEXTS.to_pylist()]


def test_batches_and_chunks_do_not_matter(folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder))
    chunked = pa.chunked_array([TEXTS.slice(0, 1), TEXTS.slice(1)])
    assert tokenizer.encode_column(chunked, batch_size=1) == tokenizer.encode_column(TEXTS)
    assert tokenizer.count_tokens(chunked, batch_size=3).tolist() == tokenizer.count_tokens(TEXTS).tolist()


@settings(deadline=None)
@given(texts=st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))), max_size=6))
def test_counts_are_the_lengths_of_what_is_encoded(folder: Path, texts: list[str | None]) -> None:
    tokenizer = load_tokenizer(str(folder))
    column = pa.array(texts, pa.string())
    assert tokenizer.count_tokens(column).tolist() == [len(ids) for ids in tokenizer.encode_column(column).to_pylist()]


def test_the_end_token_can_be_given(folder: Path) -> None:
    assert load_tokenizer(str(folder), eos_token="<s>").eos_token_id == 0
    with pytest.raises(DataError, match="has no token '<stop>'"):
        load_tokenizer(str(folder), eos_token="<stop>")


def test_a_file_alone_names_no_end_token(fast: Fast, tmp_path: Path) -> None:
    fast.save(str(tmp_path / "mine.json"))
    assert load_tokenizer(str(tmp_path / "mine.json")).eos_token_id is None


def test_arguments_for_transformers_are_used(folder: Path, fast: Fast) -> None:
    tokenizer = load_tokenizer(str(folder), transformers_init_kwargs={"eos_token": "<s>"})
    assert tokenizer.eos_token_id == 0
    assert tokenizer.encode_column(TEXTS).to_pylist() == load_tokenizer(str(folder)).encode_column(TEXTS).to_pylist()
    with pytest.raises(DataError, match="has no token '<stop>'"):
        load_tokenizer(str(folder), eos_token="<stop>", transformers_init_kwargs={"eos_token": "<s>"})
    with pytest.raises(ValueError, match="is one file"):
        load_tokenizer(str(folder / "tokenizer.json"), transformers_init_kwargs={"use_fast": True})


def test_a_tokenizer_written_in_python(tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    slow = ByT5Tokenizer()
    slow.save_pretrained(str(tmp_path))
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.encode_column(TEXTS).to_pylist() == [
        [b + 3 for b in (t or "").encode()] for t in TEXTS.to_pylist()
    ]
    assert tokenizer.eos_token_id == slow.eos_token_id
    assert load_tokenizer(str(tmp_path), eos_token="<pad>").eos_token_id == slow.pad_token_id
    with pytest.raises(DataError, match="has no token '<stop>'"):
        load_tokenizer(str(tmp_path), eos_token="<stop>")
    assert tokenizer.count_tokens(TEXTS, add_special_tokens=True).tolist()[1] == 1


def test_no_such_file() -> None:
    with pytest.raises(DataError, match="no such file or directory"):
        load_tokenizer("./nowhere")


def test_a_file_that_is_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": 1}')
    with pytest.raises(DataError, match="no tokenizer that the package tokenizers can read"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("hidden", ["", "transformers"])
def test_a_hub_that_cannot_be_reached_is_said(hidden: str) -> None:
    """In a process of its own: whether the hub may be asked is read once, when its package is imported."""
    code = f"""
import sys, importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {hidden!r} else real(name, *more)
from tamis.models.tokenizers import load_tokenizer
from tamis.errors import DataError
try:
    load_tokenizer("somebody/a-model-that-is-not-there")
except DataError as e:
    print(e)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'somebody/a-model-that-is-not-there' could not be loaded" in done.stdout
    assert "give the path of a tokenizer.json" in done.stdout


def test_a_folder_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    """Some classes of transformers then make a tokenizer to which all words are unknown."""
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(DataError, match="has no vocabulary"):
        load_tokenizer(str(tmp_path))
