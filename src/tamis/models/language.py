"""Language identification: which language each text of a column is in, and how sure that is.

The built-in model is CLD2 (Sites, 2013), whose tables for 160 languages come with the package ``pycld2``; any fastText
model file, such as ``lid.176.ftz`` or GlotLID, can take its place.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import MissingExtraError
from tamis.kernels.languages import count_letters
from tamis.kernels.utf8 import Utf8
from tamis.models.cld2 import UNKNOWN, bcp47, cld2_tables
from tamis.models.fasttext import FastTextModel, ends_within, load_fasttext

__all__ = ["MAX_BYTES", "UNKNOWN", "LanguageModel", "built_in_languages", "load_language_model", "matches_language"]

MAX_BYTES: Final = 4096
"""How much of each text is looked at unless told otherwise, in bytes: more hardly changes what is found."""

_LABEL: Final = "__label__"

# CLD2 takes no text with control characters (but for tab, newline, form feed and carriage return) or with code points
# that Unicode keeps out of interchange.
_REFUSED: Final = re.compile(
    "[\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17))
    + "]"
)


class LanguageModel:
    """Says in which language texts are. Made by :func:`load_language_model`.

    Attributes:
        releases_gil: Whether it works outside Python's lock.
    """

    releases_gil: ClassVar[bool]

    def identify(self, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.float64]]:
        """The code of each text's language and how sure it is, 0 to 1.

        Args:
            column: Texts. A null counts as an empty text.
        """
        raise NotImplementedError


class _Cld2(LanguageModel):
    releases_gil = True

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes

    def identify(self, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.float64]]:
        texts = Utf8.from_arrow(column)
        ends, tables = ends_within(texts, self._max_bytes), cld2_tables()
        if tables is None:
            return self._one_by_one(texts, ends, np.arange(len(texts)))
        found = count_letters(texts.data, texts.offsets, ends, tables, has_samples=self._max_bytes is not None)
        doubtful = np.flatnonzero(~found.is_sure)
        codes, certain = self._one_by_one(texts, ends, doubtful)
        places = np.where(found.is_sure, found.language, 0)
        places[doubtful] = len(tables.codes) + np.arange(len(doubtful))
        # In whole percents, and never all of a text: so does CLD2.
        shares = np.minimum(100 * found.nbytes // np.maximum(found.letters, 1), 99) / 100
        shares[doubtful] = certain
        languages = pa.concat_arrays([pa.array(tables.codes, pa.string()), codes])
        return languages.take(pa.array(places)), shares

    @staticmethod
    def _one_by_one(
        texts: Utf8, ends: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[pa.Array, NDArray[np.float64]]:
        """What the package says of some texts."""
        from pycld2 import detect, error

        data = texts.data.data
        codes: list[str] = []
        shares: list[int] = []
        for start, end in zip(texts.offsets[rows].tolist(), ends[rows].tolist(), strict=True):
            text = bytes(data[start:end])
            try:
                found = detect(text, isPlainText=True, bestEffort=True)
            except error:
                found = detect(_acceptable(text), isPlainText=True, bestEffort=True)
            _, code, share, _ = found[2][0]
            codes.append(code)
            shares.append(share)
        encoded = pa.array(codes, pa.string()).dictionary_encode()
        names = pa.array([bcp47(code) for code in encoded.dictionary.to_pylist()], pa.string())
        languages = names.take(encoded.indices)
        unknown = np.asarray(pc.equal(languages, UNKNOWN))
        return languages, np.where(unknown, 0.0, np.array(shares, np.float64) / 100)


class _FastText(LanguageModel):
    releases_gil = True

    def __init__(self, model: FastTextModel, max_bytes: int | None) -> None:
        self._model, self._max_bytes = model, max_bytes

    def identify(self, column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.float64]]:
        labels, probabilities = self._model.predict(column, self._max_bytes)
        encoded = labels.dictionary_encode()
        names = [label.removeprefix(_LABEL) or UNKNOWN for label in encoded.dictionary.to_pylist()]
        codes = pa.array(names, pa.string()).take(encoded.indices)
        # fastText computes with floats of 32 bits and overshoots 1.0 by a little.
        likely = np.minimum(probabilities.astype(np.float64), 1.0)
        # For a text without words fastText gives the label it has seen most often.
        blank = pc.fill_null(pc.or_(pc.equal(pc.binary_length(column), 0), pc.utf8_is_space(column)), True)
        codes = pc.if_else(blank, UNKNOWN, pa.chunked_array([codes]))
        unknown = np.asarray(pc.equal(codes, UNKNOWN))
        return codes.combine_chunks(), np.where(unknown, 0.0, likely)


def load_language_model(path: str | None = None, max_bytes: int | None = MAX_BYTES) -> LanguageModel:
    """Load a model that identifies languages.

    The built-in one gives BCP 47 codes: ``en``, ``zh`` and ``zh-Hant`` (Chinese in traditional characters),
    ``und-Cans`` where only the script can be told, ``und`` where nothing can. Its certainty is the share of the text
    that is in the language. A fastText model gives the labels it was trained with, and their probability.

    Args:
        path: A fastText model file (``.bin`` or ``.ftz``); the built-in model when not given.
        max_bytes: How much of each text is looked at, in bytes from its beginning; ``None`` for all of it.

    >>> codes, certain = load_language_model().identify(pa.array(["Wie geht es dir heute, mein Freund?", "42"]))
    >>> codes.to_pylist(), certain.tolist()
    (['de', 'und'], [0.97, 0.0])
    """
    if max_bytes is not None and max_bytes < 1:
        raise ValueError(f"max_bytes={max_bytes}: must be at least 1, or None to look at whole texts")
    if path is not None:
        return _FastText(load_fasttext(path, "language identification with a fastText model"), max_bytes)
    built_in_languages()  # so that a missing package is said here rather than at the first text
    return _Cld2(max_bytes)


def built_in_languages() -> frozenset[str]:
    """The codes that the built-in model may give.

    >>> {"en", "zh-Hant", "und"} <= built_in_languages(), "english" in built_in_languages()
    (True, False)
    """
    try:
        import pycld2
    except ImportError as e:
        raise MissingExtraError("language identification", package="pycld2", extra="language") from e
    return frozenset(bcp47(code) for _, code in pycld2.LANGUAGES) | {UNKNOWN}


def matches_language(code: str, wanted: str) -> bool:
    """Whether a code means a language that is wanted. Upper and lower case, ``_`` and ``-`` are the same.

    A wanted code without a script, such as ``zh``, is matched with any script or none; one with a script exactly.

    >>> matches_language("zh-Hant", "zh"), matches_language("eng_Latn", "ENG-latn"), matches_language("zh", "zh-Hant")
    (True, True, False)
    """
    code, wanted = (one.casefold().replace("_", "-") for one in (code, wanted))
    return code == wanted or ("-" not in wanted and code.partition("-")[0] == wanted)


def _acceptable(text: bytes) -> bytes:
    """The text with a space for each character that CLD2 refuses."""
    return _REFUSED.sub(" ", text.decode("utf-8", "replace")).encode()
