"""Modifiers that replace and remove parts of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

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

# Words that the phrases have in common, and then their beginnings. The Kelvin sign is the one character outside ASCII
# whose lower case is a letter of the phrases.
_BOILERPLATE = (
    Needles.of(*map(any_case, (LOREM_IPSUM, "terms of use", "privacy ", "cookie")), exactly("\u212a")),
    Needles.of(*(any_case(phrase[:60]) for phrase in (LOREM_IPSUM, *POLICIES)), exactly("\u212a")),
)


class _Substitution(DocumentModifier):
    """A modifier that replaces what patterns find, one pattern after the other."""

    patterns: ClassVar[dict[str, str]]
    """What replaces the matches of each."""
    operation: ClassVar[int]
    """The kernel's operation that does the same."""

    def modify_document(self, text: str) -> str:
        for pattern, replacement in self.patterns.items():
            text = re.sub(pattern, replacement, text)
        return text

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return clean_column(column, Cleaning(self.operation), self)


@dataclass
class QuotationUnifier(_Substitution):
    """Replace curly quotation marks by straight ones: ``‘ ’ ‚ ‛`` by ``'`` and ``“ ” „ ‟`` by ``"``.

    The full-width ``＇ ＂`` are replaced, too. Guillemets, the quotation marks of other languages, are not.

    >>> QuotationUnifier().modify_document("“It’s me”")
    '"It\\'s me"'
    """  # noqa: RUF002 - these characters are what it is about

    patterns: ClassVar[dict[str, str]] = {"[‘’‚‛＇]": "'", "[“”„‟＂]": '"'}  # noqa: RUF001 - they are meant
    operation = operations.QUOTES


@dataclass
class NewlineNormalizer(_Substitution):
    """Shorten runs of three or more newlines (``\\n`` or ``\\r\\n``) to two.

    >>> NewlineNormalizer().modify_document("a\\n\\n\\n\\nb")
    'a\\n\\nb'
    """

    patterns: ClassVar[dict[str, str]] = {r"\n{3,}": "\n\n", r"(?:\r\n){3,}": "\r\n\r\n"}
    operation = operations.NEWLINES


@dataclass
class UrlRemover(_Substitution):
    """Remove web addresses: what begins with ``http://``, ``https://`` or ``www.``, up to the next white space.

    >>> UrlRemover().modify_document("see https://example.org/a?b for more")
    'see  for more'
    """

    patterns: ClassVar[dict[str, str]] = {r"(?i)https?://\S+|www\.\S+": ""}
    operation = operations.URLS


@dataclass
class ControlCharacterRemover(_Substitution):
    """Remove control characters (U+0000 to U+001F, U+007F to U+009F) except tabs and newlines.

    A carriage return, with a newline after it or without, becomes a newline.

    >>> ControlCharacterRemover().modify_document("a\\x00b\\r\\nc\\td")
    'ab\\nc\\td'
    """

    patterns: ClassVar[dict[str, str]] = {r"\r\n?": "\n", r"[\x00-\x08\x0b-\x1f\x7f-\x9f]": ""}
    operation = operations.CONTROLS


@dataclass
class WhitespaceCollapser(_Substitution):
    """Make each run of spaces and tabs one space, and leave none at the end of a line or of the text.

    Newlines stay as they are.

    >>> WhitespaceCollapser().modify_document("a \\t b  \\n\\n  c ")
    'a b\\n\\n c'
    """

    patterns: ClassVar[dict[str, str]] = {r"[ \t]{2,}|\t": " ", r" \n": "\n", r" \Z": ""}
    operation = operations.BLANKS


@dataclass
class MarkdownRemover(_Substitution):
    """Remove Markdown for bold, italic and underlined text within a line, and replace links by their address.

    In this order: ``**x**``, ``*x*`` and ``_x_`` become ``x``, ``[x](y)`` becomes ``y``. Mind that ``_x_`` is found
    in ``snake_case_names``, too.

    >>> MarkdownRemover().modify_document("**Note**: see [the *site*](http://a.bc)")
    'Note: see http://a.bc'
    """

    patterns: ClassVar[dict[str, str]] = dict.fromkeys(
        (r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"_(.*?)_", r"\[.*?\]\((.*?)\)"), r"\1"
    )
    operation = operations.MARKDOWN


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
