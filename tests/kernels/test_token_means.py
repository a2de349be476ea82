"""The mean of the vectors of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels import native
from tamis.kernels.token_means import token_means


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=6),
    dim=st.sampled_from([1, 3, 8, 65]),
    most_tokens=st.sampled_from([1, 5, 1000]),
    normalize=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_kernel_gives_the_bits_of_the_definition(
    lengths: list[int], dim: int, most_tokens: int, normalize: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *lengths])
    ids = rng.integers(-2, 25, offsets[-1]).astype(np.int32)
    table = rng.standard_normal((20, dim)).astype(np.float32)
    counted = (rng.random(20) < 0.8).astype(np.uint8)
    assert native.load("token_means") is not None
    made = token_means(ids, offsets, table, counted, most_tokens=most_tokens, normalize=normalize)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        plain = token_means(ids, offsets, table, counted, most_tokens=most_tokens, normalize=normalize)
    for one, other in zip(made, plain, strict=True):
        assert one.tobytes() == other.tobytes()


def test_damaged_offsets_are_refused() -> None:
    table, counted = np.ones((2, 2), np.float32), np.ones(2, np.uint8)
    for offsets in ([0, 5, 3], [0, 4], [-1, 2]):
        with pytest.raises(ValueError, match="damaged"):
            token_means(np.zeros(3, np.int32), np.array(offsets), table, counted)
    with pytest.raises(ValueError, match="there are 2 vectors"):
        token_means(np.zeros(3, np.int32), np.array([0, 3]), table, counted[:1])
