"""Vectors of hashed words are what their definition says, depend on the text alone, and are close for similar texts."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels import hashed_words_definition as plain
from tamis.kernels import native
from tamis.kernels.hashed_words import HashedWords, fit_rarity

PIECES = (
    *(
        " ",
        "\n",
        "\u00a0",
        "\u3000",
        "a",
        "the",
        "THE",
        "Größe",
        "ΣΊΣΥΦΟΣ",
        "日本語",
        "ภาษาไทย",
        "\U0001f600",
        "\u212a",
    ),
    *("x" * 9, "y" * 40, "\x00", "_", "e\u0301", "İ", "…", "a1b2", "word" * 20, "-"),
)
TEXT = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=120).map("".join))


def bits(vectors: np.ndarray) -> list[list[int]]:
    return vectors.view(np.uint32).tolist()


@settings(deadline=None)
@given(texts=st.lists(TEXT, max_size=5), dim=st.sampled_from([1, 2, 7, 64, 512]), seed=st.integers(0, 2**64 - 1))
def test_the_kernel_gives_the_bits_of_the_definition(texts: list[str], dim: int, seed: int) -> None:
    assert native.load("hashed_words") is not None
    words = HashedWords(dim, seed)
    table = plain.bucket_table(dim, seed)
    expected = [plain.vector_of(text.encode(), dim, table).view(np.uint32).tolist() for text in texts]
    assert bits(words.vectors(pa.array(texts, pa.string()))) == expected


def test_known_vectors() -> None:
    """On every machine and in every version of Python: stored vectors stay comparable."""
    texts = pa.array(["The quick brown fox", "быстрая ЛИСА", "素早い茶色の狐", "Straße \u212a ﬁ x_y 12"])
    vectors = HashedWords().vectors(texts)
    assert hashlib.sha256(vectors.tobytes()).hexdigest()[:16] == "0ef79e0602f01634"
    blocks, folds = plain.fold_tables()
    assert hashlib.sha256(folds.reshape(-1, 256)[blocks].astype("<u4").tobytes()).hexdigest()[:16] == "0895d89d07cb0d2b"


def test_the_definition_does_the_work_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.chunked_array([["one small text", None], ["", "another text"]])
    made = HashedWords(64).vectors(texts)
    monkeypatch.setattr(native, "load", lambda name: None)
    assert bits(HashedWords(64).vectors(texts)) == bits(made)


def test_rarity_is_the_same_with_and_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [pa.array(["a b c", "a b", None, "größe a a"]), pa.array(["漢字 a"])]
    made = fit_rarity(texts)
    monkeypatch.setattr(native, "load", lambda name: None)
    assert made.tolist() == fit_rarity(texts).tolist()


def test_a_column_in_other_chunks_or_of_another_type_has_the_same_vectors() -> None:
    texts = ["some text", None, "more, and longer text " * 9, "", "ümlaut"]
    whole = bits(HashedWords().vectors(pa.array(texts)))
    for kind in (pa.large_string(), pa.string_view()):
        chunks = pa.chunked_array([pa.array(texts[:2], kind), pa.array(["x", *texts[2:]], kind).slice(1)])
        assert bits(HashedWords().vectors(chunks)) == whole


def test_a_text_without_words_has_zeros_and_any_other_text_length_1() -> None:
    words = [f"w{i}" for i in range(3000)] + [f"longer{i}" for i in range(3000)]
    vectors = HashedWords(8).vectors(pa.array([*words, "", None, " ,.-_\n", "\u2026"]))
    lengths = np.linalg.norm(vectors, axis=1)
    assert np.allclose(lengths[:-4], 1)
    assert not vectors[-4:].any()


def test_case_punctuation_and_line_breaks_change_nothing() -> None:
    one, other = HashedWords().vectors(pa.array(["Die Größe, der Straße!", "die\ngröße der -- STRAßE"]))
    assert one.tolist() == other.tolist()


def test_an_edited_copy_is_closer_than_other_texts() -> None:
    rng = np.random.default_rng(1)
    words = [f"{i}th" for i in range(10_000, 12_000)]
    texts = [rng.choice(words, 200) for _ in range(50)]
    edited = [np.where(rng.random(200) < 0.3, rng.choice(words, 200), text) for text in texts]
    vectors = HashedWords().vectors(pa.array([" ".join(each) for each in [*texts, *edited]]))
    products = vectors[:50] @ vectors[50:].T
    assert (products.argmax(axis=1) == np.arange(50)).all()
    assert products.diagonal().min() > 0.5
    assert (products - np.diag(products.diagonal())).max() < 0.4


def test_words_that_are_in_every_text_count_less_with_rarity() -> None:
    texts = pa.array([f"standard disclaimer applies here {i} item{i}" for i in range(200)])
    first, second = texts[:2].to_pylist()
    for rarity, bound in ((None, True), (fit_rarity([texts]), False)):
        one, other = HashedWords(rarity=rarity).vectors(pa.array([first, second]))
        assert bool(one @ other > 0.6) is bound


@pytest.mark.parametrize("dim", [0, -1, 65537])
def test_a_dim_that_cannot_be(dim: int) -> None:
    with pytest.raises(ValueError, match="is not between 1 and 65536"):
        HashedWords(dim)


def test_rarity_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="as fit_rarity gives them"):
        HashedWords(rarity=np.zeros(10, np.uint8))


def test_the_longest_vector() -> None:
    vectors = HashedWords(65536).vectors(pa.array(["a small text"]))
    assert vectors.shape == (1, 65536)
    assert np.linalg.norm(vectors) == pytest.approx(1)
