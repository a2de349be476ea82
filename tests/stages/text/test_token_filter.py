"""Counting tokens, with tokenizers that are trained or made here."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from tamis.errors import DataError
from tamis.stages.text.filters import ScoreFilter, TokenCountFilter


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Byte-level BPE that puts a token before each text, and is set to cut texts, as that of MiniLM is."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["the quick brown fox", "the lazy dog and the quick cat"] * 10, trainer)
    made.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    made.enable_truncation(4)
    made.enable_padding(length=4)
    return made


@pytest.fixture(scope="module")
def saved(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def plainly(tokenizer: Tokenizer, text: str) -> int:
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return len(copy.encode(text))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
@example(texts=["", " ", "\0", "שלום", "e\u0301", "the quick brown fox " * 20])
def test_count_is_that_of_the_tokenizer(tokenizer: Tokenizer, saved: str, texts: list[str]) -> None:
    expected = [plainly(tokenizer, text) for text in [*texts, ""]]
    column = pa.chunked_array([pa.array([*texts, None], pa.string())])
    for keep in (TokenCountFilter(tokenizer), TokenCountFilter(hf_model_name=saved)):
        assert keep.score_column(column).tolist() == expected
        assert [keep.score_document(text) for text in [*texts, ""]] == expected


def test_users_tokenizer_is_left_as_it_is(tokenizer: Tokenizer) -> None:
    assert TokenCountFilter(tokenizer).score_document("the quick brown fox and the lazy dog") > 4
    assert tokenizer.truncation is not None


def test_tokenizer_of_transformers_can_be_given(saved: str, tokenizer: Tokenizer) -> None:
    transformers: Any = pytest.importorskip("transformers")
    loaded = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{saved}/tokenizer.json")
    keep = TokenCountFilter(loaded)
    text = "the quick brown fox and the lazy dog"
    assert keep.score_document(text) == len(loaded.encode(text)) == plainly(tokenizer, text)
    assert keep.vectorised


def test_bounds_decide(saved: str) -> None:
    keep = TokenCountFilter(hf_model_name=saved, min_tokens=2, max_tokens=5)
    assert [keep.keep_document(n) for n in (1, 2, 5, 6)] == [False, True, True, False]
    assert keep.reason() == "token_count outside 2..5"
    assert TokenCountFilter(hf_model_name=saved).keep_document(10**9)
    assert TokenCountFilter(hf_model_name=saved, max_tokens=5).reason() == "token_count > 5"


def test_it_travels_after_use(saved: str) -> None:
    keep = TokenCountFilter(hf_model_name=saved)
    ScoreFilter(keep).setup_on_node()
    ScoreFilter(keep).setup()
    assert pickle.loads(pickle.dumps(keep)).score_document("fox") == keep.score_document("fox")


def test_secret_is_not_shown() -> None:
    assert "hf_abc" not in repr(TokenCountFilter(hf_model_name="gpt2", hf_token="hf_abc"))


def test_mistakes_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set either tokenizer"):
        TokenCountFilter()
    with pytest.raises(ValueError, match="set either tokenizer"):
        TokenCountFilter(tokenizer, hf_model_name="gpt2")
    with pytest.raises(TypeError, match="give a name or a path as hf_model_name"):
        TokenCountFilter("gpt2")
    with pytest.raises(DataError, match="there is no tokenizer"):
        TokenCountFilter(hf_model_name=str(tmp_path / "missing")).load_tokenizer()
