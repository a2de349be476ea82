"""Modifiers that repair broken Unicode text, and bring it into a normal form."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa

from tamis.errors import MissingExtraError
from tamis.kernels.cleaning import rows_replaced
from tamis.kernels.needles import Needles, exactly
from tamis.kernels.suspects import NormalForm, Patterns, find_lines, marks_of
from tamis.stages.text.modifiers.base import DocumentModifier, modify_rows, modify_rows_with
from tamis.stages.text.modifiers.mojibake import find_suspects, repair_texts

if TYPE_CHECKING:
    import ftfy

__all__ = ["HtmlEntityUnescaper", "UnicodeNormalizer", "UnicodeReformatter"]

_ENTITIES = Needles.of(exactly("&#"), [*exactly("&"), (32, ord("a"), ord("z"))])


@dataclass
class UnicodeReformatter(DocumentModifier):
    """Repair broken text with ftfy: wrongly decoded (``schÃ¶n`` for ``schön``), with HTML entities and the like.

    Needs ``tamis[unicode]``. Only the lines in which ftfy could change something go through it, the others cost next to
    nothing; the result is that of ``ftfy.fix_text`` on the whole text. The options are those of
    ``ftfy.TextFixerConfig``; unlike there, quotation marks, ligatures, character widths and line breaks are left as
    they are by default, and text is not normalised.

    Args:
        config: All options at once, instead of the following ones.
        unescape_html: Replace HTML entities: always, never, or (``"auto"``) up to the first line with a ``<``.
        remove_terminal_escapes: Remove the codes that colour a terminal.
        fix_encoding: Repair text that was decoded with the wrong encoding.
        restore_byte_a0: With ``fix_encoding``: take a space for a non-breaking one where that repairs text.
        replace_lossy_sequences: With ``fix_encoding``: repair also where a byte was lost.
        decode_inconsistent_utf8: With ``fix_encoding``: repair parts of a text by themselves.
        fix_c1_controls: Replace control characters by what they are in Windows-1252.
        fix_latin_ligatures: Take ligatures such as ``ﬁ`` apart.
        fix_character_width: Replace full-width and half-width characters by ordinary ones.
        uncurl_quotes: Replace curly quotation marks by straight ones.
        fix_line_breaks: Make every kind of line break a newline.
        fix_surrogates: Join pairs of surrogates.
        remove_control_chars: Remove control characters that have no meaning in text.
        normalization: A Unicode normal form, such as ``"NFC"``, if it is wanted.
        max_decode_length: The longest piece that is repaired at once, in characters.
        explain: If false, ftfy takes no notice of the three options that go with ``fix_encoding``.

    >>> UnicodeReformatter().modify_document("schÃ¶n &amp; gut")
    'schön & gut'
    """

    config: ftfy.TextFixerConfig | None = None
    unescape_html: str | bool = field(default="auto", kw_only=True)
    remove_terminal_escapes: bool = field(default=True, kw_only=True)
    fix_encoding: bool = field(default=True, kw_only=True)
    restore_byte_a0: bool = field(default=True, kw_only=True)
    replace_lossy_sequences: bool = field(default=True, kw_only=True)
    decode_inconsistent_utf8: bool = field(default=True, kw_only=True)
    fix_c1_controls: bool = field(default=True, kw_only=True)
    fix_latin_ligatures: bool = field(default=False, kw_only=True)
    fix_character_width: bool = field(default=False, kw_only=True)
    uncurl_quotes: bool = field(default=False, kw_only=True)
    fix_line_breaks: bool = field(default=False, kw_only=True)
    fix_surrogates: bool = field(default=True, kw_only=True)
    remove_control_chars: bool = field(default=True, kw_only=True)
    normalization: str | None = field(default=None, kw_only=True)
    max_decode_length: int = field(default=1_000_000, kw_only=True)
    explain: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        try:
            import ftfy
        except ImportError as e:
            raise MissingExtraError("UnicodeReformatter", package="ftfy", extra="unicode") from e
        options: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "config"}
        self._config = ftfy.TextFixerConfig(**options) if self.config is None else self.config
        form, longest = self._config.normalization, self._config.max_decode_length
        if form is not None and form not in get_args(NormalForm):
            forms = ", ".join(get_args(NormalForm))
            raise ValueError(f"UnicodeReformatter(normalization={form!r}): one of {forms}, or None")
        if longest < 1:  # ftfy would never come to an end
            raise ValueError(f"UnicodeReformatter(max_decode_length={longest}): must be at least 1")

    @property
    def vectorised(self) -> bool:
        return False  # ftfy is Python code: where many lines need it, most of the time goes there

    def modify_document(self, text: str) -> str:
        import ftfy

        return ftfy.fix_text(text, self._config)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        chunks, given = [], column.chunks  # each access makes new objects
        for chunk in given:
            lines = find_suspects(chunk, self._config)
            if lines is None:
                return modify_rows(column, lambda chunk: range(len(chunk)), self)
            chunks.append(rows_replaced(chunk, repair_texts(chunk, lines, self._config)) if len(lines) else chunk)
        if all(new is old for new, old in zip(chunks, given, strict=True)):
            return column
        return pa.chunked_array(chunks, column.type)


@dataclass
class UnicodeNormalizer(DocumentModifier):
    """Bring text into a Unicode normal form, so that equal characters are equal bytes.

    Text that is in the form already is found out at the speed of reading it, and left alone.

    Args:
        form: ``"NFC"`` joins letters and their accents, ``"NFD"`` takes them apart; ``"NFKC"`` and ``"NFKD"`` also
            replace variants of characters (ligatures, full-width letters, superscripts), which loses something.

    >>> UnicodeNormalizer().modify_document("e\\u0301te\\u0301")
    'été'
    """

    form: NormalForm = "NFC"

    def __post_init__(self) -> None:
        if self.form not in get_args(NormalForm):
            raise ValueError(f"UnicodeNormalizer(form={self.form!r}): one of {', '.join(get_args(NormalForm))}")

    def modify_document(self, text: str) -> str:
        return unicodedata.normalize(self.form, text)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        def suspects(chunk: pa.Array) -> Iterable[int]:
            lines = find_lines(chunk, Patterns.none(), marks_of(self.form))
            return range(len(chunk)) if lines is None else np.unique(lines[:, 0]).tolist()

        return modify_rows(column, suspects, self)


@dataclass
class HtmlEntityUnescaper(DocumentModifier):
    """Replace HTML entities by the characters they stand for, with ``html.unescape``.

    That follows the HTML standard, by which some entities need no semicolon: ``&copy2020`` becomes ``©2020``. See
    :class:`UnicodeReformatter` for a more careful way, which leaves text with markup in it alone.

    >>> HtmlEntityUnescaper().modify_document("Q&amp;A &lt;3 &#8364;5 R&D")
    'Q&A <3 €5 R&D'
    """

    def modify_document(self, text: str) -> str:
        return html.unescape(text)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return modify_rows_with(column, self, _ENTITIES)
