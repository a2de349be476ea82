"""Which filters and modifiers are compared, with which parameters. Plain data: read here and by the peers' workers.

Names, modules and parameters are NeMo Curator's, and so are tamis's names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASCADE", "FILTERS", "MODIFIERS", "MODIFIERS_TIMED", "NOT_COMPARED", "Operation"]


@dataclass(frozen=True)
class Operation:
    """A filter or modifier with its parameters.

    Args:
        name: Of the class.
        module: Where NeMo Curator has it, below ``nemo_curator.stages.text.filters`` or ``.modifiers``.
        parameters: Those that are not the defaults.
        follows_hash_seed: Whether the peer's result depends on the order of a Python set.
    """

    name: str
    module: str
    parameters: dict[str, Any] = field(default_factory=dict)
    follows_hash_seed: bool = False

    @property
    def label(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.name}({shown})"


STRING, REPETITION, CODE = "heuristic.string", "heuristic.repetition", "heuristic.code"

FILTERS = [
    *(
        Operation(name, STRING)
        for name in (
            "NonAlphaNumericFilter",
            "SymbolsToWordsFilter",
            "NumbersFilter",
            "UrlsFilter",
            "BulletsFilter",
            "WhiteSpaceFilter",
            "ParenthesesFilter",
            "LongWordFilter",
            "WordCountFilter",
            "BoilerPlateStringFilter",
            "MeanWordLengthFilter",
            "PunctuationFilter",
            "EllipsisFilter",
            "CommonEnglishWordsFilter",
            "WordsWithoutAlphabetsFilter",
            "PornographicUrlsFilter",
        )
    ),
    Operation("CommonEnglishWordsFilter", STRING, {"stop_at_false": False}),
    *(
        Operation("SubstringFilter", STRING, {"substring": "the", "position": position})
        for position in ("prefix", "suffix", "any")
    ),
    *(
        Operation(name, REPETITION)
        for name in (
            "RepeatedLinesFilter",
            "RepeatedParagraphsFilter",
            "RepeatedLinesByCharFilter",
            "RepeatedParagraphsByCharFilter",
        )
    ),
    *(Operation("RepeatingTopNGramsFilter", REPETITION, {"n": n}, follows_hash_seed=True) for n in (2, 3, 4)),
    *(Operation("RepeatingDuplicateNGramsFilter", REPETITION, {"n": n}) for n in (2, 5, 6, 7, 8, 9, 10)),
    Operation("PythonCommentToCodeFilter", CODE),
    Operation("GeneralCommentToCodeFilter", CODE, {"language": "text/x-c++"}),
    Operation("NumberOfLinesOfCodeFilter", CODE),
    Operation("XMLHeaderFilter", CODE),
    Operation("AlphaFilter", CODE),
    Operation("HTMLBoilerplateFilter", CODE),
    Operation("PerExtensionFilter", CODE, {"lang": "python", "extension": "py"}),
]

NOT_COMPARED = {
    "DocumentFilter": "the base class",
    "TokenizerFertilityFilter": "needs a SentencePiece model",
    "FastTextQualityFilter": "needs a fastText model; decides by a random number",
    "FastTextLangId": "needs a fastText model",
    "HistogramFilter": "downloads its histograms",
    "TokenCountFilter": "needs a tokenizer's files",
    "DocumentModifier": "the base class",
}
"""The peer's other classes, and why they are left out."""

MODIFIERS = [
    Operation("BoilerPlateStringModifier", "string"),
    Operation("BoilerPlateStringModifier", "string", {"remove_if_at_top_or_bottom": False}),
    Operation("LineRemover", "string", {"patterns": ["", "NAME", "BESCHREIBUNG", "-->"]}),
    Operation("MarkdownRemover", "string"),
    Operation("NewlineNormalizer", "string"),
    Operation("QuotationRemover", "string"),
    Operation("Slicer", "string", {"left": 10, "right": 200}),
    Operation("Slicer", "string", {"left": "the", "right": ".", "include_left": False}),
    Operation("UrlRemover", "string"),
    Operation("UnicodeReformatter", "unicode"),
    Operation("FastTextLabelModifier", "fasttext", {"label": "__label__hq"}),
]

CASCADE = [
    Operation("NonAlphaNumericFilter", STRING, {"max_non_alpha_numeric_to_text_ratio": 0.25}),
    Operation("SymbolsToWordsFilter", STRING, {"max_symbol_to_word_ratio": 0.1}),
    Operation("NumbersFilter", STRING, {"max_number_to_text_ratio": 0.15}),
    Operation("UrlsFilter", STRING, {"max_url_to_text_ratio": 0.2}),
    Operation("WhiteSpaceFilter", STRING, {"max_white_space_ratio": 0.25}),
    Operation("ParenthesesFilter", STRING, {"max_parentheses_ratio": 0.1}),
    Operation("BoilerPlateStringFilter", STRING, {"max_boilerplate_string_ratio": 0.4}),
    Operation("RepeatedLinesFilter", REPETITION, {"max_repeated_line_fraction": 0.7}),
    Operation("RepeatedParagraphsFilter", REPETITION, {"max_repeated_paragraphs_ratio": 0.7}),
    Operation("RepeatedLinesByCharFilter", REPETITION, {"max_repeated_lines_char_ratio": 0.8}),
    Operation("RepeatedParagraphsByCharFilter", REPETITION, {"max_repeated_paragraphs_char_ratio": 0.8}),
    Operation("WordCountFilter", STRING, {"min_words": 50, "max_words": 100_000}),
    Operation("PunctuationFilter", STRING, {"max_num_sentences_without_endmark_ratio": 0.85}),
    Operation("WordsWithoutAlphabetsFilter", STRING, {"min_words_with_alphabets": 0.8}),
    Operation("CommonEnglishWordsFilter", STRING, {"min_num_common_words": 2, "stop_at_false": True}),
    Operation("MeanWordLengthFilter", STRING, {"min_mean_word_length": 3, "max_mean_word_length": 10}),
    Operation("LongWordFilter", STRING, {"max_word_length": 1000}),
    Operation("EllipsisFilter", STRING, {"max_num_lines_ending_with_ellipsis_ratio": 0.3}),
    *(
        Operation("RepeatingTopNGramsFilter", REPETITION, {"n": n, "max_repeating_ngram_ratio": ratio})
        for n, ratio in ((2, 0.2), (3, 0.18), (4, 0.16))
    ),
    *(
        Operation("RepeatingDuplicateNGramsFilter", REPETITION, {"n": n, "max_repeating_duplicate_ngram_ratio": ratio})
        for n, ratio in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    ),
    Operation("BulletsFilter", STRING, {"max_bullet_lines_ratio": 0.9}),
]
"""The 28 filters of NeMo Curator's shipped English configuration, in its order (config/text of its wheel)."""

MODIFIERS_TIMED = [
    Operation("QuotationUnifier", ""),
    Operation("NewlineNormalizer", "string"),
    Operation("UrlRemover", "string"),
    Operation("MarkdownRemover", "string"),
    Operation("BoilerPlateStringModifier", "string"),
    Operation("LineRemover", "string", {"patterns": [""]}),
    Operation("QuotationRemover", "string"),
    Operation("Slicer", "string"),
    Operation("Slicer", "string", {"right": -5}),
    Operation("UnicodeReformatter", "unicode"),
]
"""The modifiers that are timed alone. The quotation unifier is that of the peer's tutorial."""
