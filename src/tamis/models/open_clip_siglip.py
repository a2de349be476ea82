"""The vision towers of SigLIP as open_clip saves them, under the names of timm, in the layout of ``transformers``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["is_siglip_tower", "siglip_tower"]

_NAME: Final = re.compile(r"vit_(base|large|so400m|giantopt)_patch(14|16|32)_siglip_(\d+)")
"""The networks that pool by attention; those named ``siglip_gap`` pool by the mean."""

_HEADS: Final = {"base": 12, "large": 16, "so400m": 16, "giantopt": 16}
_WITH_TANH: Final = re.compile(r"vit_(giantopt_|so400m_patch16_|base_patch32_|large_patch16_siglip_512)")
"""The networks that approximate GELU by tanh in timm."""

_NAMES: Final = {
    "patch_embed.proj": "embeddings.patch_embedding",
    "norm": "post_layernorm",
    "attn_pool.proj": "head.attention.out_proj",
    "attn_pool.norm": "head.layernorm",
    "attn_pool.mlp.fc1": "head.mlp.fc1",
    "attn_pool.mlp.fc2": "head.mlp.fc2",
}
_BLOCK: Final = {
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "attn.proj": "self_attn.out_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def is_siglip_tower(shape: Mapping[str, Any]) -> bool:
    """Whether the ``vision_cfg`` of a model is that of a SigLIP.

    >>> is_siglip_tower({"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map", "timm_proj": "none"})
    True
    """
    pools_by_attention = shape.get("timm_pool", "") in ("", "map")
    has_projection = shape.get("timm_proj", "linear") not in ("", "none", None)
    return bool(_NAME.fullmatch(str(shape.get("timm_model_name")))) and pools_by_attention and not has_projection


def siglip_tower(shape: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The network, a ``SiglipVisionModel`` without its weights, and its weights. ``KeyError`` if there is none of them.

    Args:
        shape: The ``vision_cfg`` of the model.
        tensors: Its tensors under the names of timm.
    """
    import torch
    import transformers

    name = str(shape["timm_model_name"])
    found = _NAME.fullmatch(name)
    assert found is not None  # is_siglip_tower() was asked
    width, _, patch_size, _ = tensors["patch_embed.proj.weight"].shape
    blocks = sorted({int(each.split(".")[1]) for each in tensors if each.startswith("blocks.")})
    network: Any = transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(
            hidden_size=width,
            intermediate_size=tensors["attn_pool.mlp.fc1.weight"].shape[0],
            num_hidden_layers=len(blocks),
            num_attention_heads=_HEADS[found[1]],
            image_size=int(shape.get("image_size", found[3])),
            patch_size=patch_size,
            hidden_act="gelu_pytorch_tanh" if _WITH_TANH.match(name) else "gelu",
            layer_norm_eps=1e-6,
        )
    )
    made: dict[str, Any] = {
        "embeddings.position_embedding.weight": tensors["pos_embed"][0],
        "head.probe": tensors["attn_pool.latent"],
    }
    for part in ("weight", "bias"):
        for theirs, ours in _NAMES.items():
            made[f"{ours}.{part}"] = tensors[f"{theirs}.{part}"]
        together = torch.cat([tensors[f"attn_pool.q.{part}"], tensors[f"attn_pool.kv.{part}"]])
        made[f"head.attention.in_proj_{part}"] = together
        for number in blocks:
            source, target = f"blocks.{number}", f"encoder.layers.{number}"
            for theirs, ours in _BLOCK.items():
                made[f"{target}.{ours}.{part}"] = tensors[f"{source}.{theirs}.{part}"]
            for letter, own in zip("qkv", tensors[f"{source}.attn.qkv.{part}"].chunk(3), strict=True):
                made[f"{target}.self_attn.{letter}_proj.{part}"] = own.contiguous()
    prefix = "vision_model." if any(each.startswith("vision_model.") for each in network.state_dict()) else ""
    return network, {prefix + each: tensor for each, tensor in made.items()}
