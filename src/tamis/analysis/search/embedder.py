"""The stage that made the embeddings of some files, and the embedding of a text by it.

``RUN.json``, which a run writes beside its output, holds the recipe of the run. Only the stage with the embeddings is
made of it, only if it is one of tamis, and not if it could run code that comes with a model: the files may be from
elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import DataError, PlanError, RecipeError, TamisError
from tamis.pipeline.catalogue import find, is_builtin
from tamis.pipeline.recipe_build import build_stage
from tamis.pipeline.recipe_nodes import Node, parse_yaml
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.io.paths import join, open_read, parent
from tamis.stages.vectors import vectors_of
from tamis.tasks import DocumentBatch

__all__ = ["embed_text", "recorded_stage", "same_embedding"]

_RECORD: Final = "RUN.json"
_MOST_BYTES: Final = 16 << 20
_UNSAFE: Final = ("trust_remote_code", "allow_pickle", "transformers_init_kwargs", "vllm_init_kwargs", "runtime_env")
_NOT_OF_VECTORS: Final = ("text_field", "embedding_field", "resources", "name")

Stage = ProcessingStage[Any, Any]


def recorded_stage(files: Iterable[str], embedding_field: str) -> Stage | None:
    """The stage that made the embeddings of some files, if the runs that wrote them say so.

    Args:
        files: The files.
        embedding_field: The column with the embeddings.

    Raises:
        DataError: The files are from runs with different stages, or a stage is not safe to make of a file.
    """
    known: tuple[str, Stage] | None = None
    for folder in sorted({parent(file) for file in files}):
        path = join(folder, _RECORD)
        stage = _stage_of(path, embedding_field)
        if stage is None:
            continue
        if known is not None and not same_embedding(stage, known[1]):
            raise DataError(
                f"its embeddings were made by {stage!r}, and those of {known[0]} by {known[1]!r}: they cannot be "
                "compared",
                path=path,
                hint="Search them one at a time.",
            )
        known = known or (path, stage)
    return None if known is None else known[1]


def same_embedding(one: Stage, other: Stage) -> bool:
    """Whether two stages make the same vectors.

    >>> from tamis.stages.text.embedders import HashedEmbeddingStage
    >>> same_embedding(HashedEmbeddingStage("body"), HashedEmbeddingStage("text"))
    True
    >>> same_embedding(HashedEmbeddingStage(seed=1), HashedEmbeddingStage(seed=2))
    False
    """
    return type(one) is type(other) and _settings(one) == _settings(other)


def embed_text(stage: Stage, text: str) -> NDArray[np.float32]:
    """The embedding of a text.

    Args:
        stage: What makes embeddings, with the fields ``text_field`` and ``embedding_field``.
        text: The text.

    Raises:
        DataError: The stage gives it none, as for a text without words.
    """
    text_field, embedding_field = (getattr(stage, name, None) for name in ("text_field", "embedding_field"))
    if not isinstance(text_field, str) or not isinstance(embedding_field, str):
        raise PlanError(f"{stage!r} is not a stage that makes embeddings of texts: it has no embedding_field")
    batches: list[Any] = [DocumentBatch({text_field: [text]})]
    for part in _parts(stage):
        part.setup_on_node()
        part.setup()
        batches = [made for made in part.process_batch(batches) if isinstance(made, DocumentBatch)]
    rows = [batch for batch in batches if batch.num_items]
    vectors, missing = vectors_of(rows[0].data[embedding_field], embedding_field) if rows else (None, None)
    if vectors is None or missing is None or missing[0] or not vectors[0].any():
        raise DataError(f"{stage.name} has no embedding for the text {text!r}", hint="Give a text with words.")
    vector: NDArray[np.float32] = vectors[0]
    return vector


def _parts(stage: Stage) -> Iterator[Stage]:
    if isinstance(stage, CompositeStage):
        for part in stage.decompose():
            yield from _parts(part)
    else:
        yield stage


def _settings(stage: Stage) -> dict[str, str]:
    return {name: repr(value) for name, value in stage.parameters().items() if name not in _NOT_OF_VECTORS}


def _stage_of(path: str, embedding_field: str) -> Stage | None:
    """The stage in the recipe of one record that makes a column."""
    try:
        with open_read(path) as file:
            recorded = json.loads(file.read(_MOST_BYTES))
        recipe = parse_yaml(recorded["recipe"], path)
    except (OSError, ValueError, KeyError, TypeError, TamisError):
        return None  # there is none, or it is not ours: the user says which stage it was
    found = [node for node in _stages(recipe) if _makes(node, embedding_field)]
    if not found:
        return None
    unsafe = sorted({name for name in _names(found[-1]) if name in _UNSAFE})
    if unsafe:
        raise DataError(
            f"the stage that made its embeddings has {', '.join(unsafe)}, which may run code: it is not made of a file",
            path=path,
            hint="Give the stage yourself: search(..., stage=...), tamis search --stage.",
        )
    return build_stage(found[-1])


def _stages(node: Node) -> Iterator[Node]:
    """Every value of a recipe that may be a stage, ``Name`` or ``Name: {parameters}``, in order."""
    if isinstance(node.value, list):
        for item in node.value:
            yield from _stages(item)
    elif isinstance(node.value, dict):
        for key, value in node.value.items():
            if isinstance(key, str) and key[:1].isupper():
                yield node
            yield from _stages(value)
    elif isinstance(node.value, str) and node.value[:1].isupper():
        yield node


def _makes(node: Node, embedding_field: str) -> bool:
    name, parameters = node.value, None
    if isinstance(node.value, dict):
        name, parameters = next(iter(node.value.items()))
    if not isinstance(name, str) or not name.isidentifier():
        return False  # an import path would run code
    try:
        cls = find(name)
    except RecipeError:
        return False
    if not is_builtin(cls) or not issubclass(cls, ProcessingStage):
        return False
    fields = getattr(cls, "__dataclass_fields__", {})
    if "embedding_field" not in fields or "text_field" not in fields:
        return False
    given = parameters.plain() if isinstance(parameters, Node) else None
    named = given.get("embedding_field") if isinstance(given, dict) else None
    return bool((named or fields["embedding_field"].default) == embedding_field)


def _names(node: Node) -> Iterator[str]:
    """The names of all parameters that are given and not off."""
    for item in node.value if isinstance(node.value, list) else []:
        yield from _names(item)
    for key, value in node.value.items() if isinstance(node.value, dict) else []:
        if value.value not in (None, False):
            yield str(key)
        yield from _names(value)
