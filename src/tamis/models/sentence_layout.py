"""What a folder says about turning texts into vectors: how tokens are pooled, and what follows.

Folders of sentence-transformers name their steps in ``modules.json``: a transformer, pooling, then dense layers, layer
norms or a normalisation. A folder without that file is a plain transformer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, ModelError
from tamis.models.model import Model

__all__ = ["POOLINGS", "SentenceLayout", "Step", "pooling_named", "read_layout"]

POOLINGS: Final = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""The kinds of pooling, in the order in which their vectors are joined."""

_OTHER_NAMES: Final = {
    "cls_token": "cls",
    "first": "cls",
    "last": "lasttoken",
    "last_token": "lasttoken",
    "max_tokens": "max",
    "mean_pooling": "mean",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
}


@dataclass(frozen=True)
class Step:
    """What is done to the pooled vectors.

    Args:
        kind: ``"dense"``, ``"norm"`` (a layer norm) or ``"normalize"`` (to length 1).
        weights: Its weights by name.
        activation: Of a dense layer, the name of the class of PyTorch that follows it.
        epsilon: Of a layer norm, what is added to the variance.
        has_residual: Of a dense layer, whether its input is added to its output.
    """

    kind: str
    weights: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)
    activation: str = "Identity"
    epsilon: float = 1e-5
    has_residual: bool = False


@dataclass(frozen=True)
class SentenceLayout:
    """How the texts of a folder's model become vectors.

    Args:
        transformer: The folder with the transformer and its tokenizer.
        pooling: How the states of the tokens become one vector; several are joined.
        steps: What follows.
        prompt: What is put before each text.
        lower_case: Whether texts are made lower case.
    """

    transformer: str
    pooling: tuple[str, ...] = ("mean",)
    steps: tuple[Step, ...] = ()
    prompt: str = ""
    lower_case: bool = False


def read_layout(model: Model, *, weights: bool = True) -> SentenceLayout:
    """Read what the files of a model say. Raises ``ModelError`` for steps that tamis does not have.

    Args:
        model: The model, which is on this machine.
        weights: Whether the weights of the steps are wanted.
    """
    folder = Path(model.folder())
    if not (folder / "modules.json").is_file():
        return SentenceLayout(str(folder))
    transformer, steps = folder, []
    pooling: tuple[str, ...] = ("mean",)
    for module in _read(folder / "modules.json"):
        kind, place = str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))
        if kind == "Transformer":
            transformer = place
        elif kind == "Pooling":
            pooling = _pooling(_read(place / "config.json"), place)
        elif kind == "Dense":
            steps.append(_dense(model, place, weights=weights))
        elif kind == "LayerNorm":
            steps.append(Step("norm", _weights(model, place) if weights else {}))
        elif kind == "Normalize":
            steps.append(Step("normalize"))
        elif kind != "Dropout":
            raise ModelError(
                f"the model {model.name} has a step {kind!r} in modules.json that tamis does not have: only "
                "Transformer, Pooling, Dense, LayerNorm, Normalize"
            )
    whole = folder / "config_sentence_transformers.json"
    settings = _read(whole) if whole.is_file() else {}
    own = transformer / "sentence_bert_config.json"
    lower_case = bool(_read(own).get("do_lower_case")) if own.is_file() else False
    prompt = settings.get("prompts", {}).get(settings.get("default_prompt_name") or "") or ""
    return SentenceLayout(str(transformer), pooling, tuple(steps), prompt, lower_case)


def pooling_named(name: str) -> str:
    """A kind of pooling by any of its names.

    >>> pooling_named("mean_pooling"), pooling_named("last_token"), pooling_named("cls")
    ('mean', 'lasttoken', 'cls')
    """
    found = _OTHER_NAMES.get(name, name)
    if found not in POOLINGS:
        raise ValueError(f"pooling {name!r}: give one of mean_pooling, last_token, cls, {', '.join(POOLINGS[1:])}")
    return found


def _pooling(config: dict[str, Any], place: Path) -> tuple[str, ...]:
    if config.get("include_prompt") is False:
        raise ModelError(f"{place} leaves the prompt out of the pooling, which tamis does not do")
    named = config.get("pooling_mode")
    if named is None:
        prefix = "pooling_mode_"
        named = [pooling_named(key.removeprefix(prefix)) for key, on in config.items() if key.startswith(prefix) and on]
        return tuple(kind for kind in POOLINGS if kind in named) or ("mean",)
    return tuple(pooling_named(kind) for kind in ([named] if isinstance(named, str) else named))


def _dense(model: Model, place: Path, *, weights: bool) -> Step:
    config = _read(place / "config.json")
    if "token_embeddings" in (config.get("module_input_name"), config.get("module_output_name")):
        raise ModelError(f"{place} works on tokens, not on the vectors of texts, which tamis does not do")
    activation = str(config.get("activation_function") or "Identity").rpartition(".")[2]
    residual = bool(config.get("use_residual"))
    return Step("dense", _weights(model, place) if weights else {}, activation, has_residual=residual)


def _weights(model: Model, place: Path) -> dict[str, NDArray[np.float32]]:
    safe, pickled = place / "model.safetensors", place / "pytorch_model.bin"
    try:
        if safe.is_file():
            from safetensors.numpy import load_file

            found: dict[str, Any] = load_file(safe)
        elif pickled.is_file() and model.allow_pickle:
            import torch

            found = {name: value.float().numpy() for name, value in torch.load(pickled, weights_only=True).items()}
        else:
            kept = f", only {pickled.name}, which Model(..., allow_pickle=True) allows" if pickled.is_file() else ""
            raise ModelError(f"{place} has no model.safetensors{kept}")
    except ImportError as error:
        raise MissingExtraError(f"the model {model.name}", package="safetensors", extra="models") from error
    except ModelError:
        raise
    except Exception as error:  # safetensors raises a class of its own for whatever is wrong with a file
        raise ModelError(f"the weights in {place} cannot be read: {error}") from error
    return {name: np.asarray(value, np.float32) for name, value in found.items()}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Fetch or bundle the model again") from None
