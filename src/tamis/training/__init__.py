"""Training of small models on the user's texts: classifiers and n-gram language models.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.training.classifier import TrainedModel as TrainedModel
    from tamis.training.classifier import evaluate_classifier as evaluate_classifier
    from tamis.training.classifier import train_classifier as train_classifier
    from tamis.training.language_model import train_language_model as train_language_model

_HOMES = {
    "TrainedModel": "tamis.training.classifier",
    "evaluate_classifier": "tamis.training.classifier",
    "train_classifier": "tamis.training.classifier",
    "train_language_model": "tamis.training.language_model",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
