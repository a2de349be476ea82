"""Checks the symbols and relocations of an ELF object file, to refuse one that LLVM could not link correctly.

LLVM ends the process if it cannot find a symbol, and truncates an address if a relocation has no room for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["check_object"]

_MAGIC: Final = b"\x7fELF\x02\x01"  # 64 bits, the lowest byte first
_SYMBOLS, _RELOCATIONS, _UNDEFINED, _GLOBAL = 2, 4, 0, 1

_ALLOWED_SYMBOLS: Final = frozenset(("memcpy", "memmove", "memset", "memcmp", "bcmp"))
"""The functions of the C library that a kernel may need: LLVM replaces loops by them."""

_X86_64, _AARCH64 = 62, 183
_ALLOWED_RELOCATIONS: Final = {
    _X86_64: frozenset((1, 24)),  # R_X86_64_64, R_X86_64_PC64
    # R_AARCH64_ABS64, PREL64, PREL32 (inside the object), MOVW_UABS_G0 to G3, CALL26 and JUMP26 (LLVM adds a stub)
    _AARCH64: frozenset((257, 260, 261, *range(263, 270), 282, 283)),
}
"""Relocations that reach any address, by machine: code and the C library may be far from each other."""


@dataclass(frozen=True)
class _Section:
    kind: int
    link: int
    data: bytes


def check_object(code: bytes, entry: str) -> None:
    """Raise ``ValueError`` if an object file cannot be linked safely. Formats other than ELF are not checked.

    Args:
        code: The object file.
        entry: The symbol that it must define.
    """
    if not code.startswith(b"\x7fELF"):
        return
    if not code.startswith(_MAGIC):
        raise ValueError("the object file is not for a 64-bit little-endian machine")
    try:
        machine, sections = _sections(code)
        symbols = [symbol for section in sections if section.kind == _SYMBOLS for symbol in _symbols(section, sections)]
        relocations = {r for section in sections if section.kind == _RELOCATIONS for r in _relocations(section)}
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"the object file is damaged: {error}") from error
    needed = {name for name, is_defined in symbols if name and not is_defined} - _ALLOWED_SYMBOLS
    if needed:
        raise ValueError(f"the object file needs {', '.join(sorted(needed))}, which kernels may not use")
    if (entry, True) not in symbols:
        raise ValueError(f"the object file does not define {entry}")
    odd = relocations - _ALLOWED_RELOCATIONS.get(machine, relocations)
    if odd:
        raise ValueError(f"the object file has relocations that do not reach every address: {sorted(odd)}")


def _sections(code: bytes) -> tuple[int, list[_Section]]:
    """The machine that the code is for, and the sections of the file."""
    (machine,) = struct.unpack_from("<H", code, 18)
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    found = []
    for number in range(count):
        _, kind, _, _, at, length, link = struct.unpack_from("<IIQQQQI", code, table + number * size)
        found.append(_Section(kind, link, code[at : at + length]))
    return machine, found


def _symbols(section: _Section, sections: list[_Section]) -> Iterator[tuple[str, bool]]:
    """The names of symbols that are not local, and whether the file defines them."""
    names = sections[section.link].data
    for at, about, _, where, _, _ in struct.iter_unpack("<IBBHQQ", section.data):
        if about >> 4 >= _GLOBAL:
            yield names[at : names.index(b"\0", at)].decode(), where != _UNDEFINED


def _relocations(section: _Section) -> Iterator[int]:
    for _, about, _ in struct.iter_unpack("<QQq", section.data):
        yield about & 0xFFFFFFFF
