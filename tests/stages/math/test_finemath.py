"""The classifier of FineMath: the middle of a text, and scores."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from small_models import TEXTS, save_sequence_classifier

from tamis.stages.math.classifiers import FineMathClassifier
from tamis.stages.math.classifiers.finemath import center_cropped
from tamis.tasks import DocumentBatch


def middle(text: str, chars: int) -> str:
    half = len(text) // 2
    return text[max(0, half - chars) : half + chars]


@given(st.lists(st.none() | st.text()), st.integers(1, 9))
def test_the_middle_is_counted_in_characters(texts: list[str | None], chars: int) -> None:
    for kind in (pa.string(), pa.large_string()):
        column = pa.chunked_array([pa.array(texts, kind), pa.array(["abc", "ä" * 30], kind)])
        expected = [None if text is None else middle(text, chars) for text in [*texts, "abc", "ä" * 30]]
        made = center_cropped(column, chars)
        assert made.to_pylist() == expected
        assert made.type == kind


@pytest.mark.parametrize("crop", [None, 20])
def test_scores_are_those_of_transformers_for_the_middle_of_a_text(tmp_path: Path, crop: int | None) -> None:
    network = save_sequence_classifier(tmp_path / "m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    stage = FineMathClassifier(model_identifier=str(tmp_path / "m"), center_crop_chars=crop, max_seq_length=64)
    made = stage.process(DocumentBatch({"text": [*TEXTS, None]}))
    assert made["text"].to_pylist() == [*TEXTS, None]
    expected = []
    for text in TEXTS:
        given = tokenizer(text if crop is None else middle(text, crop), truncation=True, max_length=64)["input_ids"]
        with torch.no_grad():
            expected.append(min(5.0, max(0.0, float(network(input_ids=torch.tensor([given])).logits))))
    assert made["finemath_scores"].to_pylist()[:-1] == pytest.approx(expected, abs=1e-3)
    assert made["finemath_int_scores"].to_pylist() == [*map(round, expected), None]


def test_a_crop_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"center_crop_chars=0\): must be at least 1"):
        FineMathClassifier(center_crop_chars=0)
