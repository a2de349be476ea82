"""The subject of texts, as one of 26 domains."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.stages.text.classifiers.base import DistributedDataClassifier

__all__ = ["DomainClassifier", "MultilingualDomainClassifier"]


@dataclass(kw_only=True, repr=False)
class DomainClassifier(DistributedDataClassifier):
    """Label the subject of English texts with one of 26 domains, such as ``Science`` or ``Food_and_Drink``.

    A DeBERTa-v3-base of NVIDIA. Arguments are those of :class:`DistributedDataClassifier`.

    >>> DomainClassifier(score_field="domain_probabilities").outputs()[1]
    ['domain_pred', 'domain_probabilities']
    """

    model_identifier: str = "nvidia/domain-classifier"
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

    model_identifier: str = "nvidia/multilingual-domain-classifier"
    label_field: str = "multilingual_domain_pred"
    max_chars: int | None = 2000
    max_seq_length: int | None = 512
