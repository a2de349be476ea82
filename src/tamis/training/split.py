"""Splitting of texts into parts for training, calibration and test, so that no part has seen another one's texts.

Equal texts and those that differ little come into the same part: texts whose MinHash signatures share a band are one
group, as are those joined by a chain of them. Signatures are of 3-grams of words in lower case without punctuation; 12
bands of 8 numbers find nearly all pairs with a Jaccard index of 0.85 and more.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.hashing import hash_text_64
from tamis.kernels.minhash import MinHash, band_hashes
from tamis.kernels.union_find import Forest
from tamis.stages.mixing.row_keys import scrambled

__all__ = ["CALIBRATION", "TEST", "TRAIN", "groups_of", "parts_of"]

TRAIN: Final = 0
CALIBRATION: Final = 1
TEST: Final = 2

_BANDS: Final = 12
_MINHASH: Final = MinHash(num_hashes=96, ngram=3, unit="word", normalize=("lower", "punctuation", "whitespace"), seed=1)
_BLOCK_ROWS: Final = 4096


def groups_of(texts: pa.Array) -> NDArray[np.int64]:
    """A number for each text that is the same for texts that are nearly equal: that of the first of them.

    >>> groups_of(pa.array(["one two three four", "One, two, three, four!", "five six seven eight"])).tolist()
    [0, 0, 2]
    """
    forest = Forest(len(texts))
    bands = [np.zeros((0, _BANDS), np.uint64)]
    for begin in range(0, len(texts), _BLOCK_ROWS):
        bands.append(band_hashes(_MINHASH.signatures(texts.slice(begin, _BLOCK_ROWS)), _BANDS))
    found = np.concatenate([np.concatenate(bands), hash_text_64(texts)[:, None]], axis=1)
    for band in found.T:
        order = np.argsort(band, kind="stable")
        same = np.flatnonzero(band[order][1:] == band[order][:-1])
        forest.join(order[same], order[same + 1], marks=False)
    return np.array(forest.roots(), np.int64)


def parts_of(
    groups: NDArray[np.int64],
    keys: NDArray[np.uint64],
    labels: NDArray[np.int32],
    calibration_share: float,
    test_share: float,
) -> NDArray[np.int8]:
    """The part of each text: :data:`TRAIN`, :data:`CALIBRATION` or :data:`TEST`.

    A group belongs to the label of its first text. Of each label, the first group goes into training; of the others,
    in an order that follows from the keys, as many into the test and the calibration as make up their shares.

    Args:
        groups: The group of each text, as :func:`groups_of` gives it.
        keys: The key of each text; texts are ordered by them.
        labels: The label of each text.
        calibration_share, test_share: How large these parts should be, 0 to 1.
    """
    firsts, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    parts = np.zeros(len(firsts), np.int8)
    of_groups, turn = labels[firsts], scrambled(keys[firsts])
    for label in np.unique(of_groups).tolist():
        mine = np.flatnonzero(of_groups == label)
        mine = mine[np.argsort(turn[mine], kind="stable")]
        total = int(sizes[mine].sum())
        left = {TEST: round(test_share * total), CALIBRATION: round(calibration_share * total)}
        for group in mine[1:].tolist():
            part = next((part for part, room in left.items() if sizes[group] <= room), TRAIN)
            parts[group] = part
            if part != TRAIN:
                left[part] -= int(sizes[group])
    return parts[inverse]
