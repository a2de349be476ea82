"""Small vision models with weights by chance, saved in the layouts in which the real ones are published, and images."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from small_models import save_tokenizer
from torch import nn

from tamis.tasks import ImageBatch

SIDE, PATCH, DIM = 48, 16, 24

_TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": SIDE,
    "patch_size": PATCH,
}
_TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def encoded(seed: int, height: int = 90, width: int = 120, form: str = "JPEG") -> bytes:
    """A picture of coloured blobs on a gradient."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    picture = np.stack([x * random.uniform(0, 2), y * random.uniform(0, 2), (x + y) * random.uniform(0, 1)], axis=2)
    for _ in range(6):
        centre_y, centre_x, size = random.uniform(0, height), random.uniform(0, width), random.uniform(5, 30)
        blob = np.exp(-((y - centre_y) ** 2 + (x - centre_x) ** 2) / (2 * size**2))
        picture += blob[:, :, None] * random.uniform(-200, 200, 3)
    file = BytesIO()
    Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(file, form)
    return file.getvalue()


def images(count: int = 5) -> ImageBatch:
    """Pictures of different shapes, as JPEG and PNG."""
    shapes = [(90, 120), (120, 90), (64, 64), (200, 50), (48, 61)]
    data = [encoded(n, *shapes[n % 5], "PNG" if n % 3 == 2 else "JPEG") for n in range(count)]
    return ImageBatch({"image_id": [str(n) for n in range(count)], "image_bytes": data})


def _vary(network: Any) -> Any:
    """Weights that are not near zero, so that different images have different vectors."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return network.eval()


def save_clip(folder: Path, kind: str = "clip") -> Any:
    """Save a small model; returns the network of ``transformers``.

    Args:
        folder: Where to.
        kind: ``"clip"``, ``"clip vision"`` (with projection), ``"clip tower"`` (without), ``"siglip"`` or
            ``"siglip vision"``.
    """
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = save_tokenizer(folder)
    name = "Siglip" if kind.startswith("siglip") else "CLIP"
    if kind in ("clip", "siglip"):
        own = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "vocab_size": vocabulary}
        config = getattr(transformers, f"{name}Config")(
            vision_config=_TOWER, text_config={**_TEXT, **own}, **({"projection_dim": DIM} if kind == "clip" else {})
        )
        network = getattr(transformers, f"{name}Model")(config)
    else:
        config = getattr(transformers, f"{name}VisionConfig")(
            **_TOWER, **({"projection_dim": DIM} if name == "CLIP" else {})
        )
        network = getattr(transformers, f"{name}VisionModel{'WithProjection' if kind == 'clip vision' else ''}")(config)
    _vary(network).save_pretrained(folder)
    processor(kind).save_pretrained(folder)
    return network


def processor(kind: str = "clip") -> Any:
    """The image processor of ``transformers`` that computes with Pillow."""
    if kind.startswith("siglip"):
        from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

        return SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    return CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})


def reference(network: Any, kind: str, batch: ImageBatch) -> Any:
    """The vectors of ``transformers`` itself."""
    pictures = [Image.open(BytesIO(data)).convert("RGB") for data in batch["image_bytes"].to_pylist()]
    given = processor(kind)(images=pictures, return_tensors="pt")
    with torch.inference_mode():
        if hasattr(network, "get_image_features"):
            made = network.get_image_features(**given)
            vectors = made if isinstance(made, torch.Tensor) else made.pooler_output
        else:
            out = network(**given)
            vectors = out.image_embeds if hasattr(out, "image_embeds") else out.pooler_output
    return (vectors / vectors.norm(dim=1, keepdim=True)).numpy()


class _Block(nn.Module):
    """A block of a transformer with the names and the attention of open_clip."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential()
        for name, layer in (("c_fc", nn.Linear(width, width * 4)), ("gelu", nn.GELU())):
            self.mlp.add_module(name, layer)
        self.mlp.add_module("c_proj", nn.Linear(width * 4, width))

    def forward(self, states: Any, mask: Any = None) -> Any:
        given = self.ln_1(states)
        states = states + self.attn(given, given, given, need_weights=False, attn_mask=mask)[0]
        return states + self.mlp(self.ln_2(states))


class _Transformer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList([_Block(width, heads) for _ in range(2)])

    def forward(self, states: Any, mask: Any = None) -> Any:
        for block in self.resblocks:
            states = block(states, mask)
        return states


class _Visual(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn((SIDE // PATCH) ** 2 + 1, width))
        self.proj = nn.Parameter(torch.randn(width, DIM))
        self.conv1 = nn.Conv2d(3, width, PATCH, PATCH, bias=False)
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = _Transformer(width, heads)

    def forward(self, pixels: Any) -> Any:
        patches = self.conv1(pixels).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(pixels), 1, -1)
        states = self.ln_pre(torch.cat([first, patches], dim=1) + self.positional_embedding)
        return self.ln_post(self.transformer(states)[:, 0]) @ self.proj


class OpenClip(nn.Module):
    """A CLIP of two layers as open_clip builds it, text tower included."""

    def __init__(self, vocabulary: int, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.visual = _Visual()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.randn(64, width))
        self.transformer = _Transformer(width, heads)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.randn(width, DIM))
        self.logit_scale = nn.Parameter(torch.ones([]))

    def text(self, ids: Any) -> Any:
        """The vector of the largest token."""
        length = ids.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        states = self.token_embedding(ids) + self.positional_embedding[:length]
        states = self.ln_final(self.transformer(states, mask))
        return states[torch.arange(len(ids)), ids.argmax(dim=1)] @ self.text_projection


def save_open_clip(folder: Path) -> OpenClip:
    """Save a model in the layout of open_clip; returns the network."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    network = _vary(OpenClip(save_tokenizer(folder)))
    save_file(network.state_dict(), folder / "open_clip_model.safetensors")
    vision = {"image_size": SIDE, "layers": 2, "width": 32, "head_width": 8, "patch_size": PATCH}
    text = {
        "context_length": 64,
        "vocab_size": network.token_embedding.num_embeddings,
        "width": 32,
        "heads": 4,
        "layers": 2,
    }
    config = {
        "model_cfg": {"embed_dim": DIM, "vision_cfg": vision, "text_cfg": text},
        "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "interpolation": "bicubic"},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return network


class _TimmBlock(nn.Module):
    """A block of timm's vision transformer: one matrix for the three projections of attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 2 * width), "fc2": nn.Linear(2 * width, width)})
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.attn["qkv"](self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.attn["proj"](mixed)
        return x + self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm2(x))))


class _TimmPool(nn.Module):
    """The pooling by attention of SigLIP in timm: one learned query, then a small network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.latent = nn.Parameter(torch.randn(1, 1, width))
        self.q, self.kv, self.proj = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 2 * width), "fc2": nn.Linear(2 * width, width)})
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(self.latent.expand(len(x), -1, -1)).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return (x + self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm(x)))))[:, 0]


class TimmSiglip(nn.Module):
    """The vision tower of a SigLIP of open_clip, with the names that timm gives its parts."""

    def __init__(self, width: int = 24, heads: int = 12) -> None:
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, PATCH, PATCH)})
        self.pos_embed = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2, width))
        self.blocks = nn.Sequential(*(_TimmBlock(width, heads) for _ in range(2)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.attn_pool = _TimmPool(width, heads)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed["proj"](pixels).flatten(2).transpose(1, 2) + self.pos_embed
        return self.attn_pool(self.norm(self.blocks(x)))


def save_open_clip_siglip(folder: Path) -> TimmSiglip:
    """Save a vision tower of SigLIP in the layout of open_clip; returns the network."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    network = _vary(TimmSiglip())
    tensors = {f"visual.trunk.{name}": tensor for name, tensor in network.state_dict().items()}
    save_file(tensors, folder / "open_clip_model.safetensors")
    vision = {
        "image_size": SIDE,
        "timm_model_name": "vit_base_patch16_siglip_224",
        "timm_pool": "map",
        "timm_proj": "none",
    }
    preprocessing = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    config = {"model_cfg": {"embed_dim": 24, "vision_cfg": vision}, "preprocess_cfg": preprocessing}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return network
