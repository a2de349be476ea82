"""The tables of CLD2 (Sites, 2013) for the kernel of language identification, from where the package pycld2 has them.

The library that comes with the package exports them, and they are used in its memory. They may be missing, as another
build of the package need not export them.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.languages import KINDS, LanguageTables
from tamis.kernels.script_table import SCRIPT_RANGES

__all__ = ["UNKNOWN", "bcp47", "cld2_tables"]

UNKNOWN: Final = "und"
"""The language of a text whose language cannot be told, which BCP 47 calls *undetermined*."""

_RENAMED: Final = {"iw": "he", "jw": "jv", "un": UNKNOWN, "xxx": UNKNOWN, "": UNKNOWN}
_NO_SCRIPT: Final = frozenset(("xx-Qaai", "xx-Zyyy"))
_FIRST: Final = ("zh", "zh-Hant", "ja", "ko")
_CHARACTERS: Final = 0x10000
_MANY_LANGUAGES: Final = 2
_BUCKETS: Final = range(1 << 10, 1 << 22)


def bcp47(code: str) -> str:
    """The BCP 47 code for one of CLD2, which are those of 2013, and its own where it knows no more than a script.

    >>> bcp47("iw"), bcp47("xx-Goth"), bcp47("zh-Hant")
    ('he', 'und-Goth', 'zh-Hant')
    """
    if code in _NO_SCRIPT or code.startswith("zz"):
        return UNKNOWN
    return f"{UNKNOWN}{code[2:]}" if code.startswith("xx-") else _RENAMED.get(code, code)


@functools.cache
def cld2_tables() -> LanguageTables | None:
    """The tables, with the codes of languages as in BCP 47; ``None`` if the library does not have them."""
    from pycld2 import _pycld2

    try:
        return _tables(_Library(_pycld2.__file__))
    except (OSError, ValueError):
        return None


class _Table(ctypes.Structure):
    _fields_ = (
        ("slots", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("value_count", ctypes.c_uint32),
        ("buckets", ctypes.c_uint32),
        ("key_mask", ctypes.c_uint32),
        ("date", ctypes.c_uint32),
        ("languages", ctypes.c_char_p),
    )


class _Library:
    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def get(self, name: str, kind: Any) -> Any:
        """A variable. Raises ``ValueError`` if there is none of the name."""
        return kind.in_dll(self._library, f"_ZN4CLD2{len(name)}{name}E")

    def numbers(self, name: str, count: int, kind: Any) -> list[int]:
        return list(self.get(name, kind * count))

    def texts(self, name: str) -> list[str]:
        """A table of strings, whose size is another variable."""
        count = self.get(f"{name}Size", ctypes.c_int32).value
        return [text.decode("ascii") if text else "" for text in self.get(name, ctypes.c_char_p * count)]


def _tables(library: _Library) -> LanguageTables:
    table = library.get("kQuad_obj", _Table)
    places = ~table.key_mask & 0xFFFFFFFF
    if table.buckets not in _BUCKETS or table.buckets & (table.buckets - 1) or places & (places + 1):
        raise ValueError("a form of the table that is not known")
    slots = _memory(table.slots, 4 * table.buckets)
    if int((slots & np.uint32(places)).max()) >= table.value_count:
        raise ValueError("groups of letters with two values")
    values = np.zeros(places + 1, np.uint32)
    values[: table.value_count] = _memory(table.values, table.value_count)
    codes = [bcp47(code) for code in library.texts("kLanguageToCode")]
    used = [*_FIRST, *sorted({*codes, *map(bcp47, _FIRST)} - {*_FIRST, UNKNOWN}), UNKNOWN]
    number_of = {code: number for number, code in enumerate(used)}
    languages = [
        number_of[codes[number]] if number < len(codes) else number_of[UNKNOWN]
        for name in ("kPLangToLanguageLatn", "kPLangToLanguageOthr")
        for number in library.numbers(name, 256, ctypes.c_uint16)
    ]
    scripts = library.texts("kULScriptToCode")
    kinds = library.numbers("kULScriptToRtype", len(scripts), ctypes.c_uint32)
    defaults = library.numbers("kULScriptToDefaultLang", len(scripts), ctypes.c_uint32)
    of_script = {
        script: (KINDS["other"], 0) if kind == _MANY_LANGUAGES else (KINDS["one"], number_of[codes[default]])
        for script, kind, default in zip(scripts, kinds, defaults, strict=True)
    }
    characters = _characters(of_script, len(used) - 1)
    return LanguageTables(tuple(used), characters, slots, table.key_mask, values, np.array(languages, np.int32))


def _memory(address: int | None, count: int) -> NDArray[np.uint32]:
    if not address:
        raise ValueError("an empty table")
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def _characters(of_script: dict[str, tuple[int, int]], unknown: int) -> NDArray[np.uint32]:
    """What the kernel must know of characters: see :class:`~tamis.kernels.languages.LanguageTables`."""
    cjk = {"Hani": KINDS["Hani"], "Hira": KINDS["kana"], "Kana": KINDS["kana"], "Hang": KINDS["Hang"]}
    characters = np.zeros(_CHARACTERS, np.uint32)
    for script, (_, ranges) in SCRIPT_RANGES.items():
        kind, language = of_script.get(script, (KINDS["one"], unknown))
        if script in cjk or script == "Latn":
            kind, language = cjk.get(script, KINDS["Latn"]), 0
        for run in ranges.split():
            first, _, last = run.partition("-")
            characters[int(first, 16) : int(last or first, 16) + 1] = kind << 16 | language << 20
    simplified, traditional = _in_encoding("gb2312"), _in_encoding("big5")
    is_han = characters >> 16 == KINDS["Hani"]
    characters[is_han & simplified & ~traditional] = KINDS["Hans"] << 16
    characters[is_han & traditional & ~simplified] = KINDS["Hant"] << 16
    for code_point in np.flatnonzero(characters).tolist():
        character = chr(code_point)
        if characters[code_point] >> 16 == KINDS["Latn"] and not character.isalpha():
            characters[code_point] = 0
            continue
        lower = character.lower()
        has_lower = len(lower) == 1 and len(lower.encode()) == len(character.encode())
        characters[code_point] |= ord(lower) if has_lower else code_point
    return characters


def _in_encoding(name: str) -> NDArray[np.bool_]:
    """Which characters an old encoding of Chinese has: those of simplified or of traditional script, and both."""
    pairs = bytes(byte for first in range(0xA1, 0xFF) for second in range(0x40, 0xFF) for byte in (first, second))
    found = "".join(pairs[at : at + 2].decode(name, "ignore") for at in range(0, len(pairs), 2))
    mask = np.zeros(_CHARACTERS, np.bool_)
    mask[[ord(character) for character in found if ord(character) < _CHARACTERS]] = True
    return mask
