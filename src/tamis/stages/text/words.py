"""The pieces of a text: words in its language, sentences, paragraphs, n-grams.

Words stand between white space in most languages, and ``str.split()`` finds them. In Chinese, Japanese and Thai a
dictionary has to; those come with ``tamis[segmentation]``.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tamis.errors import MissingExtraError
from tamis.stages.text.forms import well_formed

__all__ = ["WITHOUT_SPACES", "get_ngrams", "get_paragraphs", "get_sentences", "get_word_splitter"]

WITHOUT_SPACES = ("ja", "th", "zh")
"""The languages whose words are found with a dictionary."""

_EXTRA = "segmentation"


def get_word_splitter(language: str) -> Callable[[str], list[str]]:
    """The function that splits a text of a language into words.

    For Chinese that is ``jieba.cut``, which gives white space and punctuation as words too; for Japanese the surface
    forms that MeCab finds; for Thai the words that PyThaiNLP's ``newmm`` finds, without white space; for any other
    language ``str.split``.

    Args:
        language: An ISO 639-1 code. What follows the language, as in ``zh-Hant`` or ``ja_JP``, is of no effect.

    >>> get_word_splitter("en")("two  words")
    ['two', 'words']
    >>> get_word_splitter("ja")("日本語の文章です。")
    ['日本', '語', 'の', '文章', 'です', '。']
    """
    code = language.lower().replace("_", "-").partition("-")[0]
    return _splitter(code) if code in WITHOUT_SPACES else str.split


def get_paragraphs(document: str) -> list[str]:
    """What stands between empty lines.

    >>> get_paragraphs("one\\n\\ntwo\\nlines")
    ['one', 'two\\nlines']
    """
    return document.split("\n\n")


def get_sentences(document: str) -> list[str]:
    """The lines that are not blank, as they are.

    >>> get_sentences("one\\n \\n two")
    ['one', ' two']
    """
    return [line for line in document.split("\n") if line.strip()]


def get_ngrams(input_list: list[str], n: int) -> list[tuple[str, ...]]:
    """Every run of ``n`` neighbours.

    >>> get_ngrams(["a", "b", "c"], 2)
    [('a', 'b'), ('b', 'c')]
    """
    return list(zip(*(input_list[start:] for start in range(n)), strict=False))


def _split_chinese(text: str) -> list[str]:
    import jieba

    words: list[str] = jieba.lcut(text)
    return words


_OF_THREAD = threading.local()

_OVERLONG = re.compile(r"([^\s\u3001\u3002\u3040-\u309f\u3400-\u9fff]{2000,})")
"""A run without white space, Hiragana or Kanji that is too long to be Japanese: it counts as one word."""


def _tagger() -> Any:
    """The tagger of this thread: one takes long to make, and two threads cannot share one."""
    import MeCab

    if not hasattr(_OF_THREAD, "tagger"):
        try:
            _OF_THREAD.tagger = MeCab.Tagger("-Owakati")
        except RuntimeError as e:
            raise MissingExtraError("MeCab, which finds no dictionary,", package="unidic-lite", extra=_EXTRA) from e
    return _OF_THREAD.tagger


def _split_japanese(text: str) -> list[str]:
    words: list[str] = []
    # MeCab takes a NUL for the end of the text, time with the square of the length of such runs, and hundreds of bytes
    # of memory for each byte of the text.
    for part in well_formed(text).split("\0"):
        for number, between in enumerate(_OVERLONG.split(part)):
            words += [between] if number % 2 else itertools.chain.from_iterable(map(_parse, _pieces(between, 300_000)))
    return words


def _parse(text: str) -> list[str]:
    parsed: str | None = _tagger().parse(text)
    if parsed is None:  # it refuses words of more than 65,535 bytes
        return [word for piece in _pieces(text, 10_000) for word in _parse(piece)]
    return [word for word in parsed.rstrip("\n").split(" ") if word]


def _pieces(text: str, most_characters: int) -> Iterator[str]:
    """The text in pieces that end with a line where that is possible."""
    start = 0
    while len(text) - start > most_characters:
        end = text.rfind("\n", start, start + most_characters) + 1 or start + most_characters
        yield text[start:end]
        start = end
    yield text[start:]


def _split_thai(text: str) -> list[str]:
    from pythainlp.tokenize import word_tokenize

    # Plain newmm can take forever where very many splits are possible; newmm-safe looks at them in windows.
    words: list[str] = word_tokenize(text, engine="newmm-safe")
    return [word for word in words if word.strip()]


_SPLITTERS = {
    "ja": ("Japanese", "MeCab", "mecab-python3", _split_japanese),
    "th": ("Thai", "pythainlp", "pythainlp", _split_thai),
    "zh": ("Chinese", "jieba", "jieba", _split_chinese),
}


@functools.cache
def _splitter(code: str) -> Callable[[str], list[str]]:
    """What splits a text; a missing package is reported here rather than at the first text."""
    language, module, package, split = _SPLITTERS[code]
    try:
        imported = importlib.import_module(module)
    except ImportError as e:
        raise MissingExtraError(f"splitting {language} text into words", package=package, extra=_EXTRA) from e
    if code == "ja":
        _tagger()
    if code == "zh":
        imported.setLogLevel(logging.WARNING)  # it says how long its dictionary takes to load
    return split
