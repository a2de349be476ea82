"""Models as open_clip saves them, brought into the layout of ``transformers``.

A folder has ``open_clip_config.json``, which describes the towers, and the tensors of both under open_clip's names. The
networks are the same as those of CLIP in ``transformers``; names differ, the three projections of attention are one
matrix there, and projections are the other way round. open_clip itself is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tamis.errors import ModelError
from tamis.models.image_preprocessing import OPEN_CLIP_CONFIG
from tamis.models.model import Model
from tamis.models.open_clip_siglip import is_siglip_tower, siglip_tower

__all__ = ["is_open_clip", "load_text_tower", "load_vision_tower"]

_FILES: Final = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
_BLOCK: Final = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
    "attn.out_proj": "self_attn.out_proj",
}
_NOT_SUPPORTED: Final = (
    "timm_model_name",
    "attentional_pool",
    "attn_pooler_queries",
    "ls_init_value",
    "patch_dropout_eval",
    "no_ln_pre",
    "block_type",
    "qk_norm",
    "norm_kwargs",
    "act_kwargs",
    "hf_model_name",
    "hf_tokenizer_name",
)
"""Settings of towers that are not a plain transformer of CLIP."""


def is_open_clip(folder: str | Path) -> bool:
    """Whether a folder is in the layout of open_clip only: where there are both, that of ``transformers`` counts."""
    place = Path(folder)
    return (place / OPEN_CLIP_CONFIG).exists() and not (place / "config.json").exists()


def load_vision_tower(model: Model) -> Any:
    """The vision tower of a folder of open_clip: a ``CLIPVisionModelWithProjection`` or a ``SiglipVisionModel``."""
    import transformers

    config = _config(model)
    given = config.get("vision_cfg")
    if isinstance(given, dict) and is_siglip_tower(given):
        try:
            return _filled(model, *siglip_tower(given, _tensors(model, "visual.trunk.")))
        except KeyError as error:
            raise _refused(model, f"its weights have no tensor {error}") from None
    shape = _tower(config, "vision_cfg", model)
    sizes = _sizes(config, shape)
    image_size = shape.get("image_size", 224)
    patch_size = shape.get("patch_size", 16)
    if not isinstance(image_size, int) or not isinstance(patch_size, int) or shape.get("pool_type", "tok") != "tok":
        raise _refused(model, "its images or patches are not square, or it does not pool by its first token")
    made: Any = transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(image_size=image_size, patch_size=patch_size, **sizes)
    )
    tensors = _tensors(model, "visual.")
    names = {
        "class_embedding": "vision_model.embeddings.class_embedding",
        "positional_embedding": "vision_model.embeddings.position_embedding.weight",
        "conv1.weight": "vision_model.embeddings.patch_embedding.weight",
        **_of_layer("ln_pre", "vision_model.pre_layrnorm"),
        **_of_layer("ln_post", "vision_model.post_layernorm"),
    }
    return _filled(model, made, _mapped(model, tensors, names, "vision_model", ("proj", "visual_projection.weight")))


def load_text_tower(model: Model) -> Any:
    """The text tower of a folder of open_clip as ``CLIPTextModelWithProjection``."""
    import transformers

    config = _config(model)
    shape = _tower(config, "text_cfg", model)
    if shape.get("pool_type", "argmax") != "argmax":
        raise _refused(model, f"its text tower pools by {shape['pool_type']!r}")
    settings = {
        **_sizes(config, {"width": 512, "heads": 8, **shape}),
        "vocab_size": shape.get("vocab_size", 49408),
        "max_position_embeddings": shape.get("context_length", 77),
        "eos_token_id": 2,  # for transformers: the state of the largest token id, as in open_clip
    }
    made: Any = transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(**settings))
    tensors = _tensors(model, "text.") or _tensors(model, "")
    names = {
        "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
        "positional_embedding": "text_model.embeddings.position_embedding.weight",
        **_of_layer("ln_final", "text_model.final_layer_norm"),
    }
    last = ("text_projection", "text_projection.weight")
    return _filled(model, made, _mapped(model, tensors, names, "text_model", last))


def _config(model: Model) -> dict[str, Any]:
    path = Path(model.folder()) / OPEN_CLIP_CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))["model_cfg"]
        return {**config, "embed_dim": int(config["embed_dim"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from error


def _tower(config: Mapping[str, Any], name: str, model: Model) -> dict[str, Any]:
    shape = config.get(name)
    if not isinstance(shape, dict):
        raise _refused(model, f"its {OPEN_CLIP_CONFIG} has no {name}")
    for setting in _NOT_SUPPORTED:
        if shape.get(setting):
            raise _refused(model, f"{name} has {setting}={shape[setting]!r}")
    if not isinstance(shape.get("layers", 12), int):
        raise _refused(model, f"{name} has layers={shape['layers']!r}: it is a ResNet")
    return shape


def _refused(model: Model, why: str) -> ModelError:
    return ModelError(
        f"the model {model.name} cannot be loaded: {why}. Of open_clip's models, those with plain transformers of CLIP "
        "(ViT-B, ViT-L, ViT-H, ViT-g, ViT-bigG) can be, and the vision towers of SigLIP; for others, take the "
        "folder that transformers loads"
    )


def _sizes(config: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a tower under the names of ``transformers``; what is not given is open_clip's default."""
    width = int(shape.get("width", 768))
    return {
        "hidden_size": width,
        "num_hidden_layers": int(shape.get("layers", 12)),
        "num_attention_heads": int(shape.get("heads") or width // int(shape.get("head_width", 64))),
        "intermediate_size": int(width * float(shape.get("mlp_ratio", 4.0))),
        "projection_dim": config["embed_dim"],
        "hidden_act": "quick_gelu" if config.get("quick_gelu") else "gelu",
        "layer_norm_eps": 1e-5,
    }


def _tensors(model: Model, prefix: str) -> dict[str, Any]:
    """The tensors whose names begin with a prefix, which is taken off."""
    from safetensors import safe_open

    folder = Path(model.folder())
    file = next((folder / name for name in _FILES if (folder / name).exists()), None)
    if file is None:
        raise ModelError(f"the model {model.name} has no weights as safetensors in {folder}: {' or '.join(_FILES[:1])}")
    try:
        with safe_open(file, "pt") as weights:
            return {
                name.removeprefix(prefix): weights.get_tensor(name)
                for name in list(weights.keys())
                if name.startswith(prefix)
            }
    except Exception as error:  # safetensors raises a class of its own for whatever is wrong with a file
        raise ModelError(f"{file} cannot be read: {error}") from error


def _of_layer(name: str, other: str) -> dict[str, str]:
    return {f"{name}.{part}": f"{other}.{part}" for part in ("weight", "bias")}


def _mapped(
    model: Model, tensors: Mapping[str, Any], names: Mapping[str, str], tower: str, projection: tuple[str, str]
) -> dict[str, Any]:
    """Tensors under the names of ``transformers``."""
    made: dict[str, Any] = {}
    try:
        for name, other in names.items():
            made[other] = tensors[name]
        made[projection[1]] = tensors[projection[0]].T.contiguous()
        blocks = {name.split(".")[2] for name in tensors if name.startswith("transformer.resblocks.")}
        for number in sorted(blocks, key=int):
            source, target = f"transformer.resblocks.{number}", f"{tower}.encoder.layers.{number}"
            for name, other in _BLOCK.items():
                for part in ("weight", "bias"):
                    made[f"{target}.{other}.{part}"] = tensors[f"{source}.{name}.{part}"]
            for part in ("weight", "bias"):
                together = tensors[f"{source}.attn.in_proj_{part}"].chunk(3)
                for letter, own in zip("qkv", together, strict=True):
                    made[f"{target}.self_attn.{letter}_proj.{part}"] = own.contiguous()
    except KeyError as error:
        raise _refused(model, f"its weights have no tensor {error}") from None
    return made


def _filled(model: Model, network: Any, tensors: Mapping[str, Any]) -> Any:
    """A network with its weights; all of them, and nothing else."""
    try:
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, strict=True)
    except RuntimeError as error:
        raise _refused(model, f"its weights are not those that {OPEN_CLIP_CONFIG} describes: {error}") from None
    return network.eval()
