"""Models with one vector for each token, and nothing else: the vector of a text is the mean of those of its tokens.

They are found in the package ``wordllama``, in folders and on the hub (model2vec, or a ``StaticEmbedding`` of
sentence-transformers): weights as safetensors and a ``tokenizer.json``. The vectors are those that the libraries make.
"""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import MissingExtraError, ModelError
from tamis.kernels.token_means import token_means
from tamis.models.model import Model
from tamis.models.tokenizers import Tokenizer, load_tokenizer

__all__ = ["WORDLLAMA", "StaticModel", "load_static_model"]

WORDLLAMA: Final = "wordllama"
"""The name of the model that the package ``wordllama`` carries."""

_EXTRA: Final = "static-embeddings"
_NO_LIMIT: Final = 1 << 40
_MODEL2VEC_TOKENS: Final = 512  # its limit where the model names none
_ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True)
class StaticModel:
    """A model with a vector for each token. Made by :func:`load_static_model`.

    Args:
        name: Where it was loaded from.
        vectors: One in each row.
        counted: For each token 1, or 0 if it is left out of the mean.
        tokenizer: What finds the tokens.
        most_tokens: The most tokens of a text that the model looks at; no limit when not given.
        most_characters: The most characters of a text that the model looks at; no limit when not given.
    """

    name: str
    vectors: NDArray[np.float32]
    counted: NDArray[np.uint8]
    tokenizer: Tokenizer
    most_tokens: int | None = None
    most_characters: int | None = None

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return int(self.vectors.shape[1])

    def embed(
        self, texts: pa.Array | pa.ChunkedArray, *, normalize: bool = True, most_tokens: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The vector of each text, and of how many tokens it is the mean. A text without tokens has zeros.

        Args:
            texts: Of type ``string`` or ``large_string``. A null counts as an empty text.
            normalize: Whether vectors have length 1.
            most_tokens: How many tokens of a text are looked at; what the model says when not given.
        """
        limit = self.most_tokens if most_tokens is None else most_tokens
        made, used = [np.zeros((0, self.dim), np.float32)], [np.zeros(0, np.int64)]
        for start in range(0, len(texts), _ROWS_AT_ONCE):
            part = texts.slice(start, _ROWS_AT_ONCE)
            if self.most_characters is not None and most_tokens is None:
                part = pc.utf8_slice_codeunits(part, 0, self.most_characters)
            tokens = self.tokenizer.encode_column(part)
            vectors, counts = token_means(
                numpy_array(tokens.values),
                numpy_array(tokens.offsets),
                self.vectors,
                self.counted,
                most_tokens=_NO_LIMIT if limit is None else limit,
                normalize=normalize,
            )
            made.append(vectors)
            used.append(counts)
        return np.concatenate(made), np.concatenate(used)


def load_static_model(model: str | Model, dim: int | None = None) -> StaticModel:
    """Load a model with static vectors. Needs ``tamis[static-embeddings]``.

    Args:
        model: ``"wordllama"`` for the one in the package of that name, a folder, or a name on the hub.
        dim: Only the first so many entries of each vector, for models that are trained for it; all when not given.

    >>> load_static_model("wordllama", dim=64).embed(pa.array(["some text"]))[0].shape
    (1, 64)
    """
    name = model if isinstance(model, str) else model.name
    found = _wordllama() if name == WORDLLAMA else _model2vec(model if isinstance(model, Model) else Model(model))
    if dim is None or dim == found.dim:
        return found
    if not 1 <= dim <= found.dim:
        raise ValueError(f"dim = {dim} is not between 1 and {found.dim}, the length of the vectors of {found.name}")
    vectors = np.ascontiguousarray(found.vectors[:, :dim])
    return StaticModel(name, vectors, found.counted, found.tokenizer, found.most_tokens, found.most_characters)


def _wordllama() -> StaticModel:
    package = importlib.util.find_spec(WORDLLAMA)
    if package is None or not package.submodule_search_locations:
        raise MissingExtraError("the model wordllama", package="wordllama", extra=_EXTRA)
    folder = Path(next(iter(package.submodule_search_locations)))
    weights = sorted((folder / "weights").glob("*_256.safetensors"))
    tokenizers = sorted((folder / "tokenizers").glob("*_tokenizer_config.json"))
    if not weights or not tokenizers:
        raise ModelError(
            f"the package wordllama in {folder} has no weights inside. Install a version that has: 'wordllama>=0.4'"
        )
    vectors = _tensors(weights[0])["embedding.weight"].astype(np.float32)
    return StaticModel(WORDLLAMA, vectors, np.ones(len(vectors), np.uint8), load_tokenizer(str(tokenizers[0])))


def _model2vec(model: Model) -> StaticModel:
    folder = Path(model.fetch())
    inner = folder / "0_StaticEmbedding"
    home = inner if (inner / "model.safetensors").exists() else folder
    weights, tokenizer = home / "model.safetensors", home / "tokenizer.json"
    for file in (weights, tokenizer):
        if not file.exists():
            raise ModelError(
                f"the model {model.name} has no static vectors: there is no {file.name} in {home}. A folder of "
                "model2vec, or of a StaticEmbedding of sentence-transformers, has one"
            )
    model.check()
    tensors = _tensors(weights)
    table = tensors.get("embeddings", tensors.get("embedding.weight"))
    if table is None or table.ndim != 2:
        raise ModelError(
            f"the model {model.name} has no static vectors: {weights} holds {', '.join(sorted(tensors)) or 'nothing'}"
        )
    vectors = table.astype(np.float32)
    if "mapping" in tensors:
        vectors = vectors[tensors["mapping"]]
    if "weights" in tensors:
        vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
    described = json.loads(tokenizer.read_text(encoding="utf-8"))
    vocabulary = _vocabulary(described)
    if len(vocabulary) > len(vectors):
        raise ModelError(
            f"the model {model.name} has {len(vectors)} vectors for {len(vocabulary)} tokens: it is damaged"
        )
    counted = np.ones(len(vectors), np.uint8)
    most_tokens = None
    if "embeddings" in tensors:  # model2vec leaves unknown words out and has a limit; sentence-transformers does not
        unknown = _unknown_token(described, vocabulary)
        if unknown is not None:
            counted[unknown] = 0
        config = home / "config.json"
        settings = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
        most_tokens = settings.get("max_length", _MODEL2VEC_TOKENS)
    lengths = [len(token) for token in vocabulary]
    characters = None if most_tokens is None else most_tokens * int(np.median(lengths))
    return StaticModel(model.name, vectors, counted, load_tokenizer(str(tokenizer)), most_tokens, characters)


def _tensors(path: Path) -> dict[str, NDArray[Any]]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError as error:
        raise MissingExtraError("static embeddings", package="safetensors", extra=_EXTRA) from error
    try:
        tensors: dict[str, NDArray[Any]] = load_file(os.fspath(path))
    except (OSError, SafetensorError, TypeError, KeyError) as error:
        raise ModelError(f"{path} cannot be read: it is damaged, or holds numbers of another kind ({error})") from error
    return tensors


def _vocabulary(described: dict[str, Any]) -> dict[str, int]:
    """The tokens of a ``tokenizer.json``, with those added to the vocabulary."""
    listed = described["model"].get("vocab", {})
    if isinstance(listed, list):  # of pairs of a token and its likelihood
        listed = {entry[0]: number for number, entry in enumerate(listed)}
    return {**listed, **{token["content"]: token["id"] for token in described.get("added_tokens") or []}}


def _unknown_token(described: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    """The id of the token that stands for what is not in the vocabulary."""
    model = described["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    return vocabulary.get(model.get("unk_token") or "")
