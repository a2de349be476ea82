"""Filters for source code: how much of it is comment, how long its lines are, whether it is data in disguise.

The rules are those of StarCoder's data (Li et al., 2023, https://arxiv.org/abs/2305.06161), with the names, parameters
and scores of NeMo Curator. No text makes a filter raise; an empty one has no comments, letters or tokens.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MissingExtraError, did_you_mean
from tamis.kernels import measures
from tamis.kernels.utf8 import CharacterSet, character_counts, measure
from tamis.stages.text.filters.base import NOT_NEGATIVE, SHARE, ThresholdFilter, text_series
from tamis.stages.text.filters.code_extensions import rules_for
from tamis.stages.text.filters.comments import LANGUAGES, UnreadableSource, comments_of, python_comments
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio
from tamis.stages.text.filters.words import letters
from tamis.stages.text.forms import well_formed

__all__ = [
    "AlphaFilter",
    "GeneralCommentToCodeFilter",
    "HTMLBoilerplateFilter",
    "NumberOfLinesOfCodeFilter",
    "PerExtensionFilter",
    "PythonCommentToCodeFilter",
    "TokenizerFertilityFilter",
    "XMLHeaderFilter",
]

_UNREADABLE = 9999.0
_XML_HEADER = "<?xml version="
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,.")


@dataclass
class PythonCommentToCodeFilter(ThresholdFilter):
    """Drop Python programs with hardly any comments, or with little else.

    Score: the characters of comments (with their ``#``) and docstrings / all characters; 0.0 for an empty text and for
    what is not Python.

    Args:
        min_comment_to_code_ratio: The lowest share that is kept, 0 to 1.
        max_comment_to_code_ratio: The highest share that is kept, 0 to 1.

    >>> PythonCommentToCodeFilter().score_document("x = 1  # one\\n")
    0.38461538461538464
    """

    min_comment_to_code_ratio: float = 0.01
    max_comment_to_code_ratio: float = 0.85
    name = "python_comment_ratio"
    score_range = SHARE

    def score_document(self, text: str) -> float:
        try:
            written = len("\n".join(_docstrings(text))) + sum(map(len, python_comments(text)))
        except UnreadableSource:
            return 0.0
        return written / len(text) if text else 0.0


@dataclass
class GeneralCommentToCodeFilter(ThresholdFilter):
    """Drop programs with hardly any comments, or with little else.

    Score: the characters of comments, without the marks around them and joined by spaces / all characters; 0.0 for an
    empty text, 9999.0 (never kept) where a comment does not end or a Python program cannot be read.

    Args:
        language: The language as a MIME type, such as ``"text/x-c"``: one of ``comments.LANGUAGES``. An unknown one is
            refused (NeMo Curator drops every document instead).
        min_comment_to_code_ratio: The lowest share that is kept, 0 to 1.
        max_comment_to_code_ratio: The highest share that is kept, 0 to 1.

    >>> GeneralCommentToCodeFilter("text/x-java").score_document("f(); // go")
    0.3
    """

    language: str
    min_comment_to_code_ratio: float = 0.01
    max_comment_to_code_ratio: float = 0.85
    name = "comment_ratio"
    score_range = SHARE

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(
                f"GeneralCommentToCodeFilter(language={self.language!r}): comments are known of "
                f"{', '.join(LANGUAGES)}.{did_you_mean(self.language, LANGUAGES)}"
            )

    def score_document(self, text: str) -> float:
        try:
            comments = " ".join(comments_of(text, self.language))
        except UnreadableSource:
            return _UNREADABLE
        return len(comments) / len(text) if text else 0.0


@dataclass
class NumberOfLinesOfCodeFilter(MeasuredFilter):
    """Drop files with too few or too many lines.

    Score: the number of newlines, and one more.

    Args:
        min_lines: The lowest number that is kept.
        max_lines: The highest number that is kept.

    >>> NumberOfLinesOfCodeFilter().score_document("a\\nb")
    2
    """

    min_lines: int = 10
    max_lines: int = 20000
    name = "num_lines"
    measured = Ratio(measures.ALL_LINES)

    def score_document(self, text: str) -> int:
        return text.count("\n") + 1


@dataclass
class TokenizerFertilityFilter(ThresholdFilter):
    """Drop files that a tokenizer cuts into very short pieces: data, keys, minified programs.

    Score: characters / tokens; -1.0 if there is no token. Needs ``pip install -e '.[code]'``.

    Args:
        path_to_tokenizer: A SentencePiece model file.
        min_char_to_token_ratio: The lowest number of characters per token that is kept.

    >>> TokenizerFertilityFilter("nowhere.model")
    Traceback (most recent call last):
    FileNotFoundError: TokenizerFertilityFilter(path_to_tokenizer='nowhere.model'): there is no such file
    """

    path_to_tokenizer: str | None = None
    min_char_to_token_ratio: float = 2.5
    name = "tokenizer_fertility"
    score_range = NOT_NEGATIVE

    def __post_init__(self) -> None:
        if self.path_to_tokenizer is None:
            raise ValueError("TokenizerFertilityFilter(path_to_tokenizer=None): give the path of a SentencePiece model")
        if not os.path.isfile(self.path_to_tokenizer):
            raise FileNotFoundError(
                f"TokenizerFertilityFilter(path_to_tokenizer={self.path_to_tokenizer!r}): there is no such file"
            )
        self._tokenizer: Any = None

    def load_tokenizer(self) -> None:
        """Load the model, once in each worker."""
        try:
            import sentencepiece
        except ImportError as e:
            raise MissingExtraError("TokenizerFertilityFilter", package="sentencepiece", extra="code") from e
        self._tokenizer = sentencepiece.SentencePieceProcessor(model_file=self.path_to_tokenizer)

    def score_document(self, text: str) -> float:
        if self._tokenizer is None:
            self.load_tokenizer()
        tokens = len(self._tokenizer.encode(well_formed(text)))
        return len(text) / tokens if tokens else -1.0


@dataclass
class XMLHeaderFilter(ThresholdFilter):
    """Drop XML that goes by the name of something else.

    Score: 1 if ``<?xml version=`` is near the beginning, else 0.

    Args:
        char_prefix_search_length: How near: within so many characters.

    >>> XMLHeaderFilter().score_document('<?xml version="1.0"?><a/>')
    1
    """

    char_prefix_search_length: int = 100
    name = "xml_header"

    def __post_init__(self) -> None:
        if self.char_prefix_search_length < 0:
            raise ValueError(
                f"XMLHeaderFilter(char_prefix_search_length={self.char_prefix_search_length}): must not be negative"
            )

    def bounds(self) -> tuple[float | None, float | None]:
        return None, 0

    def reason(self) -> str:
        return "begins with an XML header"

    def score_document(self, text: str) -> int:
        return int(_XML_HEADER in text[: self.char_prefix_search_length])

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        beginnings = text_series(column).str.slice(0, self.char_prefix_search_length)
        return beginnings.str.contains(_XML_HEADER, literal=True).to_numpy().astype(np.int64)


@dataclass
class AlphaFilter(MeasuredFilter):
    """Drop files that are tables or tensors in text form.

    Score: the share of characters with the Unicode property ``Alphabetic`` (``[[:alpha:]]``); 0.0 for an empty text.

    Args:
        min_alpha_ratio: The lowest share that is kept, 0 to 1.

    >>> AlphaFilter().score_document("0, 1, x1")
    0.125
    """

    min_alpha_ratio: float = 0.25
    name = "alpha_filter"
    score_range = SHARE
    measured = Ratio(measures.LETTERS, measures.CHARACTERS, empty=0.0)

    def score_document(self, text: str) -> float:
        return len(letters().findall(text)) / len(text) if text else 0.0


@dataclass
class HTMLBoilerplateFilter(ThresholdFilter):
    """Drop HTML that shows hardly any text.

    Score: the characters a reader would see (no tags, no scripts, no style sheets) / all characters; 0.0 if there are
    fewer than ``min_lang_content_num_chars`` of them, or if it cannot be read as HTML. Needs
    ``pip install -e '.[code]'``.

    Args:
        min_lang_content_ratio: The lowest share that is kept, 0 to 1.
        min_lang_content_num_chars: The least number of characters of visible text.

    >>> page = "<style>p {color: red}</style><p>" + "Visible text. " * 10 + "</p>"
    >>> round(HTMLBoilerplateFilter().score_document(page), 2)
    0.8
    """

    min_lang_content_ratio: float = 0.2
    min_lang_content_num_chars: int = 100
    name = "html_boilerplate"
    score_range = SHARE

    def __post_init__(self) -> None:
        if importlib.util.find_spec("bs4") is None:
            raise MissingExtraError("HTMLBoilerplateFilter", package="beautifulsoup4", extra="code")

    def check_parameters(self) -> None:
        super().check_parameters()
        self._require("min_lang_content_num_chars", NOT_NEGATIVE)

    def score_document(self, text: str) -> float:
        visible = _visible_characters(text)
        return visible / len(text) if text and visible >= self.min_lang_content_num_chars else 0.0


@dataclass
class PerExtensionFilter(ThresholdFilter):
    """Drop files by rules that depend on their language and file name ending.

    Score: 1 if the rule for the language and ending includes such files and the longest line, the mean length of lines,
    the share of plain characters (ASCII letters and digits, newlines, ``? ! , .``) and the share of letters are within
    its limits; else 0. An ending without a rule scores 0.

    Args:
        lang: The language, as people write it or as the table has it: ``"C#"`` and ``"c-sharp"`` are the same.
        extension: The file name ending without a dot; empty or ``None`` for files that have none.
        metadata_file: A CSV file with the rules, in the columns ``language``, ``extension``, ``Include`` (1 or 0),
            ``Long_line_threshold``, ``Alphanum_threshold`` and ``Alpha filter``. If there is no file of the default's
            name, the rules that come with tamis are used.

    >>> PerExtensionFilter("Python", "py").score_document("x = 1\\n")
    1
    >>> PerExtensionFilter("Pyton", "py")
    Traceback (most recent call last):
    ValueError: PerExtensionFilter(lang='Pyton'): there are no rules for it. Did you mean 'python'?
    """

    lang: str
    extension: str | None
    metadata_file: str = "code_meta.csv"
    name = "per_extension_filter"

    def __post_init__(self) -> None:
        rules = rules_for(self.lang, self.metadata_file)
        self._rule = rules.get(self.extension or "")

    def bounds(self) -> tuple[float | None, float | None]:
        return 1, None

    def reason(self) -> str:
        ending = f"ending in .{self.extension}" if self.extension else "without an ending"
        what = f"{self.lang} files {ending}"
        if self._rule is None:
            return f"no rule for {what}"
        return f"outside the limits for {what}" if self._rule.include else f"{what} are left out"

    def score_document(self, text: str) -> int:
        rule = self._rule
        if rule is None or not rule.include:
            return 0
        lines = text.split("\n")
        too_long = rule.max_line_chars is not None and (
            max(map(len, lines)) > rule.max_line_chars or (len(text) + 1) / len(lines) - 1 > rule.max_mean_line_chars
        )
        plain = sum(c in _PLAIN for c in text) / len(text) if text else 0.0
        too_odd = rule.min_alphanumeric is not None and plain < rule.min_alphanumeric
        too_few = rule.min_alphabetic is not None and sum(map(str.isalpha, text)) < rule.min_alphabetic * len(text)
        return int(not (too_long or too_odd or too_few))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        import polars as pl

        rule, texts = self._rule, text_series(column)
        if rule is None or not rule.include:
            return np.zeros(len(texts), np.int64)
        lengths = measure(column, character_counts)
        kept = np.ones(len(texts), np.bool_)
        if rule.max_line_chars is not None:
            lines = texts.str.split("\n")
            longest = lines.list.eval(pl.element().str.len_chars()).list.max().to_numpy()
            mean = (lengths + 1) / lines.list.len().to_numpy() - 1
            kept &= (longest <= rule.max_line_chars) & (mean <= rule.max_mean_line_chars)
        if rule.min_alphanumeric is not None:
            plain = measure(column, CharacterSet(_PLAIN).counts)
            shares = np.divide(plain, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
            kept &= shares >= rule.min_alphanumeric
        if rule.min_alphabetic is not None:
            kept &= measure(column, _all_letters().counts) >= rule.min_alphabetic * lengths
        return kept.astype(np.int64)


@functools.cache
def _all_letters() -> CharacterSet:
    """The characters for which ``str.isalpha()`` holds."""
    return CharacterSet(filter(str.isalpha, map(chr, range(sys.maxunicode + 1))))


def _docstrings(source: str) -> Iterator[str]:
    """The docstrings of a Python program: of the module, its classes and its functions (not of ``async def``)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser has opinions on what it reads, such as odd escapes
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:  # the last two: nested too deeply
        raise UnreadableSource(str(e)) from e
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (docstring := ast.get_docstring(node)):
            yield docstring


def _visible_characters(page: str) -> int:
    """How many characters of a page are seen; 0 for what cannot be read."""
    import bs4

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # text that looks like an address, XML that is read as HTML
            soup = bs4.BeautifulSoup(page, features="html.parser")
    except (bs4.exceptions.ParserRejectedMarkup, TypeError, UnboundLocalError, RecursionError):
        return 0
    for hidden in soup(["script", "style"]):
        hidden.extract()
    return len(soup.get_text())
