"""Signatures are what their definition says, depend on the text alone, and estimate what two texts have in common."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.kernels import minhash, minhash_definition, native
from tamis.kernels.gpu import minhash as gpu
from tamis.kernels.minhash import MinHash, band_hashes, similarity
from tamis.kernels.normalizing import is_punctuation, normalized

KERNELS = ("minhash", "shingles", "jaccard", "bands")
PIECES = (
    " ",
    "\n",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\x85",
    "a",
    "the",
    "é",
    "日本",
    "\U0001f600",
    "x" * 9,
    "y" * 40,
    "\x00",
)
TEXT = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=120).map("".join))
TEXTS = st.lists(TEXT, max_size=5)
SETTINGS = st.builds(
    MinHash,
    num_hashes=st.sampled_from([1, 2, 16, 17, 100, 128]),
    ngram=st.sampled_from([1, 2, 5, 24]),
    unit=st.sampled_from(minhash.UNITS),
    scheme=st.sampled_from(minhash.SCHEMES),
    seed=st.integers(0, 2**64 - 1),
    bits=st.sampled_from([32, 64]),
)


KNOWN = {
    ("fast", 32): [60621567, 2022450851, 631151664],
    ("fast", 64): [32545956149073909, 12615010079053236523, 2644689978927592918],
    ("classic", 32): [216026847, 1876563045, 1453234277],
    ("classic", 64): [448922929319920939, 2002621195823729647, 10755018462126551711],
}
KNOWN_BANDS = [16942926329120775113, 4036601111120078013]


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_LOADED", {})
    monkeypatch.setenv("TAMIS_KERNELS", "off")


def by_definition(settings: MinHash, text: str) -> tuple[Any, Any]:
    """The hashes of the n-grams of a text, and its signature."""
    mixing = minhash_definition.mixing_of(settings.seed)
    hashes = minhash_definition.shingle_hashes(text.encode(), settings.unit == "word", settings.ngram, mixing)
    if settings.scheme == "fast":
        return hashes, minhash_definition.fast_signature(hashes, settings.num_hashes, settings.bits)
    permutations = minhash_definition.permutations_of(settings.seed, settings.num_hashes, settings.bits)
    return hashes, minhash_definition.classic_signature(hashes, *permutations)


@examples(200)
@given(SETTINGS, TEXTS, st.sampled_from([64, 4096]))
def test_kernels_give_the_bits_of_the_definition(settings: MinHash, texts: list[str], room: int) -> None:
    assert all(native.load(name) for name in KERNELS)
    column = pa.array(texts, pa.string())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "_ROOM", room)  # a long text is taken in parts
        signatures, shingles = settings.signatures(column), settings.shingles(column)
    assert signatures.shape == (len(texts), settings.num_hashes)
    assert signatures.dtype == np.dtype(f"uint{settings.bits}")
    assert signatures.flags.c_contiguous
    for row, text in enumerate(texts):
        hashes, signature = by_definition(settings, text)
        assert shingles[row].as_py() == hashes.tolist()
        assert signatures[row].tolist() == signature.tolist()


def ngrams_of(text: str, settings: MinHash) -> set[Any]:
    items: Any = text.split() if settings.unit == "word" else text
    return {tuple(items[i : i + settings.ngram]) for i in range(max(len(items) - settings.ngram, 0) + 1)}


@given(SETTINGS, st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_jaccard_is_that_of_the_sets_of_ngrams(settings: MinHash, pairs: list[tuple[str, str]]) -> None:
    found = settings.jaccard(pa.array([a for a, _ in pairs], pa.string()), pa.array([b for _, b in pairs], pa.string()))
    sets = [(ngrams_of(one, settings), ngrams_of(other, settings)) for one, other in pairs]
    assert found.tolist() == [len(a & b) / len(a | b) for a, b in sets]


def test_long_texts_are_compared_one_range_of_hashes_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    one = ["".join(chance.choices("abcé ", k=size)) for size in (0, 40, 900, 5000)]
    other = [text[: len(text) // 2] + text[:9] for text in one]
    settings = MinHash(ngram=5)
    sets = [(ngrams_of(a, settings), ngrams_of(b, settings)) for a, b in zip(one, other, strict=True)]
    for slots in (64, 1024):
        monkeypatch.setattr("tamis.kernels.minhash._MOST_SLOTS", slots)
        assert settings.jaccard(pa.array(one), pa.array(other)).tolist() == [len(a & b) / len(a | b) for a, b in sets]


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("scheme", minhash.SCHEMES)
def test_without_kernels_the_definition_serves(scheme: str) -> None:
    settings = MinHash(40, 3, scheme=scheme)
    column = pa.array(["an example", "an exam", ""])
    signatures = settings.signatures(column)
    assert [row.tolist() for row in signatures] == [
        by_definition(settings, text)[1].tolist() for text in column.to_pylist()
    ]
    assert settings.jaccard(column, column[::-1]).tolist()[1] == 1.0
    assert settings.shingles(column).value_lengths().to_pylist() == [8, 5, 1]
    bands = band_hashes(signatures, 8)
    native._LOADED.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAMIS_KERNELS", "wait")
        assert np.array_equal(band_hashes(signatures, 8), bands)
        assert np.array_equal(settings.signatures(column), signatures)


def test_a_gpu_without_cupy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert not gpu.is_available()
    with pytest.raises(ImportError, match=r'pip install "tamis\[gpu\]"'):
        gpu.signatures(MinHash(), pa.array(["a"]))


def test_known_values_stay_the_same_forever() -> None:
    # Indexes of signatures that are kept rely on these numbers.
    column = pa.array(["A text of more than twenty-four characters.", "日本", ""])
    found = {
        (scheme, bits): [int(value) for value in MinHash(4, scheme=scheme, bits=bits).signatures(column)[:, 1]]
        for scheme in minhash.SCHEMES
        for bits in (32, 64)
    }
    assert found == KNOWN
    words = MinHash(4, 2, "word").signatures(column)
    assert band_hashes(words, 2)[0].tolist() == KNOWN_BANDS


@given(TEXTS, st.integers(0, 5))
def test_signatures_depend_on_the_text_alone(texts: list[str], cut: int) -> None:
    settings = MinHash(32, 4)
    expected = settings.signatures(pa.array(texts, pa.string()))
    padded = pa.array(["x", *texts, "y"], pa.large_string()).slice(1, len(texts))
    for column in (padded, pa.chunked_array([padded[:cut], padded[cut:]]), padded.cast(pa.string_view())):
        assert np.array_equal(settings.signatures(column), expected)


def test_no_texts_have_no_signatures() -> None:
    assert MinHash().signatures(pa.chunked_array([], pa.string())).shape == (0, 260)
    assert MinHash().jaccard(pa.array([], pa.string()), pa.array([], pa.string())).shape == (0,)
    assert len(MinHash().shingles(pa.array([], pa.string()))) == 0
    assert band_hashes(np.zeros((0, 260), np.uint32), 20).shape == (0, 20)


def test_nulls_do_no_harm() -> None:
    settings = MinHash(16, 3, normalize=("lower",))
    with_nulls = settings.signatures(pa.array(["abcd", None, "efgh"]))
    assert np.array_equal(with_nulls[[0, 2]], settings.signatures(pa.array(["ABCD", "EFGH"])))


@pytest.mark.parametrize("unit", minhash.UNITS)
@pytest.mark.parametrize("scheme", minhash.SCHEMES)
def test_a_long_text_that_repeats_itself_has_the_signature_of_its_ngrams(scheme: str, unit: str) -> None:
    settings = MinHash(100, 3, unit, scheme)
    once, often = settings.signatures(pa.array(["a b c " * 2, "a b c " * 200_000]))
    assert np.array_equal(once, often)


@pytest.mark.parametrize("scheme", minhash.SCHEMES)
def test_a_text_with_more_ngrams_than_are_kept_at_once(scheme: str) -> None:
    # So many hashes that many rounds are needed, of more n-grams than the table of distinct ones holds.
    chance = random.Random(4)
    text = "".join(chance.choices("abcdefgh", k=30_000))
    settings = MinHash(20_000, 12, scheme=scheme)
    assert np.array_equal(settings.signatures(pa.array([text]))[0], by_definition(settings, text)[1])


@pytest.mark.parametrize("unit", minhash.UNITS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("scheme", minhash.SCHEMES)
def test_agreement_estimates_the_jaccard_index(scheme: str, bits: int, unit: str) -> None:
    chance = random.Random(5)
    words = ["".join(chance.choices("abcdefghij", k=6)) for _ in range(3000)]
    texts, others = [], []
    for _ in range(150):
        text = chance.choices(words, k=chance.randint(40, 400))
        changed = [chance.choice(words) if chance.random() < 0.02 else word for word in text]
        texts.append(" ".join(text))
        others.append(" ".join(changed))
    settings = MinHash(256, 12 if unit == "character" else 3, unit, scheme, bits=bits)
    one, other = pa.array(texts), pa.array(others)
    exact, estimated = settings.jaccard(one, other), similarity(settings.signatures(one), settings.signatures(other))
    expected = np.sqrt(exact * (1 - exact) / settings.num_hashes)
    assert 0.3 < exact.mean() < 0.95
    assert abs((estimated - exact).mean()) < 4 * expected.mean() / np.sqrt(len(texts))
    assert np.sqrt(((estimated - exact) ** 2).mean()) < 1.2 * np.sqrt((expected**2).mean())


def test_seeds_give_different_signatures() -> None:
    column = pa.array(["one text that is long enough"])
    made = [
        MinHash(64, 5, scheme=scheme, seed=seed).signatures(column)[0]
        for scheme in minhash.SCHEMES
        for seed in range(3)
    ]
    assert all((one != other).mean() > 0.9 for i, one in enumerate(made) for other in made[:i])


def test_bands_meet_only_where_the_same_band_is_equal() -> None:
    signatures = np.zeros((3, 12), np.uint32)
    signatures[1, 3] = 1
    signatures[2, :] = 7
    one, other, far = band_hashes(signatures, 4)
    assert (one == other).tolist() == [True, False, True, True]
    assert not set(far.tolist()) & {*one.tolist(), *other.tolist()}
    assert len(set(one.tolist())) == 4
    assert np.array_equal(band_hashes(signatures, 4), minhash_definition.band_hashes(signatures, 4))
    with pytest.raises(ValueError, match="12 numbers of a signature cannot be split into 5 bands"):
        band_hashes(signatures, 5)


@given(st.lists(st.one_of(st.none(), TEXT), max_size=5), st.sets(st.sampled_from(["punctuation", "whitespace"])))
def test_normalised_text_is_what_its_definition_says(texts: list[str | None], steps: set[str]) -> None:
    def expected(text: str) -> str:
        if "punctuation" in steps:
            text = "".join(character for character in text if not is_punctuation(character))
        return " ".join(text.split()) if "whitespace" in steps else text

    column = pa.array(texts, pa.string())
    assert normalized(column, steps).to_pylist() == [None if text is None else expected(text) for text in texts]
    assert normalized(column, steps).type == column.type


def test_normalising_makes_texts_equal() -> None:
    settings = MinHash(32, 4, normalize=("whitespace", "lower", "punctuation"))
    same = pa.array(["Ein „Satz“ (mit) $Zeichen!", "ein satz\n\tmit zeichen", " EIN SATZ MIT ZEICHEN "])
    first, *rest = settings.signatures(same).tolist()
    assert all(row == first for row in rest)
    assert settings.jaccard(same, same[::-1]).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_hashes": 0}, "num_hashes = 0 is not between"),
        ({"ngram": -1}, "ngram = -1 is not between"),
        ({"unit": "byte"}, "unit = 'byte' is not one of 'character', 'word'"),
        ({"scheme": "quick"}, "scheme = 'quick' is not one of 'fast', 'classic'"),
        ({"bits": 16}, "bits = 16 is not one of 32, 64"),
        ({"normalize": ("upper",)}, "normalize: 'upper' is not one of 'lower', 'punctuation', 'whitespace'"),
    ],
)
def test_parameters_without_a_meaning_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinHash(**given)
    with pytest.raises(ValueError, match="2 texts on one side and 1 on the other"):
        MinHash().jaccard(pa.array(["a", "b"]), pa.array(["a"]))
