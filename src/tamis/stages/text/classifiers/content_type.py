"""The type of content of texts, such as news or blogs."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.stages.text.classifiers.base import DistributedDataClassifier

__all__ = ["ContentTypeClassifier"]


@dataclass(kw_only=True, repr=False)
class ContentTypeClassifier(DistributedDataClassifier):
    """Label English texts with one of 11 types of content, such as ``News`` or ``Blogs``.

    A DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> ContentTypeClassifier().outputs()[1]
    ['content_pred']
    """

    model_identifier: str = "nvidia/content-type-classifier-deberta"
    label_field: str = "content_pred"
    max_chars: int | None = 6000
    max_seq_length: int | None = 1024
