"""Modifiers that repair broken Unicode text."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.errors import MissingExtraError
from tamis.stages.text.modifiers.base import DocumentModifier, modify_rows, to_polars

if TYPE_CHECKING:
    import ftfy

__all__ = ["UnicodeReformatter"]

# Plain ASCII without control characters (but for tabs and newlines) and without "&", which may begin an HTML entity,
# is text that no option of ftfy changes.
_MAY_CHANGE = r"[^\t\n\x20-\x25\x27-\x7e]"


@dataclass
class UnicodeReformatter(DocumentModifier):
    """Repair broken text with ftfy: wrongly decoded (``schÃ¶n`` for ``schön``), with HTML entities and the like.

    Needs ``tamis[unicode]``. Texts that are plain ASCII are not touched and cost next to nothing; the others go through
    ftfy one by one. The options are those of ``ftfy.TextFixerConfig``; unlike there, quotation marks, ligatures,
    character widths and line breaks are left as they are by default, and text is not normalised.

    Args:
        config: All options at once, instead of the following ones.
        unescape_html: Replace HTML entities: always, never, or (``"auto"``) where the text has no ``<``.
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
        explain: Of no effect here.

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
    explain: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        try:
            import ftfy
        except ImportError as e:
            raise MissingExtraError("UnicodeReformatter", package="ftfy", extra="unicode") from e
        options: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "config"}
        self._config = ftfy.TextFixerConfig(**options) if self.config is None else self.config

    @property
    def vectorised(self) -> bool:
        return False  # ftfy is Python code: most of the time goes into the few texts that need it

    def modify_document(self, text: str) -> str:
        import ftfy

        return ftfy.fix_text(text, self._config)

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return modify_rows(column, to_polars(column).str.contains(_MAY_CHANGE), self)
