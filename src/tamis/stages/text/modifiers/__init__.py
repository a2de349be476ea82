"""Modifiers: change the text of documents.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
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

_HOMES = {
    "BoilerPlateStringModifier": "tamis.stages.text.modifiers.string",
    "C4LineCleaner": "tamis.stages.text.modifiers.lines",
    "CleanLines": "tamis.stages.text.modifiers.lines",
    "ControlCharacterRemover": "tamis.stages.text.modifiers.string",
    "DocumentModifier": "tamis.stages.text.modifiers.base",
    "FastTextLabelModifier": "tamis.stages.text.modifiers.fasttext",
    "HtmlEntityUnescaper": "tamis.stages.text.modifiers.unicode",
    "LineRemover": "tamis.stages.text.modifiers.string",
    "MarkdownRemover": "tamis.stages.text.modifiers.string",
    "Modify": "tamis.stages.text.modifiers.modify",
    "NewlineNormalizer": "tamis.stages.text.modifiers.string",
    "PiiRedactor": "tamis.stages.text.modifiers.pii",
    "QuotationRemover": "tamis.stages.text.modifiers.string",
    "QuotationUnifier": "tamis.stages.text.modifiers.string",
    "RefinedWebLineCleaner": "tamis.stages.text.modifiers.lines",
    "Slicer": "tamis.stages.text.modifiers.string",
    "UnicodeNormalizer": "tamis.stages.text.modifiers.unicode",
    "UnicodeReformatter": "tamis.stages.text.modifiers.unicode",
    "UrlRemover": "tamis.stages.text.modifiers.string",
    "WhitespaceCollapser": "tamis.stages.text.modifiers.string",
}

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

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
