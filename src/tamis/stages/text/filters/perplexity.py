"""A filter by the perplexity of texts under an n-gram language model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.models.ngram_model import load_ngram_model
from tamis.stages.text.filters.base import NOT_NEGATIVE, ThresholdFilter
from tamis.stages.text.forms import well_formed

__all__ = ["PerplexityFilter"]


@dataclass
class PerplexityFilter(ThresholdFilter):
    """Keep text that a language model does not find too surprising.

    Score: the perplexity of the text under an n-gram model: one divided by the geometric mean of the probabilities of
    its units and of the ends of its lines. Each line that is not blank is a sentence. A text without units has an
    infinite perplexity.

    Args:
        model: A file that ``tamis train-lm`` wrote, or one in the ARPA format (``.arpa``, ``.arpa.gz``), as KenLM has.
        max_perplexity: The highest perplexity that is kept; no limit when ``None``.
        min_perplexity: The lowest one; no limit when not given.

    >>> PerplexityFilter("english.lm", max_perplexity=500).keep_document(120.5)
    True
    """

    model: str
    max_perplexity: float | None = 1000.0
    min_perplexity: float | None = None
    name = "perplexity"
    score_range = NOT_NEGATIVE

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError(
                "PerplexityFilter: give model, a file that tamis train-lm wrote, or one in the ARPA format"
            )

    def model_check_or_download(self) -> None:
        """Refuse a path that leads to no model on this machine."""
        load_ngram_model(self.model, type(self).__name__)

    def load_model(self) -> None:
        """Load the model; once in each process."""
        self.model_check_or_download()

    def score_document(self, text: str) -> float:
        return float(self.score_column(pa.chunked_array([[well_formed(text)]], pa.string()))[0])

    def score_column(self, column: pa.ChunkedArray) -> NDArray[np.float64]:
        return load_ngram_model(self.model, type(self).__name__).score(column).perplexities()
