"""Keep images that are pleasing to look at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tamis.errors import ModelError
from tamis.models.embedding_heads import EmbeddingHead, load_aesthetic_head
from tamis.models.model import Model
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.image.filters.base import BaseFilterStage
from tamis.stages.image.model_folder import model_in

__all__ = ["ImageAestheticFilterStage"]


@dataclass(repr=False)
class ImageAestheticFilterStage(BaseFilterStage):
    """Score how pleasing images are, from their embeddings, and drop those below a threshold.

    The weights are those of the aesthetic predictor for CLIP ViT-L/14 (sac+logos+ava1-l14-linearMSE): linear layers
    from 768 to 1024, 128, 64, 16 and 1 numbers: tensors ``layers.0`` to ``layers.7`` in ``model.safetensors``. Scores
    are those of people in contests, about 1 to 10; most photographs are between 4 and 7.

    The arguments not named here are those of :class:`~tamis.stages.image.filters.base.BaseFilterStage`.

    Args:
        model_dir: The folder with ``model.safetensors``, or one that has it below
            ``ttj/sac-logos-ava1-l14-linearMSE``; else it is where what is fetched from the hub is kept.
        score_threshold: Rows with this score and more are kept.
        score_field: The column for the score.
        model: The model: a name on the hub or a folder.

    >>> ImageAestheticFilterStage("weights", score_threshold=5.5).outputs()[1]
    ['aesthetic_score']
    """

    name: str = "image_aesthetic_filter"
    score_field: str = field(default="aesthetic_score", kw_only=True)
    model: Model | str = field(default="ttj/sac-logos-ava1-l14-linearMSE", kw_only=True)

    keeps_high: ClassVar[bool] = True

    @property
    def source(self) -> Model:
        """Where the weights are."""
        found = model_in(self.model_dir, self.model, ("model.safetensors",))
        return replace(found, allow_pickle=found.allow_pickle or self.allow_pickle)

    def parameters(self) -> dict[str, Any]:
        # A token is a secret: not for recipes, reports and logs.
        given = self.model
        return {**super().parameters(), "model": replace(given, token=None) if isinstance(given, Model) else given}

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.source.fetch()
        self.source.check()

    def load_head(self) -> EmbeddingHead:
        source = self.source
        folder = Path(source.fetch())
        patterns = ("*.safetensors", "*.pth") if source.allow_pickle else ("*.safetensors",)
        files = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
        if not files:
            raise ModelError(f"{self.name}: {folder} has no weights: expected model.safetensors")
        return load_aesthetic_head(files[0], allow_pickle=source.allow_pickle)
