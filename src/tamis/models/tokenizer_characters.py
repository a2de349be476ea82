"""What the installed package ``tokenizers`` does with each character: whether it is a letter, how it is normalised.

Versions of the package know different versions of Unicode, and neither is Python's. So the package itself is asked,
once per process and kind of tokenizer, about every character that Unicode may have assigned: a tenth of a second. A
text with another character (planes 4 to 13, private use beyond the first plane) is left to the package.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.token_styles import (
    CHECKED,
    COMPOSED,
    ISOLATED,
    JOINS,
    LEADS,
    LETTER,
    NUMBER,
    SEPARATOR,
    UNKNOWN,
    WHITE,
    WORD,
)

__all__ = ["BertCharacters", "ByteCharacters", "bert_characters", "byte_characters"]

_ALL: Final = 0x110000
_ASKED: Final = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE0200)]
_AT_ONCE: Final = 4096
"""Characters in one call: the package is slower with longer texts."""
_BETWEEN: Final = "|"
_HIGHEST_CLASS: Final = "\u0345"
"""A mark that form D puts behind all marks of other classes."""


@dataclass(frozen=True)
class ByteCharacters:
    """What a byte-level tokenizer needs to know, by code point.

    Args:
        kinds: Bits; see :mod:`tamis.kernels.token_styles`.
        orders: The canonical combining class of those that are to be checked.
    """

    kinds: NDArray[np.uint8]
    orders: NDArray[np.uint8]


@dataclass(frozen=True)
class BertCharacters:
    """What BERT's normaliser and pre-tokenizer make of characters, by code point.

    Args:
        kinds: See :mod:`tamis.kernels.token_styles`.
        forms: Where in the pool the normalised form begins, times 16, plus its bytes.
        pool: The normalised forms.
        marks: The character that is a word by itself, of those whose kind says so.
    """

    kinds: NDArray[np.uint8]
    forms: NDArray[np.uint32]
    pool: NDArray[np.uint8]
    marks: dict[int, str]


@functools.cache
def byte_characters(is_composed: bool) -> ByteCharacters:
    """The characters of byte-level tokenizers.

    Args:
        is_composed: Whether texts are put into normalisation form C first.
    """
    kinds = np.full(_ALL, UNKNOWN, np.uint8)
    kinds[_ASKED] = 0
    for pattern, bit in ((r"\p{L}", LETTER), (r"\p{N}", NUMBER), (r"\s", WHITE)):
        kinds[_matching(pattern)] |= bit
    orders = np.zeros(_ALL, np.uint8)
    if is_composed:
        _mark_composition(kinds, orders)
    return ByteCharacters(_frozen(kinds), _frozen(orders))


@functools.cache
def bert_characters(normalizer: str) -> BertCharacters:
    """The characters of BERT's tokenizers.

    Args:
        normalizer: The settings of the ``BertNormalizer``, as JSON.
    """
    from tokenizers import normalizers

    settings: dict[str, Any] = json.loads(normalizer)
    normalise = normalizers.BertNormalizer(**settings)
    strips = settings["lowercase"] if settings["strip_accents"] is None else settings["strip_accents"]
    made = dict(zip(_ASKED, _normalised(normalise), strict=True))
    moved = _moved_marks() if strips else set()
    breaks, alone = _bert_splits(sorted({character for form in made.values() for character in form}))
    kinds = np.full(_ALL, UNKNOWN, np.uint8)
    forms = np.zeros(_ALL, np.uint32)
    marks: dict[int, str] = {}
    pool = bytearray()
    for code_point, form in made.items():
        if not breaks.isdisjoint(form) or not alone.isdisjoint(form):
            core = "".join(character for character in form if character not in breaks)
            if not core:
                kinds[code_point] = SEPARATOR
            elif len(core) == 1 and (core in alone or (form[0] in breaks and form[-1] in breaks)):
                kinds[code_point] = ISOLATED
                marks[code_point] = core
            continue
        encoded = form.encode()
        if len(form) > len(chr(code_point).encode()) or len(encoded) > 15 or not moved.isdisjoint(form):
            continue
        kinds[code_point] = WORD
        forms[code_point] = len(pool) << 4 | len(encoded)
        pool += encoded
    return BertCharacters(_frozen(kinds), _frozen(forms), np.frombuffer(bytes(pool) + bytes(16), np.uint8), marks)


def _parts() -> Iterator[list[int]]:
    for first in range(0, len(_ASKED), _AT_ONCE):
        yield _ASKED[first : first + _AT_ONCE]


def _normalised(normalizer: Any) -> list[str]:
    """The normalised form of each character that is asked about."""
    forms: list[str] = []
    for part in _parts():
        forms += normalizer.normalize_str(_BETWEEN.join(map(chr, part))).split(_BETWEEN)
        if ord(_BETWEEN) in part:  # which makes two empty forms of one character
            at = forms.index("", ord(_BETWEEN))
            forms[at : at + 2] = [_BETWEEN]
    return forms


def _matching(pattern: str) -> list[int]:
    """The characters that a regular expression matches."""
    from tokenizers import Regex, pre_tokenizers

    removed = pre_tokenizers.Split(Regex(f"{pattern}+"), "removed")
    found: list[int] = []
    for part in _parts():
        at = 0
        for _, (begin, end) in removed.pre_tokenize_str("".join(map(chr, part))):
            found += part[at:begin]
            at = end
        found += part[at:]
    return found


def _bert_splits(characters: list[str]) -> tuple[set[str], set[str]]:
    """The characters that BERT's pre-tokenizer drops, and those that it makes words of their own."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.BertPreTokenizer()
    dropped: set[str] = set()
    alone: set[str] = set()
    for first in range(0, len(characters), _AT_ONCE):
        part = characters[first : first + _AT_ONCE]
        pieces = split.pre_tokenize_str("a".join(["", *part, ""]))
        covered = np.zeros(2 * len(part) + 1, np.bool_)
        for _, (begin, end) in pieces:
            covered[begin:end] = True
            if end - begin == 1 and begin % 2:
                alone.add(part[begin // 2])
        dropped.update(part[i // 2] for i in np.flatnonzero(~covered).tolist())
    return dropped, alone


def _moved_marks() -> set[str]:
    """Characters that form D may move, and that are not removed with the accents."""
    from tokenizers import normalizers

    strip = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
    )
    return _reordered().intersection("".join(_normalised(strip)))


def _reordered() -> set[str]:
    """The characters whose canonical combining class is not 0."""
    from tokenizers import normalizers

    form_d = normalizers.NFD()
    found = {_HIGHEST_CLASS}
    for part in _parts():
        characters = [chr(code_point) for code_point in part]
        # A letter after each pair keeps the pairs apart.
        moved = form_d.normalize_str("".join(f"a{_HIGHEST_CLASS}{c}" for c in characters))
        for piece in moved.split("a")[1:]:
            if not piece.startswith(_HIGHEST_CLASS):
                found.update(piece[: piece.index(_HIGHEST_CLASS)] if _HIGHEST_CLASS in piece else piece)
    return found


def _mark_composition(kinds: NDArray[np.uint8], orders: NDArray[np.uint8]) -> None:
    """Note which characters form C may compose or move."""
    from tokenizers import normalizers

    form_c = normalizers.NFC()
    decomposed, composed = _normalised(normalizers.NFD()), _normalised(form_c)
    for code_point, parts, whole in zip(_ASKED, decomposed, composed, strict=True):
        if whole != chr(code_point):
            kinds[code_point] |= COMPOSED
        elif len(parts) > 1:
            # The character itself, too: a mark after it may compose with its first part.
            for character in (whole, form_c.normalize_str(parts[:-1])[0], parts[0]):
                kinds[ord(character)] |= LEADS
            kinds[ord(parts[-1])] |= JOINS | CHECKED
    for mark in _reordered():
        order = unicodedata.combining(mark)
        kinds[ord(mark)] |= CHECKED if order else UNKNOWN  # one that Python does not know yet
        orders[ord(mark)] = order


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
