"""Numbers that the kernels that tokenise and their callers share."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CHECKED",
    "COMPOSED",
    "GPT2",
    "GPT4",
    "ISOLATED",
    "JOINS",
    "LEADS",
    "LETTER",
    "NUMBER",
    "SEPARATOR",
    "UNKNOWN",
    "WHITE",
    "WHOLE",
    "WORD",
]

WHOLE: Final = 0
"""A text is one piece."""
GPT2: Final = 1
"""The regular expression of GPT-2."""
GPT4: Final = 2
"""That of GPT-4, Llama 3 and Qwen 2: letters take any character before them, and line ends are kept together."""

LETTER: Final = 1
NUMBER: Final = 2
WHITE: Final = 4
UNKNOWN: Final = 8
"""A text with this character is left to the library."""
LEADS: Final = 16
"""A character that others compose with, in normalisation form C."""
JOINS: Final = 32
"""A character that composes with one before it."""
CHECKED: Final = 64
"""A mark or another character that form C may move or compose."""
COMPOSED: Final = 128
"""A character that never occurs in form C."""

WORD: Final = 0
"""A character of words, or one that is removed from them."""
SEPARATOR: Final = 1
"""A character between words, which is dropped."""
ISOLATED: Final = 2
"""A character that is a word."""
