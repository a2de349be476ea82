"""fastText models (Joulin et al., 2016): load one from a file, and label whole columns with it.

The package holds Python's lock while it predicts, so stages that use it run on processes, not on threads.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, MissingExtraError
from tamis.kernels.utf8 import Utf8

__all__ = ["FastTextModel", "check_model_file", "ends_within", "load_fasttext"]

_BATCH_ROWS = 1000


class FastTextModel:
    """A supervised fastText model. Made by :func:`load_fasttext`.

    Args:
        path: Where it was loaded from.
        inner: The model as the package ``fasttext`` knows it.
    """

    def __init__(self, path: str, inner: Any) -> None:
        self.path, self._inner = path, inner

    def predict(
        self, column: pa.Array | pa.ChunkedArray, max_bytes: int | None = None
    ) -> tuple[list[str], NDArray[np.float32]]:
        """The likeliest label of each text and its probability; ``""`` and 0.0 where the model knows no word of it.

        Args:
            column: Texts. A newline, which would end what fastText looks at, counts as a space, a null as no text.
            max_bytes: How much of each text is looked at, in bytes from its beginning; ``None`` for all of it.
        """
        texts = Utf8.from_arrow(column)
        bounds = list(zip(texts.offsets[:-1].tolist(), ends_within(texts, max_bytes).tolist(), strict=True))
        data = texts.data.data
        labels: list[str] = []
        probabilities: list[float] = []
        for first in range(0, len(bounds), _BATCH_ROWS):
            # The binding takes UTF-8 bytes as readily as str, which it would have to encode.
            lines = [
                bytes(data[start:end]).replace(b"\n", b" ") + b"\n"
                for start, end in bounds[first : first + _BATCH_ROWS]
            ]
            for found, likely in zip(*self._inner.multilinePredict(lines, 1, 0.0, "strict"), strict=True):
                labels.append(found[0] if found else "")
                probabilities.append(likely[0] if found else 0.0)
        return labels, np.array(probabilities, np.float32)


def load_fasttext(path: str, needed_by: str) -> FastTextModel:
    """Load a fastText model; once in each process, however often it is asked for.

    Args:
        path: A ``.bin`` or ``.ftz`` file.
        needed_by: What it is for, for error messages.
    """
    try:
        import fasttext  # noqa: F401 - so that a missing package is found before a missing file
    except ImportError as e:
        raise MissingExtraError(needed_by, package="fasttext-numpy2", extra="language") from e
    check_model_file(path, needed_by)
    return _loaded(path, os.stat(path).st_mtime_ns)


def check_model_file(path: str, needed_by: str) -> None:
    """Refuse a path that leads to no file.

    >>> check_model_file("lid.176.bin", "FastTextLangId")
    Traceback (most recent call last):
    FileNotFoundError: FastTextLangId: there is no model file lid.176.bin; give the path of a fastText .bin or .ftz file
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"{needed_by}: there is no model file {path}; give the path of a fastText .bin or .ftz file"
        )


def ends_within(texts: Utf8, max_bytes: int | None) -> NDArray[np.int64]:
    """Where each text ends, or, if it is longer than so many bytes, where its last character that fits in ends.

    >>> ends_within(Utf8.from_arrow(pa.array(["né", "abc"])), 2).tolist()
    [1, 5]
    """
    starts, ends = texts.offsets[:-1], texts.offsets[1:]
    if max_bytes is None:
        return ends
    cuts = np.minimum(ends, starts + max_bytes)
    for _ in range(3):  # a character has at most three bytes after its first
        inside = np.flatnonzero(cuts < ends)
        cuts[inside] -= (texts.data[cuts[inside]] & 0xC0) == 0x80
    return np.maximum(cuts, starts)


@functools.lru_cache(maxsize=4)
def _loaded(path: str, changed_ns: int) -> FastTextModel:
    import fasttext

    try:
        return FastTextModel(path, fasttext.load_model(path).f)
    except ValueError as e:
        raise DataError("it is no fastText model", path=path, hint=f"fastText says: {e}") from e
