"""Modifiers that replace and remove parts of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from tamis.kernels import operations
from tamis.kernels.cleaning import Cleaning, remove_lines, take_slice
from tamis.kernels.heuristics import LOREM_IPSUM, POLICIES
from tamis.kernels.needles import Needles, any_case, exactly
from tamis.stages.text.modifiers.base import DocumentModifier, clean_column, modify_rows_with

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

_URL = re.compile(r"https?://\S+|www\.\S+", re.IGNORECASE)
_NEWLINES = ((re.compile(r"\n{3,}"), "\n\n"), (re.compile(r"(?:\r\n){3,}"), "\r\n\r\n"))
_CONTROL_CHARACTERS = ((re.compile(r"\r\n?"), "\n"), (re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"), ""))
_BLANKS = ((re.compile(r"[ \t]{2,}|\t"), " "), (re.compile(r" \n"), "\n"))
_MARKDOWN = tuple(
    (re.compile(pattern), r"\1") for pattern in (r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"_(.*?)_", r"\[.*?\]\((.*?)\)")
)
# Words that the phrases have in common, and then their beginnings. The Kelvin sign is the one character outside ASCII
# whose lower case is a letter of the phrases.
_BOILERPLATE = (
    Needles.of(*map(any_case, (LOREM_IPSUM, "terms of use", "privacy ", "cookie")), exactly("\u212a")),
    Needles.of(*(any_case(phrase[:60]) for phrase in (LOREM_IPSUM, *POLICIES)), exactly("\u212a")),
)


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
        return clean_column(column, Cleaning(operations.QUOTES), self)


@dataclass
class NewlineNormalizer(DocumentModifier):
    """Shorten runs of three or more newlines (``\\n`` or ``\\r\\n``) to two.

    >>> NewlineNormalizer().modify_document("a\\n\\n\\n\\nb")
    'a\\n\\nb'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, _NEWLINES)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return clean_column(column, Cleaning(operations.NEWLINES), self)


@dataclass
class UrlRemover(DocumentModifier):
    """Remove web addresses: what begins with ``http://``, ``https://`` or ``www.``, up to the next white space.

    >>> UrlRemover().modify_document("see https://example.org/a?b for more")
    'see  for more'
    """

    def modify_document(self, text: str) -> str:
        return _URL.sub("", text)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return clean_column(column, Cleaning(operations.URLS), self)


@dataclass
class ControlCharacterRemover(DocumentModifier):
    """Remove control characters (U+0000 to U+001F, U+007F to U+009F) except tabs and newlines.

    A carriage return, with a newline after it or without, becomes a newline.

    >>> ControlCharacterRemover().modify_document("a\\x00b\\r\\nc\\td")
    'ab\\nc\\td'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, _CONTROL_CHARACTERS)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return clean_column(column, Cleaning(operations.CONTROLS), self)


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
        return clean_column(column, Cleaning(operations.BLANKS), self)


@dataclass
class MarkdownRemover(DocumentModifier):
    """Remove Markdown for bold, italic and underlined text within a line, and replace links by their address.

    In this order: ``**x**``, ``*x*`` and ``_x_`` become ``x``, ``[x](y)`` becomes ``y``. Mind that ``_x_`` is found
    in ``snake_case_names``, too.

    >>> MarkdownRemover().modify_document("**Note**: see [the *site*](http://a.bc)")
    'Note: see http://a.bc'
    """

    def modify_document(self, text: str) -> str:
        return _substitute(text, _MARKDOWN)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return clean_column(column, Cleaning(operations.MARKDOWN), self)


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
        return clean_column(column, Cleaning(operations.QUOTED), self)


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
        return clean_column(column, remove_lines(self.patterns), self)


@dataclass
class Slicer(DocumentModifier):
    """Keep a part of each text.

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

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        part = take_slice(self.left, self.right, self.include_left, self.include_right, self.strip)
        return clean_column(column, part, self)


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
        return modify_rows_with(column, self, *_BOILERPLATE)


def _substitute(text: str, substitutions: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    for pattern, replacement in substitutions:
        text = pattern.sub(replacement, text)
    return text
