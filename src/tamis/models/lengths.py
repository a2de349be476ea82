"""How many tokens of a text a model looks at, told from the files beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tamis.errors import ModelError
from tamis.models.image_preprocessing import OPEN_CLIP_CONFIG
from tamis.models.published import backbone_positions

__all__ = ["model_config", "most_tokens", "tokenizer_settings"]

_UNLIMITED: Final = 100_000
"""Tokenizers without a limit name an absurd one."""

_AFTER_PADDING: Final = {
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "longformer",
    "esm",
    "data2vec-text",
    "ibert",
    "luke",
    "roberta-prelayernorm",
    "xmod",
}
"""Kinds of models whose positions begin after that of the padding token."""

_NAMED_OTHERWISE: Final = {"codegen", "gpt2", "gpt_bigcode", "gptj", "openai-gpt"}
"""Kinds of models that call the number of their positions ``n_positions``."""

_USUAL: Final = {"clip": 77, "clip_text_model": 77, "siglip": 64, "siglip_text_model": 64}
"""The positions of kinds of models that leave them out of their configuration where they are the usual ones."""


def most_tokens(folder: str) -> int | None:
    """The most tokens of a text that a model looks at, those around the text included; ``None`` if it names no limit.

    What sentence-transformers was told comes first, then what the tokenizer says, then the positions of the model.

    Args:
        folder: The folder of the model.
    """
    sentence = _read(Path(folder) / "sentence_bert_config.json").get("max_seq_length")
    if isinstance(sentence, int):
        return sentence
    config = model_config(folder)
    config = {**config, **config.get("text_config", {})} if isinstance(config.get("text_config"), dict) else config
    places = config.get("max_position_embeddings", backbone_positions(config, folder))
    if places is None and config.get("model_type") in _NAMED_OTHERWISE:
        places = config.get("n_positions", 1024)
    if places is None:
        open_clip = _read(Path(folder) / OPEN_CLIP_CONFIG).get("model_cfg", {}).get("text_cfg", {})
        places = open_clip.get("context_length", _USUAL.get(str(config.get("model_type"))))
    if isinstance(places, int) and config.get("model_type") in _AFTER_PADDING:
        places -= int(config.get("pad_token_id") or 0) + 1
    named = tokenizer_settings(folder).get("model_max_length")
    limits = [limit for limit in (named, places) if isinstance(limit, int | float) and 0 < limit < _UNLIMITED]
    return int(min(limits)) if limits else None


def model_config(folder: str) -> dict[str, Any]:
    """The ``config.json`` of a model, or of the transformer of a sentence-transformers folder; empty if it has none."""
    for place in (Path(folder), Path(folder) / "0_Transformer"):
        found = _read(place / "config.json")
        if found:
            return found
    return {}


def tokenizer_settings(folder: str) -> dict[str, Any]:
    """The ``tokenizer_config.json`` of a folder; empty if it has none."""
    return _read(Path(folder) / "tokenizer_config.json")


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged: {error}. Fetch or bundle the model again") from None
    return found if isinstance(found, dict) else {}
