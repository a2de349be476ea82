"""n-gram models in files: their own format, and the ARPA format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import DataError, ModelError
from tamis.models.ngram_model import load_ngram_model
from tamis.training import train_language_model
from tamis.training.language_model import convert_arpa

ARPA = """\\data\\
ngram 1=5
ngram 2=4
ngram 3=1

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.3
-0.7\t</s>
-0.9\tthe\t-0.25
-1.1\tcat\t-0.125

\\2-grams:
-0.4\t<s> the\t-0.2
-0.6\tthe cat\t-0.05
-0.3\tcat </s>
-2.25\tcat cat

\\3-grams:
-0.1\t<s> the cat

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    path = tmp_path / "model.arpa"
    path.write_text(ARPA, encoding="utf-8")
    return path


def logs_of(path: Path, *texts: str | None) -> list[float]:
    return load_ngram_model(str(path)).score(pa.array(texts, pa.string())).logs.tolist()


SENTENCES = {
    "the cat": -0.4 - 0.1 - 0.05 - 0.3,  # <s> the; <s> the cat; back off from "the cat", then cat </s>
    "cat": -0.3 - 1.1 - 0.3,
    "the dog the": -0.4 + (-0.2 - 0.25 - 1.5) + -0.9 + (-0.25 - 0.7),
    "cat cat\n\nthe": (-0.3 - 1.1) + -2.25 + -0.3 + -0.4 + (-0.2 - 0.25 - 0.7),
    "The": -0.3 - 1.5 - 0.7,
    "": 0.0,
}


def test_scores_of_a_model_in_the_arpa_format(arpa: Path) -> None:
    assert logs_of(arpa, *SENTENCES) == pytest.approx(list(SENTENCES.values()), abs=1e-12)


def test_it_may_be_compressed(arpa: Path, tmp_path: Path) -> None:
    packed = tmp_path / "model.arpa.gz"
    packed.write_bytes(gzip.compress(arpa.read_bytes()))
    assert logs_of(packed, *SENTENCES) == logs_of(arpa, *SENTENCES)


def test_it_can_be_turned_into_a_file_of_our_own(arpa: Path, tmp_path: Path) -> None:
    convert_arpa(str(arpa), str(tmp_path / "model.lm"))
    assert logs_of(tmp_path / "model.lm", *SENTENCES) == logs_of(arpa, *SENTENCES)


def test_ngrams_without_their_shorter_forms_are_found(tmp_path: Path) -> None:
    path = tmp_path / "open.arpa"
    path.write_text(ARPA.replace("-0.6\tthe cat\t-0.05\n", "").replace("2=4", "2=3"), encoding="utf-8")
    assert logs_of(path, "the cat") == pytest.approx([-0.4 - 0.1 - 0.3])


def test_a_model_without_unknown_words_finds_them_most_unlikely(tmp_path: Path) -> None:
    path = tmp_path / "closed.arpa"
    path.write_text(ARPA.replace("-1.5\t<unk>\n", ""), encoding="utf-8")
    assert logs_of(path, "dog") == pytest.approx([-0.3 - 100 - 0.7])


def test_perplexity_is_one_through_the_mean_probability(arpa: Path) -> None:
    found = load_ngram_model(str(arpa)).score(pa.array(["the cat", "", None, "dog"]))
    assert found.perplexities()[0] == pytest.approx(10 ** (0.85 / 3))
    assert np.isinf(found.perplexities()).tolist() == [False, True, True, False]
    assert found.units.tolist() == [3, 0, 0, 2]
    assert found.unknown.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-0.6\tthe cat\t", "x.6\tthe cat\t", "a probability is not a number"),
        ("the cat\t-0.05", "the cat sat\t-0.05", "line 15: there are 3 words in an n-gram of 2"),
        ("-0.3\tcat </s>", "cat", "a line of an n-gram has a number, words"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.arpa"
    path.write_text(ARPA.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_ngram_model(str(path))


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no model at all, just some text", encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be read: it is missing, damaged or cut off"):
        load_ngram_model(str(path))


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    source, path = tmp_path / "a.txt", tmp_path / "model.lm"
    source.write_text("some words in a line\n" * 10, encoding="utf-8")
    train_language_model(str(source), str(path))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cut off"):
        load_ngram_model(str(path))
