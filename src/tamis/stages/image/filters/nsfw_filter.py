"""Drop images that are not safe for work."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tamis.errors import ModelError
from tamis.models.embedding_heads import EmbeddingHead, load_nsfw_head
from tamis.stages.image.filters.base import BaseFilterStage, weights_file

__all__ = ["ImageNSFWFilterStage"]

_FOLDER: Final = "laion/clip-autokeras-binary-nsfw"
_NAMES: Final = ("clip_autokeras_binary_nsfw.safetensors", "model.safetensors", "clip_autokeras_binary_nsfw.pth")


@dataclass(repr=False)
class ImageNSFWFilterStage(BaseFilterStage):
    """Score how likely images are not safe for work, from their embeddings, and drop those at a threshold and above.

    The weights are those of LAION's detector for CLIP ViT-L/14 (clip_autokeras_binary_nsfw): a normalising layer and
    dense layers with 64, 512, 256 and 1 outputs, with ReLU between them and a sigmoid at the end. They may be in the
    layout of PyTorch or of Keras: see :func:`~tamis.models.embedding_heads.load_nsfw_head`.

    The arguments not named here are those of :class:`~tamis.stages.image.filters.base.BaseFilterStage`.

    Args:
        model_dir: The folder with the weights, ``clip_autokeras_binary_nsfw.safetensors`` (or ``.pth`` with
            ``allow_pickle``), or one that has them below ``laion/clip-autokeras-binary-nsfw``.
        score_threshold: Rows with this score, 0 to 1, and more are dropped.
        score_field: The column for the score.
        weights_path: The file itself, instead of ``model_dir``.

    >>> ImageNSFWFilterStage(weights_path="detector.safetensors").outputs()[1]
    ['nsfw_score']
    """

    name: str = "image_nsfw_filter"
    weights_path: str | None = None
    score_field: str = field(default="nsfw_score", kw_only=True)

    keeps_high: ClassVar[bool] = False

    def load_head(self) -> EmbeddingHead:
        if self.weights_path is not None:
            return load_nsfw_head(os.path.expanduser(self.weights_path), allow_pickle=self.allow_pickle)
        folders = [] if self.model_dir is None else [os.path.join(self.model_dir, _FOLDER), self.model_dir]
        found = weights_file(folders, _NAMES)
        if found is None:
            where = "" if self.model_dir is None else f" in {self.model_dir} or below it in {_FOLDER}"
            raise ModelError(
                f"{self.name}: there is no {_NAMES[0]}{where}. Its authors publish clip_autokeras_binary_nsfw.zip in "
                "LAION-AI/CLIP-based-NSFW-Detector on GitHub, not on the hub: fetch it, and give weights_path"
            )
        return load_nsfw_head(found, allow_pickle=self.allow_pickle)
