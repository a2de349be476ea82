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

_MODULES = {
    "base": "DocumentModifier",
    "fasttext": "FastTextLabelModifier",
    "lines": "C4LineCleaner CleanLines RefinedWebLineCleaner",
    "modify": "Modify",
    "pii": "PiiRedactor",
    "string": (
        "BoilerPlateStringModifier ControlCharacterRemover LineRemover MarkdownRemover NewlineNormalizer "
        "QuotationRemover QuotationUnifier Slicer UrlRemover WhitespaceCollapser"
    ),
    "unicode": "HtmlEntityUnescaper UnicodeNormalizer UnicodeReformatter",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}

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
