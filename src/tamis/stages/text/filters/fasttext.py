"""Filters that ask a fastText model: which language a text is in, and how good it is.

Both need the path of a model, which every machine must be able to read.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels.hashing import hash_text_128
from tamis.kernels.utf8 import WHITE_SPACE
from tamis.models.fasttext import check_model_file, load_fasttext
from tamis.models.language import matches_language
from tamis.stages.mixing.row_keys import as_shares, scrambled
from tamis.stages.text.filters.base import SHARE, DocumentFilter
from tamis.stages.text.forms import well_formed

__all__ = ["FastTextLangId", "FastTextQualityFilter"]

_LABEL = "__label__"
_HIGHEST = np.nextafter(np.float32(1), np.float32(0))
_SPARE_BITS = np.uint64((1 << 29) - 1)
"""The bits of a float64 that are zero in every number that a float32 can hold."""


class _FastTextFilter(DocumentFilter):
    """What both share: the model file."""

    model_path: str

    def __post_init__(self) -> None:
        if not self.model_path:
            raise ValueError(f"{type(self).__name__}: give model_path, the path of a fastText model (.bin or .ftz)")

    def model_check_or_download(self) -> None:
        """Refuse a path that leads to no file on this machine."""
        check_model_file(self.model_path, type(self).__name__)

    def load_model(self) -> None:
        """Load the model; once in each process."""
        load_fasttext(self.model_path, type(self).__name__)

    def _predict(self, column: pa.Array | pa.ChunkedArray) -> tuple[pa.StringArray, NDArray[np.float32]]:
        return load_fasttext(self.model_path, type(self).__name__).predict(column)


@dataclass
class FastTextLangId(_FastTextFilter):
    """Keep text whose language a fastText model tells with enough certainty, or that is in one language.

    Score: probability and code of the likeliest language, as the text ``[0.97, 'en']``; ``[0.0, '']`` where the model
    knows no word of the text. The text is stripped, and newlines count as spaces.

    Args:
        model_path: A fastText model (``.bin`` or ``.ftz``), such as ``lid.176.bin``.
        min_langid_score: The lowest probability that is kept, 0 to 1.
        lang: The code of the language that is kept, in upper or lower case; any when not given. ``eng`` is matched with
            any script, ``eng_Latn`` exactly.

    >>> FastTextLangId("lid.176.bin", lang="EN").keep_document("[0.97, 'en']")
    True
    """

    model_path: str
    min_langid_score: float = 0.3
    lang: str | None = None
    name = "lang_id"

    def check_parameters(self) -> None:
        self._require("min_langid_score", SHARE)

    def score_document(self, text: str) -> str:
        return str(self.score_column(pa.chunked_array([[well_formed(text)]], pa.string()))[0].as_py())

    def keep_document(self, score: Any) -> bool:
        if not isinstance(score, str):
            raise TypeError(f"{self.name}: a score is a text such as \"[0.97, 'en']\", not {score!r}")
        probability, code = ast.literal_eval(score)
        return bool(probability >= self.min_langid_score) and self._is_wanted(code)

    def score_column(self, column: pa.ChunkedArray) -> pa.Array:
        labels, probabilities = self._predict(pc.utf8_trim(column, characters=WHITE_SPACE))
        encoded = labels.dictionary_encode()
        codes = [repr(label.removeprefix(_LABEL)) for label in encoded.dictionary.to_pylist()]
        numbers = pa.array([repr(probability) for probability in probabilities.tolist()], pa.string())
        return pc.binary_join_element_wise(
            "[", numbers, ", ", pa.array(codes, pa.string()).take(encoded.indices), "]", ""
        )

    def keep_scores(self, scores: pa.Array | NDArray[Any]) -> NDArray[np.bool_]:
        column = scores if isinstance(scores, pa.Array) else pa.array(scores, pa.string())
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            raise TypeError(f"{self.name}: a score is a text such as \"[0.97, 'en']\", not {column.type}")
        parts = pc.extract_regex(column, r"^\[\s*(?P<probability>[^,\s]+)\s*,\s*(?P<code>.+?)\s*\]$")
        if parts.null_count > column.null_count:
            bad = column.filter(pc.is_null(parts))[0]
            raise ValueError(f"{self.name}: a score is a text such as \"[0.97, 'en']\", not {bad.as_py()!r}")
        likely = np.asarray(pc.cast(parts.field("probability"), pa.float64()))
        codes = parts.field("code").dictionary_encode()
        wanted = np.array([self._is_wanted(ast.literal_eval(code)) for code in codes.dictionary.to_pylist()], np.bool_)
        kept: NDArray[np.bool_] = (likely >= self.min_langid_score) & wanted[np.asarray(codes.indices)]
        return kept

    def reason(self) -> str:
        language = "" if not self.lang else f" or language not {self.lang}"
        return f"{self.name} < {self.min_langid_score}{language}"

    def _is_wanted(self, code: str) -> bool:
        return not self.lang or matches_language(code, self.lang)


@dataclass
class FastTextQualityFilter(_FastTextFilter):
    """Keep text that a fastText model finds good, and some of the rest: the less the worse it is.

    Score: the probability of the label, or one minus it where another label is likelier. A text is kept if a number
    drawn from a Pareto distribution is larger than one minus its score, as GPT-3's authors did (Brown et al., 2020,
    appendix A). The draw follows from the seed and the text alone: it is the same in every run, on every machine and
    at every degree of parallelism. For this, the last 29 bits of the score, which are beyond what the model computes
    (they change it by less than 1e-7), are a hash of the text.

    Args:
        model_path: A fastText model (``.bin`` or ``.ftz``) that has the label.
        label: The label of good text.
        alpha: The shape of the Pareto distribution: the higher, the less bad text is kept.
        seed: Another seed draws other numbers.

    >>> FastTextQualityFilter("quality.bin").keep_document(1.0)
    True
    """

    model_path: str
    label: str = "__label__hq"
    alpha: float = 3
    seed: int = 42
    name = "fasttext_quality_filter"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha <= 0:
            raise ValueError(f"FastTextQualityFilter(alpha={self.alpha}): must be more than 0")

    def score_document(self, text: str) -> float:
        return float(self.score_column(pa.chunked_array([[well_formed(text)]], pa.string()))[0])

    def keep_document(self, score: Any) -> bool:
        return bool(self.keep_scores(np.array([score], np.float64))[0])

    def score_column(self, column: pa.ChunkedArray) -> NDArray[np.float64]:
        texts = pc.fill_null(column, "")
        labels, likely = self._predict(pc.replace_substring(texts, _LABEL, " "))
        is_label = np.asarray(pc.equal(labels, self.label))
        scores = np.clip(np.where(is_label, likely, 1 - likely), np.float32(0), _HIGHEST).astype(np.float64)
        marked = scores.view(np.uint64) | (hash_text_128(texts)[:, 1] & _SPARE_BITS)
        return marked.view(np.float64)

    def keep_scores(self, scores: pa.Array | NDArray[Any]) -> NDArray[np.bool_]:
        values = np.asarray(scores, np.float64)
        chance = _uniform(values.view(np.uint64), self.seed)
        kept: NDArray[np.bool_] = (1 - chance) ** (-1 / self.alpha) - 1 > 1 - values
        return kept

    def reason(self) -> str:
        return f"{self.name} too low for its draw"


def _uniform(bits: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Numbers from 0 to 1, 1 excluded, that follow from the bits and the seed (SplitMix64, Steele et al., 2014)."""
    return as_shares(scrambled(bits + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)))
