"""The quality of texts: high, medium or low."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.stages.text.classifiers.base import DistributedDataClassifier

__all__ = ["QualityClassifier"]


@dataclass(kw_only=True, repr=False)
class QualityClassifier(DistributedDataClassifier):
    """Label the quality of English texts: ``High``, ``Medium`` or ``Low``.

    A DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> QualityClassifier(filter_by=["High", "Medium"]).outputs()[1]
    ['quality_pred']
    """

    model_identifier: str = "nvidia/quality-classifier-deberta"
    label_field: str = "quality_pred"
    max_chars: int | None = 6000
    max_seq_length: int | None = 1024
