"""What is damaged on purpose, always by a mistake that programs really make."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from .chance import by_chance
from .packages import BuildError
from .rows import Library, Row, Sample
from .selection import TREES, Tree


class DirtClass(NamedTuple):
    """One kind of dirt, and whether this program put it in."""

    what: str
    injected: bool = False


DIRT_CLASSES = {
    "duplicates_natural": DirtClass(
        "rows that are equal in the packages themselves (untranslated pages, the same notice)"
    ),
    "duplicates_copied": DirtClass(
        "exact copies of other rows (the id without @n), in another file than the original", injected=True
    ),
    "near_duplicates": DirtClass(
        "the page of the id without @n once more, extracted with or without its navigation bars", injected=True
    ),
    "navigation_bars": DirtClass("pages that kept their navigation bars, side bars and footers"),
    "legal_notices": DirtClass('licence texts, help pages on privacy, "enable JavaScript" notices'),
    "index_pages": DirtClass("indexes, tables of contents, search pages"),
    "untranslated": DirtClass("English text under another language"),
    "mojibake_latin1": DirtClass("UTF-8 read as ISO 8859-1", injected=True),
    "mojibake_cp1252": DirtClass("UTF-8 read as Windows-1252", injected=True),
    "mojibake_double": DirtClass("UTF-8 read as Windows-1252, twice", injected=True),
    "mojibake_cp1251": DirtClass("UTF-8 read as Windows-1251", injected=True),
    "replacement_characters": DirtClass("U+FFFD where bytes were lost", injected=True),
    "control_characters": DirtClass("overstrikes, terminal escape codes, form feeds, byte-order marks", injected=True),
    "carriage_returns": DirtClass("CR LF line ends", injected=True),
    "empty": DirtClass("no text", injected=True),
    "whitespace_only": DirtClass("white space only", injected=True),
    "one_word": DirtClass("a single word", injected=True),
    "huge": DirtClass("100 to 400 kB: four single pages, and two manuals that the script put into one piece"),
    "numbers_and_symbols": DirtClass("tables of code points, identifiers and symbols"),
    "repeated_lines": DirtClass("pages that repeat their own lines most"),
    "url_lists": DirtClass("domain names, and the links of real pages listed as a text browser lists them"),
}

DUPLICATE_SHARE = 0.05
NEAR_DUPLICATES = 40
REPLACEMENT_CHARACTERS = 18
CONTROL_CHARACTERS = 16
CARRIAGE_RETURNS = 36
EMPTY, WHITESPACE_ONLY, ONE_WORD = 14, 11, 13

WESTERN = ("de", "fr", "es", "it", "pt")
BLANKS = (" ", "\n", "\n\n\n", " \t \n", "\u00a0", "\r\n \r\n", "\u3000\n", "\t\t")
WINDOWS_1252 = {byte: bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in range(0x80, 0xA0)}
GATEWAY_ERROR = (
    "<html><head><title>504 Gateway Time-out</title></head><body><center><h1>504 Gateway Time-out</h1></center>"
    "<hr><center>nginx</center></body></html>"
)


def make_dirty(sample: Sample, library: Library) -> None:
    """Damage rows, add damaged ones, and note which rows are equal."""
    damage_encodings(sample)
    damage_bytes(sample)
    damage_controls(sample)
    damage_line_ends(sample)
    add_near_duplicates(sample, library)
    add_empty(sample, library)
    add_copies(sample)
    mark_natural_duplicates(sample)


def as_latin1(text: str) -> str:
    """UTF-8 read as ISO 8859-1: the classic mistake of an HTTP header without a charset."""
    return text.encode("utf-8").decode("latin-1")


def as_cp1252(text: str) -> str:
    """UTF-8 read as Windows-1252, the way browsers do (bytes without a meaning become C1 controls)."""
    return as_latin1(text).translate(WINDOWS_1252)


def as_cp1252_twice(text: str) -> str:
    """The same mistake made twice, as a database export and a web server make it one after the other."""
    return as_cp1252(as_cp1252(text))


def as_cp1251(text: str) -> str:
    """UTF-8 read as Windows-1251, the mistake usual for Russian."""
    return text.encode("utf-8").decode("cp1251", errors="replace")


class Mojibake(NamedTuple):
    """A mistake of encoding, how many rows suffer it, and the languages it is usual for (none named: all)."""

    name: str
    make: Callable[[str], str]
    rows: int
    langs: tuple[str, ...] = ()


MOJIBAKE = (
    Mojibake("latin1", as_latin1, 11),
    Mojibake("cp1252", as_cp1252, 11),
    Mojibake("double", as_cp1252_twice, 8, WESTERN),
    Mojibake("cp1251", as_cp1251, 4, ("ru",)),
)


def foreign(row: Row) -> bool:
    """Whether a row has enough letters beyond ASCII for an encoding mistake to show."""
    return row.lang != "en" and sum(not char.isascii() for char in row.text) >= 20


def damage_encodings(sample: Sample) -> None:
    """Mojibake of four kinds in about two of a hundred documents that are not English."""
    for kind in MOJIBAKE:
        rows = (row for row in sample.sound(f"mojibake {kind.name}") if foreign(row) and len(row.text) < 5000)
        fits = (row for row in rows if not kind.langs or row.lang in kind.langs)
        for row in itertools.islice(fits, kind.rows):
            sample.damage(row, kind.make(row.text), f"mojibake_{kind.name}")


def with_replacement_characters(row: Row) -> str:
    """A text whose bytes could not be decoded: a Latin-1 page taken for UTF-8, or characters cut in two by a buffer."""
    if row.lang in WESTERN:
        return row.text.encode("cp1252", errors="replace").decode("utf-8", errors="replace")
    data = row.text.encode("utf-8")
    return "".join(data[at : at + 256].decode("utf-8", errors="replace") for at in range(0, len(data), 256))


def damage_bytes(sample: Sample) -> None:
    """Replacement characters where bytes were lost."""
    damaged = ((row, with_replacement_characters(row)) for row in sample.sound("replacement") if foreign(row))
    fits = ((row, text) for row, text in damaged if "\ufffd" in text)
    for row, text in itertools.islice(fits, REPLACEMENT_CHARACTERS):
        sample.damage(row, text, "replacement_characters")


def with_overstrike(text: str) -> str:
    """The first line in bold as old printers and `man` write it: every letter, a backspace, the letter again."""
    first, _, rest = text.partition("\n")
    return "".join(f"{char}\b{char}" if char != " " else char for char in first) + "\n" + rest


def with_escape_codes(text: str) -> str:
    """Short lines in bold as a terminal shows them: escape sequences of a captured session."""
    return re.sub(r"(?m)^(\S.{0,38}\S)$", "\x1b[1m\\1\x1b[0m", text)


def with_page_breaks(text: str) -> str:
    """A form feed before every second paragraph and a stray byte-order mark, as in a paginated text file."""
    pages = text.split("\n\n")
    return "\ufeff" + "".join(("\x0c" if n % 2 else "\n\n") + page for n, page in enumerate(pages)).strip("\n")


def damage_controls(sample: Sample) -> None:
    """Control characters of three kinds."""
    makers = itertools.cycle((with_overstrike, with_escape_codes, with_page_breaks))
    for row, make in zip(itertools.islice(sample.sound("controls"), CONTROL_CHARACTERS), makers, strict=False):
        sample.damage(row, make(row.text), "control_characters")


def damage_line_ends(sample: Sample) -> None:
    """Line ends of another system."""
    for row in itertools.islice(sample.sound("line ends"), CARRIAGE_RETURNS):
        sample.damage(row, row.text.replace("\n", "\r\n"), "carriage_returns")


def add_near_duplicates(sample: Sample, library: Library) -> None:
    """Pages once more, from another extractor."""
    for row, bars in itertools.islice(other_extractions(sample, library), NEAR_DUPLICATES):
        sample.add_again(row, "near_duplicates", *(["navigation_bars"] if bars else []))


def other_extractions(sample: Sample, library: Library) -> Iterator[tuple[Row, bool]]:
    """Rows with their navigation bars where they had none, or without them, and whether they now have them."""
    for row in sample.sound("near"):
        tree, page, bars = sample.origins[row.id]
        text = library.text(tree, page, not bars)
        if text != row.text and len(row.text) >= 600:
            yield replace(row, text=text), not bars


def add_empty(sample: Sample, library: Library) -> None:
    """Pages of which nothing was left: no text, white space only, or one word of the title."""
    plan = ["empty"] * EMPTY + ["whitespace_only"] * WHITESPACE_ONLY + ["one_word"] * ONE_WORD
    keys = by_chance((key for key in TREES if key.startswith(("libreoffice", "postgresql", "sqlite"))), "empty")
    for n, label in enumerate(plan):
        row = spare_row(sample, library, TREES[keys[n % len(keys)]], "empty")
        texts = {"empty": "", "whitespace_only": BLANKS[n % len(BLANKS)], "one_word": row.text.split()[0]}
        sample.add(replace(row, text=texts[label]), label)


def spare_row(sample: Sample, library: Library, tree: Tree, purpose: str) -> Row:
    """An ordinary page of a tree that the sample does not hold yet."""
    for page in sample.unused_pages(library, tree, f"{purpose} {tree.root}", max_untranslated=0.2):
        return library.row(tree, page)
    raise BuildError(f"{tree.package} has no page left")


def redundant(rows: Iterable[Row]) -> int:
    """How many rows would go if of every text only one were kept."""
    texts = [row.text for row in rows]
    return len(texts) - len(set(texts))


def add_copies(sample: Sample) -> None:
    """Exact copies, until about five of a hundred rows are redundant: notices many times, ordinary pages twice."""
    full = [row for row in sample.rows.values() if row.text.strip()]
    missing = round((DUPLICATE_SHARE * len(full) - redundant(full)) / (1 - DUPLICATE_SHARE))
    names = (name for name in sample.dirt["legal_notices"] if "noscript" not in name)
    notices = [sample.rows[name] for name in by_chance(names, "copies")]
    queue = [row for row in notices if len(row.text) < 9000] * 2 + list(sample.sound("copies"))
    for row in queue[:missing]:
        sample.add_again(row, "duplicates_copied")


def mark_natural_duplicates(sample: Sample) -> None:
    """Note rows that are equal though nobody copied them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, row in sample.rows.items():
        if row.text.strip() and "@" not in name and name not in sample.dirt["one_word"]:
            groups[row.text].append(name)
    sample.dirt["duplicates_natural"] = {name for group in groups.values() if len(group) > 1 for name in group}


def broken_lines(sample: Sample, library: Library) -> dict[str, bytes]:
    """Three lines no reader can use: an object cut off, an error page, and bytes that are not UTF-8."""
    cut = spare_row(sample, library, TREES["libreoffice-fr"], "broken").as_json()
    latin = spare_row(sample, library, TREES["libreoffice-de"], "broken").as_json()
    return {
        "truncated JSON": cut[: len(cut) * 3 // 5].encode("utf-8"),
        "not JSON": GATEWAY_ERROR.encode("ascii"),
        "invalid UTF-8": latin.encode("cp1252", errors="replace"),
    }
