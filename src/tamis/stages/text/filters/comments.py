"""The comments in a source file, found without parsing the rest of it.

What counts as a comment, and where a literal hides one, is as in the package ``comment_parser``, so that scores agree.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["LANGUAGES", "UnreadableSource", "comments_of", "python_comments"]

_STRING: Final = r'"(?:[^"\\]++|\\.)*+"?'
_CHARACTERS: Final = r"'(?:[^'\\]++|\\.)*+'?"
_RAW_STRING: Final = r"`(?:[^`\\]++|\\.)*+`?"
_SHORT_STRING: Final = r'(?:"[^"\n]*")+'
_SLASHES: Final = r"//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|(?P<open>/\*)"

_C: Final = re.compile(f"{_SHORT_STRING}|{_SLASHES}", re.DOTALL)
# A slash that does not begin a comment is skipped together with the character after it.
_JAVASCRIPT: Final = re.compile(f"{_STRING}|{_CHARACTERS}|{_SLASHES}|/.", re.DOTALL)
_GO: Final = re.compile(f"{_STRING}|{_CHARACTERS}|{_RAW_STRING}|{_SLASHES}|/.", re.DOTALL)
_MARKUP: Final = re.compile(rf"{_SHORT_STRING}|<!--(?P<block>.*?)-->|(?P<open><!--)", re.DOTALL)
_RUBY: Final = re.compile(r""""(?:\\"|[^"\n])*"|'(?:\\'|[^'\n])*'|\#(?P<line>[^\n]*)""")
_SHELL: Final = re.compile(rf"{_STRING}|{_CHARACTERS}|\\.|\#(?P<line>[^\n]*)", re.DOTALL)


class UnreadableSource(ValueError):
    """A source file that is not a valid program, so that its comments cannot be found."""


def comments_of(source: str, language: str) -> list[str]:
    """The texts of the comments of a program, without the marks that begin and end them.

    >>> comments_of('x = "// no"; // yes\\n/* and\\nyes */', "text/x-c")
    [' yes', ' and\\nyes ']
    """
    return list(LANGUAGES[language](source))


def python_comments(source: str) -> Iterator[str]:
    """The comments of a Python program, with their ``#``.

    >>> list(python_comments("a = '#'  # one\\n# two\\n"))
    ['# one', '# two']
    """
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.removeprefix("\ufeff")).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    except (tokenize.TokenError, SyntaxError) as e:
        raise UnreadableSource(str(e)) from e


def _matches(pattern: re.Pattern[str]) -> Callable[[str], Iterator[str]]:
    """Finds comments with a pattern whose groups are ``line``, ``block`` and ``open``: a comment that never ends."""

    def find(source: str) -> Iterator[str]:
        for match in pattern.finditer(source):
            if match.lastgroup == "open":
                raise UnreadableSource(f"a comment that begins at character {match.start()} never ends")
            if match.lastgroup is not None:
                yield match[match.lastgroup]

    return find


def _python(source: str) -> Iterator[str]:
    return (comment[1:] for comment in python_comments(source))


LANGUAGES: Final[dict[str, Callable[[str], Iterator[str]]]] = {
    "application/javascript": _matches(_JAVASCRIPT),
    "text/html": _matches(_MARKUP),
    "text/x-c": _matches(_C),
    "text/x-c++": _matches(_C),
    "text/x-go": _matches(_GO),
    "text/x-java": _matches(_C),
    "text/x-java-source": _matches(_C),
    "text/x-javascript": _matches(_JAVASCRIPT),
    "text/x-python": _python,
    "text/x-ruby": _matches(_RUBY),
    "text/x-script.python": _python,
    "text/x-shellscript": _matches(_SHELL),
    "text/xml": _matches(_MARKUP),
}
"""MIME types of the languages whose comments can be found, and what finds them."""
