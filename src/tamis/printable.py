"""Text from data, file names and other programs, made safe to show."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MESSAGE_CHARACTERS", "printable", "shortened"]

MESSAGE_CHARACTERS: Final = 8_000
"""How much of an error message is shown and recorded, in characters."""

# Control characters except tab and line feed; invisible and direction-changing characters; half surrogate pairs.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str, limit: int | None = None) -> str:
    r"""The text with its control characters spelled out, so that it cannot control a terminal or a page.

    Args:
        text: Any text.
        limit: The most characters to keep, see :func:`shortened`; all when not given.

    >>> printable("a\x1b[31mb\u202e")
    'a\\x1b[31mb\\u202e'
    """
    text = text if limit is None else shortened(text, limit)
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def shortened(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """The beginning and the end of a text that is longer than ``limit`` characters, and how much is missing.

    >>> shortened("a" * 3_000_000 + "the end", 12)
    'aaaaaaaa\\n[... 2,999,995 characters cut ...]\\n end'
    """
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[... {len(text) - limit:,} characters cut ...]\n{text[len(text) - tail :]}"
