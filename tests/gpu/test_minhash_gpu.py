"""Signatures made by a real GPU are those of the processor, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.kernels.gpu import minhash as gpu
from tamis.kernels.minhash import MinHash, band_hashes

pytestmark = pytest.mark.skipif(not gpu.is_available(), reason="this machine has no NVIDIA GPU or no CuPy")

PIECES = (
    "a",
    "b",
    " ",
    " ",
    "\n",
    "the ",
    "word",
    "é",
    "日本",
    "\U0001f600",
    "\u00a0",
    "\u3000",
    "\u2003",
    "x" * 17,
    "\x00",
)
SETTINGS = [
    *(MinHash(scheme=scheme, bits=bits) for scheme in ("fast", "classic") for bits in (32, 64)),
    *(MinHash(128, 5, "word", scheme, 1, bits) for scheme in ("fast", "classic") for bits in (32, 64)),
    *(MinHash(num_hashes, 1, unit, "fast") for num_hashes in (7, 500) for unit in ("character", "word")),
    *(MinHash(num_hashes, 7, "character", "classic", 3) for num_hashes in (1, 50, 700)),
]
"""Each is compiled for itself, which takes a second."""


def texts_of_every_kind() -> list[str]:
    chance = random.Random(6)
    ascii_text = "".join(chance.choices("abcdefghij klm\n", k=9000))
    texts = [ascii_text[:size] for size in (*range(40), *range(1140, 1200), *range(2290, 2310), 4608, 9000)]
    texts += ["".join(chance.choices(PIECES, k=size)) for size in (*range(60), *range(400, 2000, 97), 9000)]
    texts += ["é" * size for size in (23, 24, 25, 575, 576, 577, 3000)] + ["日" * 5000, "\U0001f600" * 1200]
    texts += [ascii_text[:1152] + "é" + ascii_text[:2000], "é" + ascii_text[:1151], " " * 3000, "a" * 1000]
    texts += ["".join(chance.choices(PIECES, k=60_000)), "".join(chance.choices("abcdef ", k=200_000))]
    return [*texts, "a" * 300_000, "a b c " * 40_000, ""]  # long ones that repeat themselves


TEXTS = texts_of_every_kind()


def on_device(texts: list[str]) -> tuple[Any, Any]:
    import cupy

    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    return cupy.asarray(np.frombuffer(b"".join(encoded), np.uint8)), cupy.asarray(offsets)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_bits_are_those_of_the_processor(settings: MinHash) -> None:
    column = pa.array(TEXTS)
    expected = settings.signatures(column)
    found = gpu.signatures_on_device(settings, *on_device(TEXTS)).get()
    different = np.flatnonzero((found != expected).any(axis=1)).tolist()
    assert different == []
    assert np.array_equal(gpu.signatures(settings, column), expected)


def test_a_column_is_worked_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MinHash(normalize=("whitespace",))
    column = pa.chunked_array([pa.array(TEXTS), pa.array(TEXTS[::-1]), pa.array([], pa.string())])
    expected = settings.signatures(column)
    for part_bytes in (1000, 100_000, 1 << 30):
        monkeypatch.setattr(gpu, "_PART_BYTES", part_bytes)
        assert np.array_equal(gpu.signatures(settings, column), expected)
        assert np.array_equal(gpu.signatures(settings, column, num_bands=20), band_hashes(expected, 20))


@pytest.mark.parametrize("bits", [32, 64])
def test_bands_are_those_of_the_processor(bits: int) -> None:
    import cupy

    signatures = MinHash(60, 5, bits=bits).signatures(pa.array(TEXTS))
    found = gpu.band_hashes(cupy.asarray(signatures), 12).get()
    assert np.array_equal(found, band_hashes(signatures, 12))


def test_tensors_of_pytorch_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    texts = ["one text", "another text, longer than twenty-four characters"]
    data = torch.tensor(list("".join(texts).encode()), dtype=torch.uint8, device="cuda")
    found = gpu.signatures_on_device(MinHash(), data, torch.tensor([0, 8, 8 + len(texts[1])], device="cuda"))
    assert np.array_equal(found.get(), MinHash().signatures(pa.array(texts)))


@pytest.mark.parametrize("first", range(5))
def test_texts_may_begin_anywhere(first: int) -> None:
    data, offsets = on_device(TEXTS[:200])
    found = gpu.signatures_on_device(MinHash(), data[first:], offsets[10:] - first)
    assert np.array_equal(found.get(), MinHash().signatures(pa.array(TEXTS[10:200])))


def test_no_texts_and_texts_that_are_wrong() -> None:
    assert gpu.signatures(MinHash(), pa.array([], pa.string())).shape == (0, 260)
    assert gpu.signatures_on_device(MinHash(), *on_device([])).shape == (0, 260)
    data, offsets = on_device(["abc"])
    with pytest.raises(ValueError, match="the offsets point outside"):
        gpu.signatures_on_device(MinHash(), data, offsets + 1)
    with pytest.raises(ValueError, match="normalise the texts first"):
        gpu.signatures_on_device(MinHash(normalize=("lower",)), data, offsets)
    with pytest.raises(ValueError, match="cannot be split into 7 bands"):
        gpu.signatures(MinHash(), pa.array(["a"]), num_bands=7)
    with pytest.raises(ValueError, match="bytes of shared memory"):
        gpu.signatures(MinHash(num_hashes=500_000), pa.array(["a"]))
