"""Modifiers: change the text of documents.

Each name loads the module it is from when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.lazy import load_when_used

if TYPE_CHECKING:
    from tamis.stages.text.modifiers.base import DocumentModifier as DocumentModifier
    from tamis.stages.text.modifiers.fasttext import FastTextLabelModifier as FastTextLabelModifier
    from tamis.stages.text.modifiers.lines import C4LineCleaner as C4LineCleaner
    from tamis.stages.text.modifiers.lines import CleanLines as CleanLines
    from tamis.stages.text.modifiers.lines import RefinedWebLineCleaner as RefinedWebLineCleaner
    from tamis.stages.text.modifiers.modify import Modify as Modify
    from tamis.stages.text.modifiers.pii import PiiRedactor as PiiRedactor
    from tamis.stages.text.modifiers.string import BoilerPlateStringModifier as BoilerPlateStringModifier
    from tamis.stages.text.modifiers.string import ControlCharacterRemover as ControlCharacterRemover
    from tamis.stages.text.modifiers.string import LineRemover as LineRemover
    from tamis.stages.text.modifiers.string import MarkdownRemover as MarkdownRemover
    from tamis.stages.text.modifiers.string import NewlineNormalizer as NewlineNormalizer
    from tamis.stages.text.modifiers.string import QuotationRemover as QuotationRemover
    from tamis.stages.text.modifiers.string import QuotationUnifier as QuotationUnifier
    from tamis.stages.text.modifiers.string import Slicer as Slicer
    from tamis.stages.text.modifiers.string import UrlRemover as UrlRemover
    from tamis.stages.text.modifiers.string import WhitespaceCollapser as WhitespaceCollapser
    from tamis.stages.text.modifiers.unicode import HtmlEntityUnescaper as HtmlEntityUnescaper
    from tamis.stages.text.modifiers.unicode import UnicodeNormalizer as UnicodeNormalizer
    from tamis.stages.text.modifiers.unicode import UnicodeReformatter as UnicodeReformatter

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

__all__ = sorted(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
