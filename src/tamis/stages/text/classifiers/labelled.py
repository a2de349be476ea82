"""NVIDIA's classifiers with labels: quality, domain and type of content."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.models.model import Model
from tamis.stages.text.classifiers.base import DistributedDataClassifier

__all__ = ["ContentTypeClassifier", "DomainClassifier", "MultilingualDomainClassifier", "QualityClassifier"]


@dataclass(kw_only=True, repr=False)
class QualityClassifier(DistributedDataClassifier):
    """Label the quality of English texts: ``High``, ``Medium`` or ``Low``.

    A DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> QualityClassifier(filter_by=["High", "Medium"]).outputs()[1]
    ['quality_pred']
    """

    model_identifier: Model | str = "nvidia/quality-classifier-deberta"
    label_field: str = "quality_pred"
    max_chars: int | None = 6000
    max_seq_length: int | None = 1024


@dataclass(kw_only=True, repr=False)
class DomainClassifier(DistributedDataClassifier):
    """Label the subject of English texts with one of 26 domains, such as ``Science`` or ``Food_and_Drink``.

    A DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> DomainClassifier(score_field="domain_probabilities").outputs()[1]
    ['domain_pred', 'domain_probabilities']
    """

    model_identifier: Model | str = "nvidia/domain-classifier"
    label_field: str = "domain_pred"
    max_chars: int | None = 2000
    max_seq_length: int | None = 512


@dataclass(kw_only=True, repr=False)
class MultilingualDomainClassifier(DistributedDataClassifier):
    """Label the subject of texts in 52 languages with one of 26 domains.

    A multilingual DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> MultilingualDomainClassifier().outputs()[1]
    ['multilingual_domain_pred']
    """

    model_identifier: Model | str = "nvidia/multilingual-domain-classifier"
    label_field: str = "multilingual_domain_pred"
    max_chars: int | None = 2000
    max_seq_length: int | None = 512


@dataclass(kw_only=True, repr=False)
class ContentTypeClassifier(DistributedDataClassifier):
    """Label English texts with one of 11 types of content, such as ``News`` or ``Blogs``.

    A DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> ContentTypeClassifier().outputs()[1]
    ['content_pred']
    """

    model_identifier: Model | str = "nvidia/content-type-classifier-deberta"
    label_field: str = "content_pred"
    max_chars: int | None = 6000
    max_seq_length: int | None = 1024
