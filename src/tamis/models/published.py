"""Networks as ``PyTorchModelHubMixin`` saves them: a ``config.json`` of their own and tensors by name.

``transformers`` cannot load such a model by itself. Its backbone is built from the configuration of the model that it
was made of, and all its tensors, those of the backbone as well, come from the files of the model itself.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tamis.errors import MissingExtraError, ModelError
from tamis.models.model import Model

if TYPE_CHECKING:
    import torch

__all__ = [
    "backbone_positions",
    "build_backbone",
    "fill",
    "is_sequence_classifier",
    "labels_of",
    "load_tensors",
    "read_config",
]

_DEBERTA_V3: Final = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "norm_rel_ebd": "layer_norm",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
_BACKBONES: Final[dict[str, dict[str, Any]]] = {
    "microsoft/deberta-v3-base": _DEBERTA_V3,
    "microsoft/mdeberta-v3-base": {**_DEBERTA_V3, "vocab_size": 251000},
}
"""The shapes of the backbones of the published classifiers: then nothing but the classifier has to be fetched."""

_USUAL_POSITIONS: Final = 512
"""Those of a backbone whose configuration is elsewhere."""

_OF_NO_WEIGHT: Final = ".position_ids"
"""How tensors of older files end that hold numbers in a row: newer versions of ``transformers`` do not load them."""


def read_config(model: Model) -> dict[str, Any]:
    """The ``config.json`` of a model that is on this machine."""
    path = Path(model.folder()) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"the model {model.name} has no config.json in {path.parent}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is damaged: it holds no JSON object")
    return config


def labels_of(config: Mapping[str, Any], name: str) -> list[str]:
    """The labels of a classifier, in the order of its outputs.

    Args:
        config: Its ``config.json``: ``label2id`` or ``id2label`` is read, whichever way round it is.
        name: The name of the model, for error messages.

    >>> labels_of({"id2label": {"0": "High", "1": "Low"}}, "m"), labels_of({"label2id": {"b": 1, "a": 0}}, "m")
    (['High', 'Low'], ['a', 'b'])
    """
    given = config.get("label2id") or config.get("id2label")
    if not given and is_sequence_classifier(config):
        return ["LABEL_0", "LABEL_1"]  # as transformers has it, which leaves out what is its default
    if not isinstance(given, Mapping) or not given:
        raise ModelError(f"the model {name} is not a classifier: its config.json names no labels (label2id, id2label)")
    numbered = {}
    for key, value in given.items():
        by_label = isinstance(value, int)
        try:
            numbered[int(value if by_label else key)] = str(key if by_label else value)
        except ValueError:
            raise ModelError(f"the model {name}: the labels in its config.json have no numbers: {given}") from None
    if sorted(numbered) != list(range(len(numbered))) or len(numbered) != len(given):
        raise ModelError(f"the model {name}: the labels in its config.json are not numbered from 0: {given}")
    return [numbered[number] for number in range(len(numbered))]


def is_sequence_classifier(config: Mapping[str, Any]) -> bool:
    """Whether a model is one that ``AutoModelForSequenceClassification`` loads.

    >>> is_sequence_classifier({"architectures": ["BertForSequenceClassification"]})
    True
    """
    return any(str(kind).endswith("ForSequenceClassification") for kind in config.get("architectures") or ())


def build_backbone(config: Mapping[str, Any], model: Model) -> Any:
    """The transformer that a published network stands on, without its weights.

    Its configuration is that of ``base_model``: a folder, a well-known name, or a name on the hub.

    Args:
        config: The ``config.json`` of the network.
        model: The network, for its folder, its token and error messages.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(f"the model {model.name}", package="transformers", extra="models") from error
    shape = _shape_of_backbone(config, model)
    try:
        kind: Any = transformers.AutoModel
        return kind.from_config(transformers.AutoConfig.for_model(**shape))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the model {model.name}: its backbone cannot be built: {error}") from error


def _shape_of_backbone(config: Mapping[str, Any], model: Model) -> dict[str, Any]:
    if "hidden_size" in config and "model_type" in config:
        return dict(config)
    base = config.get("base_model")
    if not isinstance(base, str) or not base:
        raise ModelError(f"the model {model.name}: its config.json has no base_model, the name of its backbone")
    known = _BACKBONES.get(base.lower())
    beside = os.path.join(model.folder(), base)
    if known is not None and not os.path.isdir(beside):
        return dict(known)
    source = Model(beside if os.path.isdir(beside) else base, cache_dir=model.cache_dir, token=model.token)
    try:
        source.fetch()
    except ModelError as error:
        raise ModelError(f"the model {model.name} needs the configuration of its backbone: {error}") from error
    return read_config(source)


def backbone_positions(config: Mapping[str, Any], folder: str) -> int | None:
    """The positions of the backbone that a ``config.json`` names; ``None`` if it names none.

    Args:
        config: The ``config.json`` of the network.
        folder: The folder that it is in.

    >>> backbone_positions({"base_model": "microsoft/deberta-v3-base"}, "."), backbone_positions({}, ".")
    (512, None)
    """
    base = config.get("base_model")
    if not isinstance(base, str):
        return None
    shape = _BACKBONES.get(base.lower(), {})
    with contextlib.suppress(OSError, ValueError):
        shape = json.loads((Path(folder) / base / "config.json").read_text(encoding="utf-8"))
    return int(shape.get("max_position_embeddings") or _USUAL_POSITIONS)


def load_tensors(model: Model) -> dict[str, torch.Tensor]:
    """All tensors of a model that is on this machine, by name."""
    folder = Path(model.folder())
    files = sorted(folder.glob("*.safetensors"))
    if not files and not model.allow_pickle:
        raise ModelError(
            f"the model {model.name} has no weights as safetensors in {folder}. Weights in pickled files, which can "
            "run any code, are only loaded by Model(..., allow_pickle=True)"
        )
    try:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingExtraError(f"the model {model.name}", package="safetensors", extra="models") from error
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            tensors.update(load_file(file))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{file} is damaged or cut off: {error}. Fetch the model again") from error
    for file in [] if files else sorted(folder.glob("*.bin")):
        tensors.update(torch.load(file, map_location="cpu", weights_only=True))
    return tensors


def fill(network: Any, tensors: Mapping[str, torch.Tensor], model: Model) -> Any:
    """Give a network its tensors, and make it ready to compute. Names and shapes must be those of the network."""
    wanted = network.state_dict()
    unknown = [name for name in tensors if name not in wanted and not name.endswith(_OF_NO_WEIGHT)]
    missing = [name for name in wanted if name not in tensors and not name.endswith(_OF_NO_WEIGHT)]
    for problem, names in (("has no tensor", missing), ("has tensors that do not belong to it:", unknown)):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise ModelError(f"the model {model.name} {problem} {shown}: its files belong to another kind of model")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name in wanted}
    wrong = [name for name, shape in shapes.items() if shape != tuple(wanted[name].shape)]
    if wrong:
        name = wrong[0]
        raise ModelError(
            f"the model {model.name}: its tensor {name} has the shape {shapes[name]}, but its config.json asks for "
            f"{tuple(wanted[name].shape)}"
        )
    network.load_state_dict({name: tensor for name, tensor in tensors.items() if name in wanted}, strict=False)
    return network.eval()
