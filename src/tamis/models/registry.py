"""The models that the stages of tamis name by default: what they are for, their licence, their size.

Any other model can be used as well, by its name on the hub or its folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tamis.errors import MissingExtraError, ModelError
from tamis.models.model import LOCK, Model

__all__ = ["KNOWN", "KnownModel", "bundled_models", "is_here", "known_model"]

_CARD: Final = "see its card on the hub"


@dataclass(frozen=True)
class KnownModel:
    """A model that a stage names.

    Args:
        name: Its name on the Hugging Face hub.
        stage: The stage that loads it.
        purpose: What it is for.
        licence: Under which licence its weights are.
        megabytes: About how much is fetched, in MB; ``None`` where that is not known.
        needs_token: Whether the hub asks for a token of a user who has agreed to its terms.
    """

    name: str
    stage: str
    purpose: str
    licence: str
    megabytes: int | None = None
    needs_token: bool = False


KNOWN: Final = (
    KnownModel(
        "sentence-transformers/all-MiniLM-L6-v2", "EmbeddingCreatorStage", "embeddings, English", "Apache-2.0", 91
    ),
    KnownModel(
        "google/embeddinggemma-300m",
        "VLLMEmbeddingModelStage, EmbeddingCreatorStage",
        "embeddings, 100 languages",
        "Gemma Terms of Use",
        1230,
        needs_token=True,
    ),
    KnownModel("nvidia/quality-classifier-deberta", "QualityClassifier", "quality: high, medium, low", _CARD, 740),
    KnownModel("nvidia/domain-classifier", "DomainClassifier", "26 domains, English", _CARD, 740),
    KnownModel(
        "nvidia/multilingual-domain-classifier", "MultilingualDomainClassifier", "26 domains, 52 languages", _CARD, 1120
    ),
    KnownModel("nvidia/content-type-classifier-deberta", "ContentTypeClassifier", "11 types of content", _CARD, 740),
    KnownModel(
        "HuggingFaceFW/fineweb-edu-classifier", "FineWebEduClassifier", "educational value, 0 to 5", "Apache-2.0", 440
    ),
    KnownModel(
        "nvidia/nemocurator-fineweb-mixtral-edu-classifier",
        "FineWebMixtralEduClassifier",
        "educational value, 0 to 5",
        _CARD,
        440,
    ),
    KnownModel(
        "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier",
        "FineWebNemotronEduClassifier",
        "educational value, 0 to 5",
        _CARD,
        440,
    ),
    KnownModel(
        "HuggingFaceTB/finemath-classifier", "FineMathClassifier", "worth for learning mathematics, 0 to 5", "MIT", 471
    ),
    KnownModel(
        "nvidia/prompt-task-and-complexity-classifier",
        "PromptTaskComplexityClassifier",
        "tasks and complexity of prompts",
        _CARD,
        740,
    ),
    KnownModel(
        "meta-llama/LlamaGuard-7b",
        "AegisClassifier, InstructionDataGuardClassifier",
        "the model under the safety classifiers",
        "Llama 2 Community License",
        13_500,
        needs_token=True,
    ),
    KnownModel(
        "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0",
        "AegisClassifier, InstructionDataGuardClassifier",
        "safety, strict",
        "Llama 2 Community License",
    ),
    KnownModel(
        "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Permissive-1.0",
        "AegisClassifier",
        "safety, permissive",
        "Llama 2 Community License",
    ),
    KnownModel("nvidia/instruction-data-guard", "InstructionDataGuardClassifier", "poisoned instructions", _CARD),
    KnownModel(
        "openai/clip-vit-large-patch14",
        "ImageEmbeddingStage, ImageTextSimilarityFilter",
        "embeddings of images and captions",
        _CARD,
        1710,
    ),
    KnownModel(
        "openai/clip-vit-base-patch32",
        "ImageEmbeddingStage, ImageTextSimilarityFilter",
        "embeddings of images and captions, small",
        _CARD,
        605,
    ),
    KnownModel(
        "google/siglip-base-patch16-224",
        "ImageEmbeddingStage, ImageTextSimilarityFilter",
        "embeddings of images and captions",
        "Apache-2.0",
        813,
    ),
    KnownModel(
        "google/siglip-so400m-patch14-384",
        "ImageEmbeddingStage, ImageTextSimilarityFilter",
        "embeddings of images and captions, large",
        "Apache-2.0",
        3510,
    ),
    KnownModel(
        "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
        "ImageEmbeddingStage, ImageTextSimilarityFilter",
        "embeddings of images and captions, small",
        "MIT",
        605,
    ),
    KnownModel("ttj/sac-logos-ava1-l14-linearMSE", "ImageAestheticFilterStage", "how pleasing an image is", _CARD, 4),
    KnownModel(
        "LAION-AI/CLIP-based-NSFW-Detector",
        "ImageNSFWFilterStage",
        "not safe for work (not on the hub: give weights_path)",
        "MIT",
        1,
    ),
)
"""Sizes are those of the parameters; licences that are not given here are on the model's card."""


def known_model(name: str) -> KnownModel | None:
    """What is known of a model, by its name.

    >>> known_model("sentence-transformers/all-MiniLM-L6-v2").licence
    'Apache-2.0'
    """
    return next((model for model in KNOWN if model.name == name), None)


def is_here(model: Model) -> bool:
    """Whether a model is on this machine, with its weights. Nothing is fetched.

    >>> is_here(Model("./no-such-folder"))
    False
    """
    try:
        model.folder()
    except (ModelError, MissingExtraError):
        return False
    return model.has_weights()


def bundled_models() -> Iterator[Model]:
    """The models in the folder that ``TAMIS_MODELS_DIR`` names."""
    directory = os.environ.get("TAMIS_MODELS_DIR", "")
    for lock in sorted(Path(directory).glob(f"*/{LOCK}")) if directory else []:
        name, _, revision = lock.parent.name.partition("@")
        yield Model(name.replace("--", "/"), revision or None)
