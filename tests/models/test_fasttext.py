"""fastText models are read and computed as the package ``fasttext`` does it: real models, trained here."""

from __future__ import annotations

import functools
import random
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fasttext
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError
from tamis.kernels import native
from tamis.models.fasttext import FastTextModel, load_fasttext

WORDS = [
    "the",
    "of",
    "library",
    "open",
    "every",
    "day",
    "Bibliothek",
    "ist",
    "jeden",
    "Tag",
    "Woche",
    "библиотека",
    "открыта",
    "каждый",
    "день",
    "図書館",
    "毎日",
    "é",
    "ß",
]
ODD = [
    "",
    " \n",
    "\0",
    "a\0b\vc",
    "\u3000\x1c",
    "\n\na\r\n__label__l1",
    "__label__l1 __label__",
    "a </s> b",
    "<>",
    "👩\u200d🚀",
]
TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.lists(st.sampled_from([*WORDS, "unseen", "__label__l1", "</s>", "x" * 40]), max_size=60).map(" ".join),
    max_size=5,
)
MANY = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
SHAPES: dict[str, dict[str, Any]] = {
    "words": {"minn": 0, "maxn": 0},
    "subwords": {"minn": 2, "maxn": 4},
    "characters": {"minn": 1, "maxn": 1, "dim": 11},
    "pairs": {"wordNgrams": 2, "minn": 0, "maxn": 0},
    "all": {"wordNgrams": 3, "minn": 3, "maxn": 5, "dim": 16},
    "tree": {"loss": "hs", "minn": 2, "maxn": 3},
    "one against all": {"loss": "ova", "wordNgrams": 2, "minn": 2, "maxn": 3},
    "sampled": {"loss": "ns", "minn": 2, "maxn": 3},
}
QUANTISED: dict[str, dict[str, Any]] = {
    "dropped": {"cutoff": 400},
    "norms": {"cutoff": 400, "qnorm": True, "wordNgrams": 2},
    "outputs": {"qout": True, "qnorm": True, "labels": 300},
    "all kept": {"wordNgrams": 2},
}


def train(folder: Path, name: str, labels: int = 5, **options: Any) -> str:
    """Twelve threads: each sets a tenth of the initial weights, one more what is left over, or they are never set."""
    chance = random.Random(name)
    vocabulary = WORDS + [f"{word}{i}" for word in WORDS for i in range(20)]
    lines = []
    for row in range(2 * labels if labels > 100 else 200):
        own = vocabulary[row % labels :: labels] or vocabulary
        lines.append(
            f"__label__l{row % labels} " + " ".join(chance.choices(own, k=4) + chance.choices(vocabulary, k=4))
        )
    text = folder / f"{name}.txt"
    text.write_text("\n".join(lines), encoding="utf-8")
    quantise = {option: options.pop(option) for option in ("cutoff", "qnorm", "qout") if option in options}
    defaults = {"dim": 8, "lr": 0.5, "epoch": 5, "minn": 2, "maxn": 3, "bucket": 2000, "thread": 12, "verbose": 0}
    model = fasttext.train_supervised(str(text), **(defaults | options))
    path = str(folder / f"{name}.bin")
    if name in QUANTISED:
        model.quantize(str(text), **quantise)
    model.save_model(path)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folder = tmp_path_factory.mktemp("models")
    return functools.cache(lambda name: train(folder, name, **(SHAPES | QUANTISED)[name]))


package_model = functools.cache(fasttext.load_model)


def theirs(path: str, texts: list[str]) -> list[dict[str, float]]:
    """The probability of each label by the package; nothing for a text without words that it knows."""
    model = package_model(path)
    found = [model.predict(text.replace("\n", " "), k=-1) for text in texts]
    return [dict(zip(labels, scores.tolist(), strict=True)) for labels, scores in found]


@pytest.mark.parametrize("name", [*SHAPES, *QUANTISED])
@MANY
@given(texts=TEXTS)
@example(texts=ODD)
@example(texts=[" ".join(WORDS * 40), "unseen" * 1000, "x" * 100_000 + " the", "é" * 70 + " day of"])
def test_labels_and_probabilities_are_those_of_the_package(
    trained: Callable[[str], str], name: str, texts: list[str]
) -> None:
    path = trained(name)
    model, expected = load_fasttext(path, "a test"), theirs(path, texts)
    column = pa.array(texts, pa.string())
    found = model.probabilities(column)
    assert found.shape == (len(texts), len(model.labels))
    for row, scores in zip(found.tolist(), expected, strict=True):
        assert row == pytest.approx([scores.get(label, 0.0) for label in model.labels], abs=2e-5, rel=1e-4)
    labels, likely = model.predict(column)
    for label, score, scores in zip(labels.to_pylist(), likely.tolist(), expected, strict=True):
        best = max(scores.values(), default=0.0)
        assert score == pytest.approx(best, abs=2e-5)
        assert (label == "") == (not scores)
        assert not scores or scores[label] >= best - 1e-5


@pytest.mark.parametrize("name", [*SHAPES, *QUANTISED])
@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS)
@example(texts=ODD)
def test_kernel_computes_what_the_plain_definition_does(
    trained: Callable[[str], str], name: str, texts: list[str]
) -> None:
    model, column = load_fasttext(trained(name), "a test"), pa.array(texts, pa.string())
    by_kernel = model.probabilities(column)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        plain = model.probabilities(column)
    assert by_kernel.tolist() == plain.tolist()


def test_the_package_is_not_needed(trained: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = trained("subwords")
    monkeypatch.setitem(sys.modules, "fasttext", None)
    load_fasttext.__globals__["_loaded"].cache_clear()
    assert load_fasttext(path, "a test").predict(pa.array(["the library"]))[0].to_pylist() != [""]


def test_a_newline_counts_as_a_space_and_a_null_as_no_text(trained: Callable[[str], str]) -> None:
    model = load_fasttext(trained("pairs"), "a test")
    whole = pa.array(["not seen", "the\nlibrary", "the library", None, ""], pa.large_string())
    labels, scores = model.predict(pa.chunked_array([whole.slice(1, 1), whole.slice(0, 0), whole.slice(2)]))
    assert labels[0] == labels[1]
    assert scores[0] == scores[1]
    assert scores[2] == scores[3]


def test_only_the_beginning_is_looked_at(trained: Callable[[str], str]) -> None:
    model = load_fasttext(trained("words"), "a test")
    long = "the of " + " ".join(WORDS * 50)
    assert model.probabilities(pa.array([long]), 7).tolist() == model.probabilities(pa.array(["the of "])).tolist()


def test_probability_of_one_label(trained: Callable[[str], str]) -> None:
    model, column = load_fasttext(trained("tree"), "a test"), pa.array(["the library", "каждый", None])
    expected = model.probabilities(column)[:, model.labels.index("__label__l3")].tolist()
    assert model.probability_of(column, "__label__l3").tolist() == expected
    assert model.probability_of(column, "l3").tolist() == expected
    with pytest.raises(ValueError, match=r"has no label 'l33'.*l3"):
        model.probability_of(column, "l33")


def test_the_likeliest_labels(trained: Callable[[str], str]) -> None:
    path = trained("subwords")
    column = pa.array(["the library", "jeden Tag", "图"])
    labels, scores = load_fasttext(path, "a test").predict_top(column, 3, min_probability=0.1)
    for row, text in enumerate(column.to_pylist()):
        expected, likely = fasttext.load_model(path).predict(text, k=3, threshold=0.1)
        assert tuple(labels[row].as_py()) == expected
        assert scores[row].as_py() == pytest.approx(likely.tolist(), abs=2e-5)
    with pytest.raises(ValueError, match="k=0"):
        load_fasttext(path, "a test").predict_top(column, 0)


@pytest.mark.parametrize("loss", ["hs", "softmax", "ova"])
@pytest.mark.parametrize("least", [0.0, 0.2])
def test_the_package_gives_as_many_labels(tmp_path: Path, loss: str, least: float) -> None:
    """Issue 13: a model with a tree of labels gave labels below 1e-5, which fastText leaves out."""
    lines = [f"__label__l{n % 5} only{n % 5} {WORDS[n % 19]}" for n in range(400)]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source, path = str(tmp_path / "train.txt"), str(tmp_path / f"{loss}.bin")
    package = fasttext.train_supervised(source, loss=loss, dim=8, epoch=60, lr=1.0, thread=12, verbose=0)
    package.save_model(path)
    column = pa.array(["only1", "only2 only2 the", "only3 day only0", "", "unseen"])
    labels, _ = load_fasttext(path, "a test").predict_top(column, 5, min_probability=least)
    expected = [package.predict(text, k=5, threshold=least)[0] for text in column.to_pylist()]
    assert [len(row) for row in labels.to_pylist()] == [len(names) for names in expected]


def test_no_rows(trained: Callable[[str], str]) -> None:
    model, column = load_fasttext(trained("subwords"), "a test"), pa.array([], pa.string())
    labels, scores = model.predict(column)
    assert (len(labels), len(scores)) == (0, 0)
    assert model.probabilities(column).shape == (0, 5)


def test_threads_do_not_disturb_each_other(trained: Callable[[str], str]) -> None:
    model = load_fasttext(trained("all"), "a test")
    column = pa.array([" ".join(random.Random(i).choices([*WORDS, "unseen", "words"], k=30)) for i in range(300)])
    alone = model.probabilities(column).tolist()
    with ThreadPoolExecutor(4) as pool:
        assert [found.tolist() for found in pool.map(model.probabilities, [column] * 8)] == [alone] * 8


def test_a_text_has_the_same_score_in_any_company(trained: Callable[[str], str]) -> None:
    """Sums of words that the model does not know are kept from text to text."""
    model = load_fasttext(trained("subwords"), "a test")
    texts = [" ".join(f"word{i * j % 4000}" for j in range(50)) for i in range(100)]
    together = model.probabilities(pa.array(texts))
    assert together.tolist() == [model.probabilities(pa.array([text]))[0].tolist() for text in texts]


@pytest.mark.parametrize("name", ["subwords", "norms", "outputs"])
def test_a_file_that_is_cut_is_refused(trained: Callable[[str], str], name: str, tmp_path: Path) -> None:
    data = Path(trained(name)).read_bytes()
    cut = tmp_path / "cut.bin"
    for size in [*range(0, 2000, 37), *range(2000, len(data), len(data) // 40), len(data) - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises(DataError, match=r"cut\.bin"):
            load(cut)
    cut.write_bytes(data + b"\0")
    with pytest.raises(DataError, match="1 bytes follow its end"):
        load(cut)


@pytest.mark.parametrize("name", ["subwords", "norms"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_damaged_file_is_refused_or_read(trained: Callable[[str], str], name: str, tmp_path: Path) -> None:
    """A wrong number in the head of a file, or in sizes, must not make the kernel read beyond a matrix."""
    data, damaged, chance = Path(trained(name)).read_bytes(), tmp_path / "damaged.bin", random.Random(0)
    column = pa.array(["the library is open", "unseen words " * 100])
    for place in [*range(0, 120, 4), *(chance.randrange(len(data) - 4) for _ in range(60))]:
        for value in (-1, 0, 1 << 30):
            damaged.write_bytes(data[:place] + struct.pack("<i", value) + data[place + 4 :])
            try:
                model = load(damaged)
            except DataError:
                continue
            assert len(model.predict(column)[0]) == 2


def load(path: Path) -> FastTextModel:
    load_fasttext.__globals__["_loaded"].cache_clear()
    return load_fasttext(str(path), "a test")


def test_word_vectors_are_no_classifier(trained: Callable[[str], str], tmp_path: Path) -> None:
    data = Path(trained("words")).read_bytes()
    kind = 36  # where a file says what it holds
    assert data[kind] == 3
    (tmp_path / "vectors.bin").write_bytes(data[:kind] + b"\1" + data[kind + 1 :])
    with pytest.raises(DataError, match="it holds word vectors, not a classifier"):
        load(tmp_path / "vectors.bin")
