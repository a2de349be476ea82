"""Tokenizers: load one from a file, a directory or a hub, and encode whole columns with it.

A ``tokenizer.json`` needs the package ``tokenizers`` alone, whose work runs outside Python's lock. What has no such
file (a vocabulary of another kind, code of its own) is loaded through ``transformers``, when that is installed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, MissingExtraError

__all__ = ["Tokenizer", "load_tokenizer"]

_FILE = "tokenizer.json"
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


class Tokenizer:
    """Turns texts into token ids. Made by :func:`load_tokenizer`.

    Attributes:
        name: Where it was loaded from.
        vocab_size: One more than the largest id, tokens added to the vocabulary included.
        eos_token_id: The id of the token that ends a text; ``None`` when the tokenizer names none.
    """

    def __init__(self, name: str, vocab_size: int, eos_token_id: int | None) -> None:
        self.name, self.vocab_size, self.eos_token_id = name, vocab_size, eos_token_id

    def encode_column(
        self, column: pa.Array | pa.ChunkedArray, *, add_special_tokens: bool = False, batch_size: int = 1000
    ) -> pa.LargeListArray:
        """The token ids of each text, as a list of ``int32``. A null has no tokens, as an empty text.

        Args:
            column: Texts.
            add_special_tokens: Whether to put the tokens around each text that the tokenizer has for this (such as
                ``[CLS]`` or ``<s>``).
            batch_size: How many texts are encoded at once; what is found on the way takes memory.
        """
        counts, ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for texts in _batches(column, batch_size):
            found = self._ids(texts, add_special_tokens)
            counts.append(np.array([len(one) for one in found], np.int64))
            ids += found
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))])
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(ids)))

    def count_tokens(
        self, column: pa.Array | pa.ChunkedArray, *, add_special_tokens: bool = False, batch_size: int = 1000
    ) -> NDArray[np.int64]:
        """How many tokens each text has. A null has none.

        Args:
            column: Texts.
            add_special_tokens: Whether to count the tokens that the tokenizer puts around each text.
            batch_size: How many texts are encoded at once.
        """
        counts = [self._counts(texts, add_special_tokens) for texts in _batches(column, batch_size)]
        return np.concatenate(counts) if counts else np.zeros(0, np.int64)

    def _ids(self, texts: list[str], add_special_tokens: bool) -> list[NDArray[np.int32]]:
        raise NotImplementedError

    def _counts(self, texts: list[str], add_special_tokens: bool) -> NDArray[np.int64]:
        return np.array([len(ids) for ids in self._ids(texts, add_special_tokens)], np.int64)


class _FastTokenizer(Tokenizer):
    """One of the package ``tokenizers``."""

    def __init__(self, name: str, inner: Any, eos_token_id: int | None) -> None:
        super().__init__(name, _vocab_size(inner.get_vocab(with_added_tokens=True)), eos_token_id)
        # A tokenizer.json may ask for texts to be cut or filled up to the length of some model.
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner

    def _ids(self, texts: list[str], add_special_tokens: bool) -> list[NDArray[np.int32]]:
        encoded = self._inner.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [np.array(one.ids, np.int32) for one in encoded]

    def _counts(self, texts: list[str], add_special_tokens: bool) -> NDArray[np.int64]:
        encoded = self._inner.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return np.array([len(one) for one in encoded], np.int64)


class _SlowTokenizer(Tokenizer):
    """One of ``transformers`` that is written in Python."""

    def __init__(self, name: str, inner: Any, eos_token_id: int | None) -> None:
        super().__init__(name, _vocab_size(inner.get_vocab()), eos_token_id)
        self._inner = inner

    def _ids(self, texts: list[str], add_special_tokens: bool) -> list[NDArray[np.int32]]:
        encoded = self._inner(texts, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]
        return [np.array(ids, np.int32) for ids in encoded]


def load_tokenizer(
    model_identifier: str,
    *,
    cache_dir: str | None = None,
    hf_token: str | None = None,
    eos_token: str | None = None,
    transformers_init_kwargs: Mapping[str, Any] | None = None,
) -> Tokenizer:
    """Load a tokenizer.

    Args:
        model_identifier: A ``tokenizer.json``, a directory that a tokenizer was saved in, or a name on the Hugging Face
            hub such as ``"gpt2"``.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one.
        eos_token: The token that ends a text, where the tokenizer does not name it or another one is wanted.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``; if there are any,
            it loads the tokenizer.

    >>> import tempfile
    >>> from tokenizers import Tokenizer as Vocabulary, models, pre_tokenizers
    >>> words = Vocabulary(models.WordLevel({"a": 0, "b": 1, "<end>": 2}, unk_token="<end>"))
    >>> words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     words.save(f"{folder}/tokenizer.json")
    ...     tokenizer = load_tokenizer(folder, eos_token="<end>")
    >>> tokenizer.encode_column(pa.array(["a b", "", None, "b"])).to_pylist()
    [[0, 1], [], [], [1]]
    >>> tokenizer.count_tokens(pa.array(["a b", None])).tolist(), tokenizer.vocab_size, tokenizer.eos_token_id
    ([2, 0], 3, 2)
    """
    more = dict(transformers_init_kwargs or {})
    if os.path.exists(model_identifier):
        is_file = os.path.isfile(model_identifier)
        path = model_identifier if is_file else os.path.join(model_identifier, _FILE)
        if is_file and more:
            raise ValueError(
                f"transformers_init_kwargs={sorted(more)}: they are for a directory or a name, and {path} is one file"
            )
        if os.path.isfile(path) and not more:
            return _from_file(model_identifier, path, eos_token)
        return _from_transformers(model_identifier, None, None, eos_token, more)
    if model_identifier.endswith(".json") or os.path.isabs(model_identifier) or model_identifier.startswith("."):
        raise DataError(f"there is no tokenizer: no such file or directory: {os.path.abspath(model_identifier)}")
    if _has_transformers() or more:
        return _from_transformers(model_identifier, cache_dir, hf_token, eos_token, more)
    return _from_hub(model_identifier, cache_dir, hf_token, eos_token)


def _from_file(name: str, path: str, eos_token: str | None) -> Tokenizer:
    try:
        import tokenizers
    except ImportError as e:
        raise MissingExtraError(f"the tokenizer {name}", package="tokenizers", extra="tokenize") from e
    try:
        inner = tokenizers.Tokenizer.from_file(path)
    except Exception as e:  # the package raises plain Exception for whatever is wrong with the file
        raise DataError(f"it is no tokenizer that the package tokenizers can read: {e}", path=path) from e
    token = eos_token or _named_eos(os.path.dirname(path))
    return _FastTokenizer(name, inner, None if token is None else _token_id(name, token, inner.token_to_id(token)))


def _from_hub(name: str, cache_dir: str | None, hf_token: str | None, eos_token: str | None) -> Tokenizer:
    """Download ``tokenizer.json`` and what says which of its tokens ends a text."""
    try:
        import huggingface_hub  # comes with tokenizers
    except ImportError as e:
        raise MissingExtraError(f"the tokenizer {name}", package="tokenizers", extra="tokenize") from e
    try:
        folder = huggingface_hub.snapshot_download(
            name, allow_patterns=[_FILE, *_SETTINGS], cache_dir=cache_dir, token=hf_token
        )
    except (OSError, ValueError) as e:
        raise _not_loaded(name, e) from e
    path = os.path.join(folder, _FILE)
    if not os.path.isfile(path):
        raise MissingExtraError(
            f"the tokenizer {name}, which has no {_FILE},", package="transformers", extra="transformers"
        )
    return _from_file(name, path, eos_token)


def _from_transformers(
    name: str, cache_dir: str | None, hf_token: str | None, eos_token: str | None, more: dict[str, Any]
) -> Tokenizer:
    try:
        import transformers
    except ImportError as e:
        raise MissingExtraError(f"the tokenizer {name}", package="transformers", extra="transformers") from e
    try:
        inner = transformers.AutoTokenizer.from_pretrained(name, cache_dir=cache_dir, token=hf_token, **more)
    except (OSError, ValueError) as e:
        raise _not_loaded(name, e) from e
    eos_token_id: int | None = None
    if eos_token is not None:
        # Looked up, not given to transformers: that adds a token that is not there, with an id no model knows.
        eos_token_id = _token_id(name, eos_token, inner.get_vocab().get(eos_token))
    elif inner.eos_token is not None:
        eos_token_id = _token_id(name, inner.eos_token, inner.eos_token_id)
    if inner.is_fast:
        return _FastTokenizer(name, inner.backend_tokenizer, eos_token_id)
    return _SlowTokenizer(name, inner, eos_token_id)


def _has_transformers() -> bool:
    import importlib.util

    return importlib.util.find_spec("transformers") is not None


def _not_loaded(name: str, error: Exception) -> DataError:
    return DataError(
        f"the tokenizer {name!r} could not be loaded: {str(error).strip()}",
        hint="What is neither a file nor a directory here is looked for on the Hugging Face hub. Where that cannot be "
        "reached, give the path of a tokenizer.json or of a directory that the tokenizer was saved in.",
    )


def _named_eos(folder: str) -> str | None:
    """The token that ends a text, from the files saved beside ``tokenizer.json``."""
    for name in _SETTINGS:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 - plain open is enough
                token = json.load(file).get("eos_token")
            if token is not None:
                return str(token["content"] if isinstance(token, dict) else token)
    return None


def _token_id(name: str, token: str, found: int | None) -> int:
    if found is None:
        raise DataError(f"the tokenizer {name!r} has no token {token!r}", hint="Give one of its tokens as eos_token.")
    return found


def _vocab_size(vocabulary: Mapping[str, int]) -> int:
    return max(vocabulary.values(), default=-1) + 1


def _batches(column: pa.Array | pa.ChunkedArray, batch_size: int) -> Iterator[list[str]]:
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    for start in range(0, len(column), batch_size):
        yield [text or "" for text in column.slice(start, batch_size).to_pylist()]
