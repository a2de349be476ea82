"""Low-rank adapters (LoRA, Hu et al., 2021) as ``peft`` saves them: added to the weights of the model they belong to.

With ``W + scale * B A`` in the place of ``W`` the model computes what it does with the adapter beside it, without its
cost, and without ``peft``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tamis.errors import ModelError
from tamis.models.model import Model
from tamis.models.published import load_tensors

if TYPE_CHECKING:
    import torch

__all__ = ["merge_adapter"]

_PREFIX: Final = "base_model.model."
_PARTS: Final = re.compile(r"(?P<module>.+)\.(?P<part>lora_A|lora_B)(\.default)?\.weight")
_REPLACED: Final = re.compile(r"(?P<module>.+?)(\.modules_to_save)?(\.default)?\.(?P<tensor>weight|bias)")
_REFUSED: Final = ("use_dora", "lora_bias", "megatron_config", "layer_replication", "trainable_token_indices")


def merge_adapter(network: Any, adapter: Model) -> None:
    """Add an adapter to the weights of a network, in place.

    Args:
        network: A model of ``transformers``, with weights.
        adapter: A folder or name with ``adapter_config.json`` and ``adapter_model.safetensors``, on this machine.
    """
    config = _read_config(adapter)
    import torch  # the network is of torch, so it is there

    factors: dict[str, dict[str, torch.Tensor]] = {}
    with torch.no_grad():
        for name, tensor in load_tensors(adapter).items():
            found = _PARTS.fullmatch(name)
            if found:
                factors.setdefault(found["module"], {})[found["part"]] = tensor
            else:
                _replace(network, name, tensor, adapter)
        if not factors:
            raise ModelError(f"the adapter {adapter.name} has no low-rank tensors (lora_A, lora_B)")
        for path, parts in factors.items():
            if set(parts) != {"lora_A", "lora_B"}:
                raise ModelError(f"the adapter {adapter.name} has only {', '.join(parts)} for {path}: it is incomplete")
            weight = _parameter(network, path, "weight", adapter)
            scale = _scale(config, path.removeprefix(_PREFIX), int(parts["lora_A"].shape[0]))
            change = scale * (parts["lora_B"].float() @ parts["lora_A"].float())
            _check_shape(change, weight, path, adapter)
            weight.copy_((weight.float() + change.to(weight.device)).to(weight.dtype))


def _read_config(adapter: Model) -> dict[str, Any]:
    path = Path(adapter.folder()) / "adapter_config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = str(config.get("peft_type", "LORA"))
    except FileNotFoundError:
        raise ModelError(f"the model {adapter.name} is not an adapter: it has no adapter_config.json") from None
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    refused = [name for name in _REFUSED if config.get(name)]
    if config.get("fan_in_fan_out"):
        refused.append("fan_in_fan_out")
    if kind.upper() != "LORA" or refused or config.get("bias", "none") != "none":
        what = ", ".join(refused) or (f"bias={config['bias']!r}" if kind.upper() == "LORA" else kind)
        raise ModelError(
            f"the adapter {adapter.name} is of a kind that is not known here ({what}). Merge it into its model with "
            "peft (merge_and_unload), save that, and give its folder"
        )
    return config


def _scale(config: dict[str, Any], module: str, rank: int) -> float:
    """How strongly a product of factors counts: ``alpha / rank``, or by its root for rank-stabilised adapters."""
    alpha = _for_module(config.get("alpha_pattern") or {}, module, config.get("lora_alpha", 8))
    return float(alpha) / (rank**0.5 if config.get("use_rslora") else rank)


def _for_module(patterns: dict[str, Any], module: str, otherwise: Any) -> Any:
    for pattern, value in patterns.items():
        if re.fullmatch(rf"(.*\.)?({pattern})", module):
            return value
    return otherwise


def _replace(network: Any, name: str, tensor: torch.Tensor, adapter: Model) -> None:
    """Put in a whole tensor that the adapter brings (``modules_to_save``)."""
    found = _REPLACED.fullmatch(name)
    if found is None:
        raise ModelError(f"the adapter {adapter.name} has a tensor {name}, which is not known here")
    parameter = _parameter(network, found["module"], found["tensor"], adapter)
    _check_shape(tensor, parameter, name, adapter)
    parameter.copy_(tensor.to(parameter.device, parameter.dtype))


def _parameter(network: Any, path: str, tensor: str, adapter: Model) -> torch.Tensor:
    """A weight of the network, by the name that ``peft`` has for it."""
    try:
        parameter: torch.Tensor = getattr(network.get_submodule(path.removeprefix(_PREFIX)), tensor)
    except AttributeError:
        raise ModelError(
            f"the adapter {adapter.name} changes {path.removeprefix(_PREFIX)}, which the model does not have: it "
            "belongs to another model"
        ) from None
    return parameter


def _check_shape(made: torch.Tensor, weight: torch.Tensor, name: str, adapter: Model) -> None:
    if made.shape != weight.shape:
        raise ModelError(
            f"the adapter {adapter.name}: {name} is for a weight of the shape {tuple(made.shape)}, the model's has "
            f"{tuple(weight.shape)}: it belongs to another model"
        )
