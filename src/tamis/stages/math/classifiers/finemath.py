"""How good pages are for learning mathematics: the classifier of FineMath."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.kernels.utf8 import Utf8, continues
from tamis.stages.text.classifiers.base import OUTPUTS, ClassifierStage
from tamis.stages.text.classifiers.fineweb_edu import score_columns, scorer_with_one_output
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.models.classification import Scorer

__all__ = ["FineMathClassifier", "center_cropped"]


@dataclass(kw_only=True, repr=False)
class FineMathClassifier(ClassifierStage):
    """Score from 0 to 5 how useful texts are to learn mathematics from.

    The other arguments are those of every :class:`~tamis.stages.text.classifiers.base.ClassifierStage`.

    Args:
        float_score_column: The column that gets the output of the model, limited to 0 to 5.
        int_score_column: The column that gets that score rounded, halves to the even number.
        center_crop_chars: How many characters before and after the middle of a text are looked at; ``None`` for all.

    >>> FineMathClassifier().outputs()[1]
    ['finemath_scores', 'finemath_int_scores']
    """

    model_identifier: str = "HuggingFaceTB/finemath-classifier"
    float_score_column: str = "finemath_scores"
    int_score_column: str = "finemath_int_scores"
    center_crop_chars: int | None = 10_000
    max_seq_length: int | None = 512
    sort_by_length: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.center_crop_chars is not None and self.center_crop_chars < 1:
            raise ValueError(f"{type(self).__name__}(center_crop_chars={self.center_crop_chars}): must be at least 1")

    def adds_columns(self) -> list[str]:
        return [self.float_score_column, self.int_score_column]

    def tokenizer(self) -> TokenizerStage:
        made = super().tokenizer()
        if self.center_crop_chars is None:
            return made
        cropping = _CenterCropTokenizer(**made.parameters(), center_crop_chars=self.center_crop_chars)
        cropping.hf_token = made.hf_token  # which parameters() leaves out
        return cropping.with_(name=made.name)

    def make_scorer(self, device: str) -> Scorer:
        return scorer_with_one_output(self, device)

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        scores = score_columns(columns[OUTPUTS], self.float_score_column, self.int_score_column)
        return self.without_tokens(batch).with_columns(scores)


@dataclass(repr=False)
class _CenterCropTokenizer(TokenizerStage):
    """A tokenizer that looks at the middle of texts. The column keeps them whole."""

    center_crop_chars: int = 10_000

    def texts(self, batch: DocumentBatch) -> Any:
        return center_cropped(super().texts(batch), self.center_crop_chars)


def center_cropped(column: pa.ChunkedArray, chars: int) -> pa.ChunkedArray:
    """Of each text that is longer, so many characters before its middle and as many after it.

    >>> center_cropped(pa.chunked_array([["abcdefg", "äöüß", "xy", None]]), 1).to_pylist()
    ['cd', 'öü', 'xy', None]
    """
    texts = Utf8.from_arrow(column)
    starts = np.flatnonzero(~continues(texts.data))  # where each character begins
    first = np.searchsorted(starts, texts.offsets)
    counts = np.diff(first)
    is_long = np.flatnonzero(counts > 2 * chars)
    if not len(is_long):
        return column
    from_char = first[:-1][is_long] + counts[is_long] // 2 - chars
    ends = np.append(starts, len(texts.data))
    begins, stops = ends[from_char], ends[from_char + 2 * chars]
    data = texts.data.data
    cut = [bytes(data[a:b]).decode() for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
    mask = np.zeros(len(column), np.bool_)
    mask[is_long] = True
    whole = column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return pa.chunked_array([pc.replace_with_mask(whole, pa.array(mask), pa.array(cut, whole.type))])
