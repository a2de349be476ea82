"""Modifiers: change the text of documents."""

from tamis.stages.text.modifiers.base import DocumentModifier
from tamis.stages.text.modifiers.fasttext import FastTextLabelModifier
from tamis.stages.text.modifiers.lines import C4LineCleaner, CleanLines, RefinedWebLineCleaner
from tamis.stages.text.modifiers.modify import Modify
from tamis.stages.text.modifiers.pii import PiiRedactor
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
from tamis.stages.text.modifiers.unicode import HtmlEntityUnescaper, UnicodeNormalizer, UnicodeReformatter

__all__ = [
    "BoilerPlateStringModifier",
    "C4LineCleaner",
    "CleanLines",
    "ControlCharacterRemover",
    "DocumentModifier",
    "FastTextLabelModifier",
    "HtmlEntityUnescaper",
    "LineRemover",
    "MarkdownRemover",
    "Modify",
    "NewlineNormalizer",
    "PiiRedactor",
    "QuotationRemover",
    "QuotationUnifier",
    "RefinedWebLineCleaner",
    "Slicer",
    "UnicodeNormalizer",
    "UnicodeReformatter",
    "UrlRemover",
    "WhitespaceCollapser",
]
