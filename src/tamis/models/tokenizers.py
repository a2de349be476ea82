"""Tokenizers: load one from a file, a directory or a hub, and encode whole columns with it.

A ``tokenizer.json`` needs the package ``tokenizers`` alone, whose work runs outside Python's lock. What has no such
file (a vocabulary of another kind, code of its own) is loaded through ``transformers``, when that is installed.

WordPiece and byte-level byte pair encoding, which most models use, are done by native kernels with the same ids; see
:mod:`tamis.models.native_tokenizers`. The package does what they leave out.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, MissingExtraError
from tamis.models.native_tokenizers import NativeTokenizer, native_tokenizer

__all__ = ["Tokenizer", "load_tokenizer", "loaded_tokenizer"]

_FILE = "tokenizer.json"
_LISTS = pa.large_list(pa.int32())
_GUARD = threading.Lock()
_TEXTS = (pa.string(), pa.large_string())
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
        self,
        column: pa.Array | pa.ChunkedArray,
        *,
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
        batch_size: int = 1000,
    ) -> pa.LargeListArray:
        """The token ids of each text, as a list of ``int32``. A null has no tokens, as an empty text.

        Args:
            column: Texts.
            add_special_tokens: Whether to put the tokens around each text that the tokenizer has for this (such as
                ``[CLS]`` or ``<s>``).
            max_tokens: The most tokens of a text, with those around it; what is beyond is cut off. All if not given.
            batch_size: How many texts the package ``tokenizers`` encodes at once; what it finds on the way takes
                memory.
        """
        content = self._most_content(add_special_tokens, max_tokens)
        parts = [self._encode(texts, add_special_tokens, content, batch_size) for texts in _arrays(column)]
        return pa.concat_arrays(parts) if parts else pa.array([], _LISTS)

    def count_tokens(
        self,
        column: pa.Array | pa.ChunkedArray,
        *,
        add_special_tokens: bool = False,
        max_tokens: int | None = None,
        batch_size: int = 1000,
    ) -> NDArray[np.int64]:
        """How many tokens each text has. A null has none.

        Args:
            column: Texts.
            add_special_tokens: Whether to count the tokens that the tokenizer puts around each text.
            max_tokens: The most tokens that are counted, with those around the text. All if not given.
            batch_size: How many texts the package ``tokenizers`` encodes at once.
        """
        content = self._most_content(add_special_tokens, max_tokens)
        counts = [self._count(texts, add_special_tokens, content, batch_size) for texts in _arrays(column)]
        return np.concatenate([np.zeros(0, np.int64), *counts])

    def _most_content(self, add_special_tokens: bool, max_tokens: int | None) -> int | None:
        """The most tokens of the text itself."""
        if max_tokens is None:
            return None
        added = self._special_count() if add_special_tokens else 0
        if max_tokens < max(added, 1):
            raise ValueError(f"max_tokens={max_tokens}: must be at least 1, and the special tokens are {added}")
        return max_tokens - added

    def _encode(
        self, texts: pa.Array, add_special_tokens: bool, most_content: int | None, batch_size: int
    ) -> pa.LargeListArray:
        counts, ids = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for batch in _batches(texts, batch_size):
            found = self._ids(batch, add_special_tokens, most_content)
            counts.append(np.array([len(one) for one in found], np.int64))
            ids += found
        return pa.LargeListArray.from_arrays(np.cumsum(np.concatenate(counts)), np.concatenate(ids))

    def _count(
        self, texts: pa.Array, add_special_tokens: bool, most_content: int | None, batch_size: int
    ) -> NDArray[np.int64]:
        counts = [self._counts(batch, add_special_tokens, most_content) for batch in _batches(texts, batch_size)]
        return np.concatenate([np.zeros(0, np.int64), *counts])

    def _ids(self, texts: list[str], add_special_tokens: bool, most_content: int | None) -> list[NDArray[np.int32]]:
        raise NotImplementedError

    def _counts(self, texts: list[str], add_special_tokens: bool, most_content: int | None) -> NDArray[np.int64]:
        return np.array([len(ids) for ids in self._ids(texts, add_special_tokens, most_content)], np.int64)

    def _special_count(self) -> int:
        """How many tokens are put around a text."""
        raise NotImplementedError


class _FastTokenizer(Tokenizer):
    """One of the package ``tokenizers``."""

    def __init__(self, name: str, inner: Any, eos_token_id: int | None) -> None:
        super().__init__(name, _vocab_size(inner.get_vocab(with_added_tokens=True)), eos_token_id)
        # A tokenizer.json may ask for texts to be cut or filled up to the length of some model.
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner

    def _encode(
        self, texts: pa.Array, add_special_tokens: bool, most_content: int | None, batch_size: int
    ) -> pa.LargeListArray:
        native = self._ready(texts)
        if native is None:
            return super()._encode(texts, add_special_tokens, most_content, batch_size)
        found = native.tokenise(texts, add_special_tokens, most_content, is_kept=True)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(found.counts)])
        lists = pa.LargeListArray.from_arrays(offsets, found.ids)
        left_out = np.flatnonzero(found.left_out)
        if not len(left_out):
            return lists
        others = super()._encode(texts.take(pa.array(left_out)), add_special_tokens, most_content, batch_size)
        places = np.arange(len(texts))
        places[left_out] = len(texts) + np.arange(len(left_out))
        return pa.concat_arrays([lists, others]).take(pa.array(places))

    def _count(
        self, texts: pa.Array, add_special_tokens: bool, most_content: int | None, batch_size: int
    ) -> NDArray[np.int64]:
        native = self._ready(texts)
        if native is None:
            return super()._count(texts, add_special_tokens, most_content, batch_size)
        found = native.tokenise(texts, add_special_tokens, most_content, is_kept=False)
        left_out = np.flatnonzero(found.left_out)
        if len(left_out):
            others = texts.take(pa.array(left_out))
            found.counts[left_out] = super()._count(others, add_special_tokens, most_content, batch_size)
        return found.counts

    def _ready(self, texts: pa.Array) -> NativeTokenizer | None:
        """The same tokenizer for a kernel, if there is one, and it is compiled."""
        native = self._native if texts.type in _TEXTS else None
        return native if native is not None and native.is_ready() else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

    @property
    def _native(self) -> NativeTokenizer | None:
        with _GUARD:  # it takes a second for large vocabularies, so it is made once, and when it is needed
            if not hasattr(self, "_made"):
                self._made = native_tokenizer(self._inner)
            return self._made

    def _ids(self, texts: list[str], add_special_tokens: bool, most_content: int | None) -> list[NDArray[np.int32]]:
        return [np.array(one.ids, np.int32) for one in self._encodings(texts, add_special_tokens, most_content)]

    def _counts(self, texts: list[str], add_special_tokens: bool, most_content: int | None) -> NDArray[np.int64]:
        return np.array([len(one) for one in self._encodings(texts, add_special_tokens, most_content)], np.int64)

    def _encodings(self, texts: list[str], add_special_tokens: bool, most_content: int | None) -> list[Any]:
        if most_content is None:
            encoded: list[Any] = self._inner.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
            return encoded
        # The package cuts by a setting of the tokenizer, which other threads may be using.
        encoded = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        for one in encoded:
            one.truncate(most_content)
        return [self._inner.post_process(one) for one in encoded] if add_special_tokens else encoded

    def _special_count(self) -> int:
        return int(self._inner.num_special_tokens_to_add(is_pair=False))


class _SlowTokenizer(Tokenizer):
    """One of ``transformers`` that is written in Python."""

    def __init__(self, name: str, inner: Any, eos_token_id: int | None) -> None:
        super().__init__(name, _vocab_size(inner.get_vocab()), eos_token_id)
        inner.truncation_side = "right"
        self._inner = inner

    def _ids(self, texts: list[str], add_special_tokens: bool, most_content: int | None) -> list[NDArray[np.int32]]:
        cut: dict[str, Any] = {}
        if most_content is not None:
            added = self._special_count() if add_special_tokens else 0
            cut = {"truncation": True, "max_length": most_content + added}
        encoded = self._inner(texts, add_special_tokens=add_special_tokens, verbose=False, **cut)["input_ids"]
        return [np.array(ids, np.int32) for ids in encoded]

    def _special_count(self) -> int:
        return int(self._inner.num_special_tokens_to_add(pair=False))


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


def loaded_tokenizer(inner: Any) -> Tokenizer:
    """A tokenizer of the package ``tokenizers`` that a user has made: a copy, which neither cuts nor fills up texts.

    >>> from tokenizers import Tokenizer as Vocabulary, models
    >>> words = Vocabulary(models.WordLevel({"a": 0}, unk_token="a"))
    >>> loaded_tokenizer(words).count_tokens(pa.array(["a", ""])).tolist()
    [1, 0]
    """
    return _FastTokenizer("given", type(inner).from_str(inner.to_str()), None)


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
    if inner.is_fast and not set(inner.backend_tokenizer.get_vocab(False)) - set(inner.all_special_tokens):
        raise DataError(
            f"the tokenizer {name!r} has no vocabulary",
            hint="Are its files missing, such as tokenizer.json or vocab.txt? Fetch or save it again.",
        )
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
            try:
                with open(path, encoding="utf-8") as file:  # noqa: PTH123 - plain open is enough
                    token = json.load(file).get("eos_token")
            except (ValueError, AttributeError) as error:
                raise DataError(f"it is damaged: {error}", path=path) from None
            if token is not None:
                return str(token["content"] if isinstance(token, dict) else token)
    return None


def _token_id(name: str, token: str, found: int | None) -> int:
    if found is None:
        raise DataError(f"the tokenizer {name!r} has no token {token!r}", hint="Give one of its tokens as eos_token.")
    return found


def _vocab_size(vocabulary: Mapping[str, int]) -> int:
    return max(vocabulary.values(), default=-1) + 1


def _arrays(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    if pa.types.is_string_view(column.type) or pa.types.is_dictionary(column.type):
        column = column.cast(pa.large_string())
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _batches(texts: pa.Array, batch_size: int) -> Iterator[list[str]]:
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be at least 1")
    for start in range(0, len(texts), batch_size):
        yield [text or "" for text in texts.slice(start, batch_size).to_pylist()]
