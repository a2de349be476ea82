"""Modifiers that replace and remove parts of a text."""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tamis.kernels.utf8 import WHITE_SPACE
from tamis.stages.text.filters.lines import LOREM_IPSUM, POLICIES, may_hold_boilerplate
from tamis.stages.text.modifiers.base import DocumentModifier, modify_rows, replace_rows, to_polars

__all__ = [
    "BoilerPlateStringModifier",
    "ControlCharacterRemover",
    "LineRemover",
    "MarkdownRemover",
    "NewlineNormalizer",
    "QuotationRemover",
    "QuotationUnifier",
    "Slicer",
    "UrlRemover",
    "WhitespaceCollapser",
]

_STRAIGHT_QUOTES = {**dict.fromkeys("‘’‚‛＇", "'"), **dict.fromkeys("“”„‟＂", '"')}  # noqa: RUF001 - they are meant
_TO_STRAIGHT_QUOTES = str.maketrans(_STRAIGHT_QUOTES)

# These patterns mean the same to Python and to Polars. So \S is spelt out, as Polars knows fewer kinds of white space.
_NO_SPACE = "[^" + "".join(f"\\u{ord(space):04x}" for space in WHITE_SPACE) + "]"
_URL = rf"(?i)https?://{_NO_SPACE}+|www\.{_NO_SPACE}+"
_NEWLINES = ((r"\n{3,}", "\n\n"), (r"(?:\r\n){3,}", "\r\n\r\n"))
_CONTROL_CHARACTERS = ((r"\r\n?", "\n"), (r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", ""))
_BLANKS = ((r"[ \t]{2,}|\t", " "), (r" \n", "\n"))
_MARKDOWN = (r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"_(.*?)_", r"\[.*?\]\((.*?)\)")


@dataclass
class QuotationUnifier(DocumentModifier):
    """Replace curly quotation marks by straight ones: ``‘ ’ ‚ ‛`` by ``'`` and ``“ ” „ ‟`` by ``"``.

    The full-width ``＇ ＂`` are replaced, too. Guillemets, the quotation marks of other languages, are not.

    >>> QuotationUnifier().modify_document("“It’s me”")
    '"It\\'s me"'
    """  # noqa: RUF002 - these characters are what it is about

    def modify_document(self, text: str) -> str:
        return text.translate(_TO_STRAIGHT_QUOTES)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        texts, quotes = to_polars(column), list(_STRAIGHT_QUOTES)
        suspects = texts.str.contains_any(quotes).fill_null(False)
        straight = texts.filter(suspects).str.replace_many(quotes, list(_STRAIGHT_QUOTES.values()))
        return replace_rows(column, suspects, straight)


@dataclass
class NewlineNormalizer(DocumentModifier):
    """Shorten runs of three or more newlines (``\\n`` or ``\\r\\n``) to two.

    >>> NewlineNormalizer().modify_document("a\\n\\n\\n\\nb")
    'a\\n\\nb'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, _NEWLINES)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return _substitute_column(column, _NEWLINES)


@dataclass
class UrlRemover(DocumentModifier):
    """Remove web addresses: what begins with ``http://``, ``https://`` or ``www.``, up to the next white space.

    >>> UrlRemover().modify_document("see https://example.org/a?b for more")
    'see  for more'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, ((_URL, ""),))

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return _substitute_column(column, ((_URL, ""),))


@dataclass
class ControlCharacterRemover(DocumentModifier):
    """Remove control characters (U+0000 to U+001F, U+007F to U+009F) except tabs and newlines.

    A carriage return, with a newline behind it or without, becomes a newline.

    >>> ControlCharacterRemover().modify_document("a\\x00b\\r\\nc\\td")
    'ab\\nc\\td'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, _CONTROL_CHARACTERS)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return _substitute_column(column, _CONTROL_CHARACTERS)


@dataclass
class WhitespaceCollapser(DocumentModifier):
    """Make each run of spaces and tabs one space, and leave none at the end of a line or of the text.

    Newlines stay as they are.

    >>> WhitespaceCollapser().modify_document("a \\t b  \\n\\n  c ")
    'a b\\n\\n c'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, _BLANKS).removesuffix(" ")

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        column = _substitute_column(column, _BLANKS)
        texts = to_polars(column)
        suspects = texts.str.ends_with(" ").fill_null(False)
        return replace_rows(column, suspects, texts.filter(suspects).str.strip_suffix(" "))


@dataclass
class MarkdownRemover(DocumentModifier):
    """Remove Markdown for bold, italic and underlined text within a line, and replace links by their address.

    In this order: ``**x**``, ``*x*`` and ``_x_`` become ``x``, ``[x](y)`` becomes ``y``. Mind that ``_x_`` is found
    in ``snake_case_names``, too.

    >>> MarkdownRemover().modify_document("**Note**: see [the *site*](http://a.bc)")
    'Note: see http://a.bc'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, tuple((pattern, r"\1") for pattern in _MARKDOWN))

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return _substitute_column(column, tuple((pattern, "${1}") for pattern in _MARKDOWN))


@dataclass
class QuotationRemover(DocumentModifier):
    """Remove the straight double quotation marks around a whole text.

    Nothing is removed if the first of several lines ends with such a mark: then the lines are quoted, not the text.

    >>> QuotationRemover().modify_document('"a text"')
    'a text'
    """

    def modify_document(self, text: str) -> str:
        quoted = len(text) > 2 and text.startswith('"') and text.endswith('"')
        first, newline, _ = text.partition("\n")
        return text[1:-1] if quoted and not (newline and first.endswith('"')) else text

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        texts = to_polars(column)
        quoted = texts.str.starts_with('"') & texts.str.ends_with('"') & (texts.str.len_chars() > 2)
        removed = (quoted & ~texts.str.contains(r'\A[^\n]*"\n')).fill_null(False)
        return replace_rows(column, removed, texts.filter(removed).str.strip_prefix('"').str.strip_suffix('"'))


@dataclass
class LineRemover(DocumentModifier):
    """Remove the lines that are equal to one of some texts.

    Args:
        patterns: The lines to remove, exactly as they are.

    >>> LineRemover(["Share", "Print"]).modify_document("Title\\nShare\\nText")
    'Title\\nText'
    """

    patterns: list[str]

    def __post_init__(self) -> None:
        if isinstance(self.patterns, str):
            raise TypeError(f"LineRemover(patterns={self.patterns!r}): give a list of lines")

    def modify_document(self, text: str) -> str:
        return "\n".join(line for line in text.split("\n") if line not in self.patterns)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        texts, patterns = to_polars(column), list(self.patterns)
        if not patterns:
            return column
        # An empty line contains no text that could be searched for.
        suspects = texts.is_not_null() if "" in patterns else texts.str.contains_any(patterns).fill_null(False)
        others = pl.element().filter(~pl.element().is_in(patterns))
        return replace_rows(column, suspects, texts.filter(suspects).str.split("\n").list.eval(others).list.join("\n"))


@dataclass
class Slicer(DocumentModifier):
    """Keep a part of each text. Works text by text.

    Args:
        left: Where the part begins: a position in characters, or a text, of which the first occurrence counts.
        right: Where it ends: a position (not included), or a text, of which the last occurrence counts; ``None``: at
            the end.
        include_left: Whether ``left``, if it is a text, belongs to the part.
        include_right: Whether ``right``, if it is a text, belongs to the part.
        strip: Remove white space from both ends of the part.

    A text in which ``left`` or ``right`` is not found becomes empty.

    >>> Slicer(left="<b>", right="</b>", include_left=False, include_right=False).modify_document("a <b>c</b> d")
    'c'
    """

    left: int | str | None = 0
    right: int | str | None = None
    include_left: bool = True
    include_right: bool = True
    strip: bool = True

    def modify_document(self, text: str) -> str:
        left, right = self.left, self.right
        if isinstance(left, str):
            found = text.find(left)
            if found < 0:
                return ""
            left = found if self.include_left else found + len(left)
        if isinstance(right, str):
            found = text.rfind(right)
            if found < 0:
                return ""
            right = found + len(right) if self.include_right else found
        part = text[left:right]
        return part.strip() if self.strip else part


@dataclass
class BoilerPlateStringModifier(DocumentModifier):
    """Remove paragraphs of small print: terms of use, privacy and cookie policies.

    A text with "lorem ipsum" in it becomes empty. The phrases are those of
    :class:`~tamis.stages.text.filters.BoilerPlateStringFilter`.

    Args:
        remove_if_at_top_or_bottom: Remove such paragraphs where they are one block at the top or at the bottom and
            not the whole text, and leave the text alone otherwise. If false, a text with such a paragraph becomes
            empty.

    >>> BoilerPlateStringModifier().modify_document("News.\\n\\nThis site uses cookies.")
    'News.'
    """

    remove_if_at_top_or_bottom: bool = True

    def modify_document(self, text: str) -> str:
        paragraphs = text.split("\n\n")
        lowered = [paragraph.lower() for paragraph in paragraphs]
        if any(LOREM_IPSUM in paragraph for paragraph in lowered):
            return ""
        found = [i for i, paragraph in enumerate(lowered) if any(policy in paragraph for policy in POLICIES)]
        if not found:
            return text
        if not self.remove_if_at_top_or_bottom:
            return ""
        first, last = found[0], found[-1]
        is_one_block = last - first + 1 == len(found) < len(paragraphs)
        if is_one_block and (first == 0 or last == len(paragraphs) - 1):
            return "\n\n".join(paragraphs[:first] + paragraphs[last + 1 :])
        return text

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return modify_rows(column, may_hold_boilerplate(to_polars(column)), self)


def _substitute(text: str, substitutions: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in substitutions:
        text = re.sub(pattern, replacement, text)
    return text


def _substitute_column(column: pa.ChunkedArray, substitutions: tuple[tuple[str, str], ...]) -> pa.ChunkedArray:
    texts = to_polars(column)
    # A text in which no pattern is found is not changed by the first, so not by the second, and so on.
    suspects = functools.reduce(operator.or_, (texts.str.contains(pattern) for pattern, _ in substitutions))
    suspects = suspects.fill_null(False)
    changed = texts.filter(suspects)
    for pattern, replacement in substitutions:
        changed = changed.str.replace_all(pattern, replacement)
    return replace_rows(column, suspects, changed)
