"""Filters that measure the characters of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import measures
from tamis.stages.text.filters.base import SHARE, ThresholdFilter, text_series
from tamis.stages.text.filters.measured import MeasuredFilter, Ratio

__all__ = [
    "NonAlphaNumericFilter",
    "NumbersFilter",
    "ParenthesesFilter",
    "PornographicUrlsFilter",
    "SubstringFilter",
    "UrlsFilter",
    "WhiteSpaceFilter",
]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,.")
_DIGITS = frozenset("0123456789")
_WHITE_SPACE = frozenset("\t\n\r\b ")
_PARENTHESES = frozenset("{}⟨⟩[]()")

_URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~]|[!*\(\),]|(?:%[0-9A-Fa-f]{2}))+")


@dataclass
class NonAlphaNumericFilter(MeasuredFilter):
    """Drop text with too many characters that are neither ASCII letters or digits, nor newlines, nor ``? ! , .``.

    Score: the share of such characters; 1.0 for an empty text. Meant for English: Chinese text scores 1.0.
    The rule is Gopher's (Rae et al., 2021).

    Args:
        max_non_alpha_numeric_to_text_ratio: The highest share that is kept, 0 to 1.

    >>> NonAlphaNumericFilter().score_document("a+b=")
    0.5
    """

    max_non_alpha_numeric_to_text_ratio: float = 0.25
    name = "alpha_numeric"
    score_range = SHARE
    measured = Ratio(measures.NOT_PLAIN, measures.CHARACTERS, empty=1.0)

    def score_document(self, text: str) -> float:
        return sum(c not in _PLAIN for c in text) / len(text) if text else 1.0


@dataclass
class NumbersFilter(MeasuredFilter):
    """Drop text with too many digits.

    Score: the share of characters that are digits; 1.0 for an empty text.

    Args:
        max_number_to_text_ratio: The highest share that is kept, 0 to 1.
        any_script: Count the digits of every script (``str.isdecimal()``), not only 0 to 9.

    >>> NumbersFilter().score_document("ab12")
    0.5
    """

    max_number_to_text_ratio: float = 0.15
    any_script: bool = False
    name = "numbers_ratio"
    score_range = SHARE

    def score_document(self, text: str) -> float:
        digits = sum(map(str.isdecimal, text)) if self.any_script else sum(c in _DIGITS for c in text)
        return digits / len(text) if text else 1.0

    def ratio(self) -> Ratio | None:
        digits = measures.DIGITS if self.any_script else measures.ASCII_DIGITS
        return Ratio(digits, measures.CHARACTERS, empty=1.0)


@dataclass
class WhiteSpaceFilter(MeasuredFilter):
    """Drop text with too much white space.

    Score: the share of spaces, tabs, newlines, carriage returns and backspaces; 1.0 for an empty text.

    Args:
        max_white_space_ratio: The highest share that is kept, 0 to 1.

    >>> WhiteSpaceFilter().score_document("a b ")
    0.5
    """

    max_white_space_ratio: float = 0.25
    name = "white_space"
    score_range = SHARE
    measured = Ratio(measures.WHITE_SPACE, measures.CHARACTERS, empty=1.0)

    def score_document(self, text: str) -> float:
        return sum(c in _WHITE_SPACE for c in text) / len(text) if text else 1.0


@dataclass
class ParenthesesFilter(MeasuredFilter):
    """Drop text with too many brackets: round, square, curly or angle (``⟨ ⟩``).

    Score: the share of such characters; 1.0 for an empty text.

    Args:
        max_parentheses_ratio: The highest share that is kept, 0 to 1.

    >>> ParenthesesFilter().score_document("f(x)")
    0.5
    """

    max_parentheses_ratio: float = 0.1
    name = "parentheses_ratio"
    score_range = SHARE
    measured = Ratio(measures.PARENTHESES, measures.CHARACTERS, empty=1.0)

    def score_document(self, text: str) -> float:
        return sum(c in _PARENTHESES for c in text) / len(text) if text else 1.0


@dataclass
class UrlsFilter(MeasuredFilter):
    """Drop text that is largely made of URLs.

    Score: the share of characters that are part of an ``http`` or ``https`` address; 1.0 for an empty text.

    Args:
        max_url_to_text_ratio: The highest share that is kept, 0 to 1.
        url_regex: What to take for a URL instead, as a Python regular expression. The whole match counts, also where
            the expression has groups. It runs text by text, which is much slower.

    >>> UrlsFilter().score_document("see http://a.bc for more")
    0.4583333333333333
    """

    max_url_to_text_ratio: float = 0.2
    url_regex: re.Pattern[str] | str | None = None
    name = "urls_ratio"
    score_range = SHARE

    def score_document(self, text: str) -> float:
        return sum(map(len, _urls(text, self.url_regex))) / len(text) if text else 1.0

    def ratio(self) -> Ratio | None:
        return Ratio(measures.URL_CHARACTERS, measures.CHARACTERS, empty=1.0) if self.url_regex is None else None


@dataclass
class PornographicUrlsFilter(MeasuredFilter):
    """Drop text with an address that has "porn" in it.

    Score: 1 where there is one, else 0.

    Args:
        url_regex: What to take for a URL instead, as a Python regular expression. The whole match counts, also where
            the expression has groups. It runs text by text, which is much slower.

    >>> PornographicUrlsFilter().score_document("see http://a.bc for more")
    0
    """

    url_regex: re.Pattern[str] | str | None = None

    def bounds(self) -> tuple[float | None, float | None]:
        return None, 0

    def reason(self) -> str:
        return "an address with 'porn' in it"

    def score_document(self, text: str) -> int:
        return int(any("porn" in url for url in _urls(text, self.url_regex)))

    def ratio(self) -> Ratio | None:
        return Ratio(measures.PORNOGRAPHIC_URLS) if self.url_regex is None else None


@dataclass
class SubstringFilter(ThresholdFilter):
    """Keep text that contains a given text in a given place.

    Score: 1 where it does, else 0.

    Args:
        substring: What to look for, as it is written: upper and lower case differ.
        position: Where: ``"prefix"`` (at the beginning), ``"suffix"`` (at the end) or ``"any"``.

    >>> SubstringFilter("#!", "prefix").score_document("#!/bin/sh")
    1
    """

    substring: str
    position: Literal["prefix", "suffix", "any"]
    name = "substring"

    def __post_init__(self) -> None:
        if self.position not in ("prefix", "suffix", "any"):
            raise ValueError(f"SubstringFilter(position={self.position!r}): must be 'prefix', 'suffix' or 'any'")

    def bounds(self) -> tuple[float | None, float | None]:
        return 1, None

    def reason(self) -> str:
        place = {"prefix": "at the beginning", "suffix": "at the end", "any": "anywhere"}[self.position]
        return f"no {self.substring!r} {place}"

    def score_document(self, text: str) -> int:
        if self.position == "any":
            return int(self.substring in text)
        return int(text.startswith(self.substring) if self.position == "prefix" else text.endswith(self.substring))

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        texts = text_series(column).str
        if self.position == "any":
            found = texts.contains(self.substring, literal=True)
        elif self.position == "prefix":
            found = texts.starts_with(self.substring)
        else:
            found = texts.ends_with(self.substring)
        return found.to_numpy().astype(np.int64)


def _urls(text: str, url_regex: re.Pattern[str] | str | None) -> list[str]:
    pattern = _URL if url_regex is None else re.compile(url_regex)
    return [match.group() for match in pattern.finditer(text)]
