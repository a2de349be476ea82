"""Modifiers: change the text of documents."""

from tamis.stages.text.modifiers.base import DocumentModifier
from tamis.stages.text.modifiers.modify import Modify
from tamis.stages.text.modifiers.string import (
    BoilerPlateStringModifier,
    ControlCharacterRemover,
    LineRemover,
    MarkdownRemover,
    NewlineNormalizer,
    QuotationRemover,
    QuotationUnifier,
    Slicer,
    UrlRemover,
    WhitespaceCollapser,
)
from tamis.stages.text.modifiers.unicode import UnicodeReformatter

__all__ = [
    "BoilerPlateStringModifier",
    "ControlCharacterRemover",
    "DocumentModifier",
    "LineRemover",
    "MarkdownRemover",
    "Modify",
    "NewlineNormalizer",
    "QuotationRemover",
    "QuotationUnifier",
    "Slicer",
    "UnicodeReformatter",
    "UrlRemover",
    "WhitespaceCollapser",
]
