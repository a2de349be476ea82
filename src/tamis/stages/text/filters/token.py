"""A filter that counts tokens."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.models.tokenizers import load_tokenizer, loaded_tokenizer
from tamis.stages.text.filters.base import NOT_NEGATIVE, ThresholdFilter
from tamis.stages.text.forms import well_formed

__all__ = ["TokenCountFilter"]

_BATCH_ROWS = 1000


@dataclass
class TokenCountFilter(ThresholdFilter):
    """Drop text with too few or too many tokens. Needs ``tamis[tokenize]``.

    Score: the number of tokens, with those that the tokenizer puts around each text (such as ``[CLS]`` or ``<s>``).

    Args:
        tokenizer: A tokenizer that is loaded already, of the package ``tokenizers`` or of ``transformers``. Exactly one
            of this and ``hf_model_name`` must be given.
        hf_model_name: The path of a ``tokenizer.json`` or of a directory that a tokenizer was saved in, or a name on
            the Hugging Face hub.
        hf_token: For models of the hub that ask for one.
        min_tokens: The fewest tokens that are kept.
        max_tokens: The most tokens that are kept.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``; if there are any,
            it loads the tokenizer.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> TokenCountFilter(words, max_tokens=2).score_document("a b c")
    3
    """

    tokenizer: Any = None
    hf_model_name: str | None = None
    hf_token: str | None = field(default=None, repr=False)
    min_tokens: int = 0
    max_tokens: float = math.inf
    transformers_init_kwargs: dict[str, Any] | None = None
    name = "token_count"
    score_range = NOT_NEGATIVE

    def __post_init__(self) -> None:
        if (self.tokenizer is None) == (self.hf_model_name is None):
            raise ValueError("TokenCountFilter: set either tokenizer, to a loaded one, or hf_model_name")
        if isinstance(self.tokenizer, str):
            raise TypeError(
                f"TokenCountFilter(tokenizer={self.tokenizer!r}): it takes a loaded tokenizer; "
                "give a name or a path as hf_model_name"
            )

    @property
    def vectorised(self) -> bool:
        # What transformers has in Python holds Python's lock; all others are those of the package tokenizers.
        return getattr(self.tokenizer, "is_fast", True)

    def model_check_or_download(self) -> None:
        """Load the tokenizer once, so that its files are on this machine."""
        self.load_tokenizer()

    def load_tokenizer(self) -> None:
        """Load the tokenizer."""
        self._count  # noqa: B018 - loaded and kept at its first use

    def bounds(self) -> tuple[float | None, float | None]:
        return self.min_tokens or None, None if self.max_tokens == math.inf else self.max_tokens

    def score_document(self, text: str) -> int:
        return int(self._count(pa.array([well_formed(text)], pa.string()))[0])

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return self._count(column)

    def reason(self) -> str:
        return super().reason() if self.bounds() != (None, None) else f"rejected by {self.name}"

    @functools.cached_property
    def _count(self) -> Callable[[pa.Array | pa.ChunkedArray], NDArray[np.int64]]:
        if self.hf_model_name is not None:
            loaded = load_tokenizer(
                self.hf_model_name, hf_token=self.hf_token, transformers_init_kwargs=self.transformers_init_kwargs
            )
        elif hasattr(self.tokenizer, "encode_batch_fast"):
            loaded = loaded_tokenizer(self.tokenizer)
        else:
            return functools.partial(_count_with, self.tokenizer)
        return functools.partial(loaded.count_tokens, add_special_tokens=True)


def _count_with(tokenizer: Any, column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """How many tokens a tokenizer of ``transformers`` that a user has loaded finds in each text."""
    counts: list[int] = []
    for first in range(0, len(column), _BATCH_ROWS):
        texts = [text or "" for text in column.slice(first, _BATCH_ROWS).to_pylist()]
        counts += map(len, tokenizer(texts, verbose=False)["input_ids"])
    return np.array(counts, np.int64)
