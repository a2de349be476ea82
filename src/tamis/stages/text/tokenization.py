"""Turn texts into token ids, or count them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.errors import DataError
from tamis.models.tokenizers import Tokenizer, load_tokenizer
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.tasks import DocumentBatch

__all__ = ["TokenCount", "Tokenize", "require_eos"]


@dataclass(repr=False)
class TokenizingStage(TextStage):
    """A stage with a tokenizer.

    Args:
        model_identifier: The tokenizer: a ``tokenizer.json``, a directory it was saved in, or a name on the Hugging
            Face hub.
        text_field: The column with the text.
        add_special_tokens: Whether to add the tokens that the tokenizer puts around a text (``[CLS]``, ``<s>``).
        tokenization_batch_size: How many texts are encoded at once.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``.
    """

    model_identifier: str
    text_field: str = "text"
    add_special_tokens: bool = False
    tokenization_batch_size: int = 1000
    cache_dir: str | None = None
    hf_token: str | None = None
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_tokenizing(type(self).__name__, self.model_identifier, self.tokenization_batch_size)

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def adds_columns(self) -> list[str]:
        return self.outputs()[1]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        if not os.path.exists(self.model_identifier):
            self._load()  # once, so that the workers need not all download it

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._tokenizer = self._load()

    def _load(self, eos_token: str | None = None) -> Tokenizer:
        return load_tokenizer(
            self.model_identifier,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            eos_token=eos_token,
            transformers_init_kwargs=self.transformers_init_kwargs,
        )

    def _set_up_if_needed(self) -> None:
        """A run calls :meth:`setup`; a direct call of :meth:`process` works without it."""
        if not hasattr(self, "_tokenizer"):
            self.setup()


@dataclass(repr=False)
class TokenCount(TokenizingStage):
    """Add a column with the number of tokens of each text. A document without text (null) has none.

    The other arguments are those of every :class:`TokenizingStage`.

    Args:
        count_field: The column that gets the number.

    >>> TokenCount("tokenizers/mine/tokenizer.json", count_field="length").outputs()[1]
    ['length']
    """

    count_field: str = "num_tokens"
    name: str = "TokenCount"

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.count_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self._set_up_if_needed()
        counts = self._tokenizer.count_tokens(
            self.texts(task), add_special_tokens=self.add_special_tokens, batch_size=self.tokenization_batch_size
        )
        self.log_metric("tokens", int(counts.sum()))
        return task.with_column(self.count_field, pa.array(counts))


@dataclass(repr=False)
class Tokenize(TokenizingStage):
    """Add a column with the token ids of each text. A document without text (null) has none.

    The other arguments are those of every :class:`TokenizingStage`.

    Args:
        tokens_field: The column that gets the ids.
        append_eos: Whether each text ends with the tokenizer's end-of-text token.
        eos_token: That token, where the tokenizer does not name it or another one is wanted.

    >>> Tokenize("tokenizers/mine").outputs()[1]
    ['input_ids']
    """

    tokens_field: str = "input_ids"
    append_eos: bool = False
    eos_token: str | None = None
    name: str = "Tokenize"

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._eos = require_eos(self._tokenizer, f"{self.name}(append_eos=True)") if self.append_eos else None

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self._set_up_if_needed()
        tokens = self._tokenizer.encode_column(
            self.texts(task), add_special_tokens=self.add_special_tokens, batch_size=self.tokenization_batch_size
        )
        if self._eos is not None:
            tokens = with_last(tokens, self._eos)
        self.log_metric("tokens", len(tokens.values))
        return task.with_column(self.tokens_field, tokens)

    def _load(self, eos_token: str | None = None) -> Tokenizer:
        return super()._load(self.eos_token)


def check_tokenizing(owner: str, model_identifier: str, batch_size: int) -> None:
    """Refuse what cannot be a tokenizer or a batch size."""
    if not isinstance(model_identifier, str | os.PathLike) or not str(model_identifier):
        raise ValueError(f"{owner}(model_identifier={model_identifier!r}): give a path or a name on the hub")
    if batch_size < 1:
        raise ValueError(f"{owner}(tokenization_batch_size={batch_size}): must be at least 1")


def require_eos(tokenizer: Tokenizer, owner: str) -> int:
    """The id of the token that ends a text; an error if the tokenizer names none."""
    if tokenizer.eos_token_id is None:
        raise DataError(
            f"{owner}: the tokenizer {tokenizer.name} does not say which token ends a text",
            hint='Give it: eos_token="</s>", say.',
        )
    return tokenizer.eos_token_id


def with_last(tokens: pa.LargeListArray, token: int) -> pa.LargeListArray:
    """Each list of tokens with one more token at its end.

    >>> with_last(pa.array([[1, 2], []], pa.large_list(pa.int32())), 9).to_pylist()
    [[1, 2, 9], [9]]
    """
    offsets = tokens.offsets.to_numpy()
    values = np.insert(tokens.values.to_numpy(), offsets[1:], token)
    return pa.LargeListArray.from_arrays(pa.array(offsets + np.arange(len(offsets))), pa.array(values))
