"""Takes documents from the packages: sound ones, and those that are dirty by nature."""

from __future__ import annotations

import bz2
import functools
import gzip
import itertools
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

from .chance import by_chance, unit
from .plaintext import read_html
from .rows import Library, Origin, Row, Sample
from .selection import (
    COARSE,
    DOMAIN_LISTS,
    DOWNLOAD_HOST,
    HUGE_BOOKS,
    JARGON_ENTRIES,
    LINK_LISTS,
    SPECIAL_PAGES,
    TABLES,
    TREES,
    Stretch,
    Tree,
)

NAVIGATION_SHARE = 1 / 6
UNTRANSLATED_GROUPS = 14
REPEATED_LINES, REPEATED_LINES_PER_TREE = 16, 4
LINKS_PER_LIST = 260
DICTD_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def extract(library: Library) -> Sample:
    """All documents as the packages hold them; special pages first, so that ordinary ones do not take them."""
    sample = Sample()
    add_special_pages(sample, library)
    add_books(sample, library)
    add_link_lists(sample, library)
    add_tables(sample, library)
    add_untranslated(sample, library)
    add_repeated_lines(sample, library)
    add_pages(sample, library)
    add_jargon(sample, library)
    return sample


def add_special_pages(sample: Sample, library: Library) -> None:
    """Licence texts, notices, indexes, tables of contents and huge pages, with all their bars."""
    for label, trees in SPECIAL_PAGES.items():
        for key, pages in trees.items():
            for page in pages:
                sample.add(library.row(TREES[key], page, keep_navigation=True), label)


def add_books(sample: Sample, library: Library) -> None:
    """Manuals in one piece."""
    for key, max_bytes in HUGE_BOOKS.items():
        sample.add(book(library, TREES[key], max_bytes), "huge")


def book(library: Library, tree: Tree, max_bytes: int) -> Row:
    """All sections of a manual, one after the other, until the limit is passed."""
    chapters: list[str] = []
    size_bytes = 0
    for page in library.pages(tree):
        text = library.text(tree, page)
        if library.untranslated_share(tree, page) < 0.3 and not DOWNLOAD_HOST.search(text):
            chapters.append(text)
            size_bytes += len(text.encode())
        if size_bytes > max_bytes:
            break
    return Row(tree.row_id("book.txt"), "\n\n".join(chapters), tree.lang, tree.package, tree.root)


def add_link_lists(sample: Sample, library: Library) -> None:
    """Lists of links, numbered as a text browser prints them below a page."""
    for key, pages in LINK_LISTS.items():
        tree = TREES[key]
        for page in pages:
            lines = (f"{n:4}. {address}" for n, address in enumerate(links(library, tree, page), 1))
            name = f"{tree.row_id(page)}#references"
            text = "References\n\n" + "\n".join(lines)
            sample.add(Row(name, text, tree.lang, tree.package, f"{tree.root}/{page}"), "url_lists")


def links(library: Library, tree: Tree, page: str) -> list[str]:
    """The web addresses a page links to, each once."""
    reader = read_html(library.path(tree, page), keep_navigation=True)
    base = urljoin(tree.web + page, reader.base)
    addresses = dict.fromkeys(urljoin(base, link) for link in reader.links)
    public = [each for each in addresses if each.startswith("http") and not DOWNLOAD_HOST.search(each)]
    return public[:LINKS_PER_LIST]


def add_tables(sample: Sample, library: Library) -> None:
    """Stretches of tables: code points, hexadecimal identifiers, symbols, domain names."""
    for label, stretches in (("numbers_and_symbols", TABLES), ("url_lists", DOMAIN_LISTS)):
        for stretch in stretches:
            sample.add(table_row(library, stretch), label)


def table_row(library: Library, stretch: Stretch) -> Row:
    """A stretch of a table as a row."""
    start, end = stretch.first - 1, stretch.first - 1 + stretch.length
    lines = table_lines(library.root / stretch.package / stretch.file)[start:end]
    place = f"#L{stretch.first}-L{end}"
    name = f"{stretch.package}/{Path(stretch.file).name}{place}"
    return Row(name, "\n".join(lines), "en", stretch.package, stretch.file + place)


@functools.cache
def table_lines(path: Path) -> list[str]:
    """The lines of a table, whether packed or not."""
    data = path.read_bytes()
    return (bz2.decompress(data) if path.suffix == ".bz2" else data).decode("utf-8").splitlines()


def add_untranslated(sample: Sample, library: Library) -> None:
    """Pages that are word for word the English ones, though their language says otherwise."""
    for rows in itertools.islice(untranslated_groups(sample, library), UNTRANSLATED_GROUPS):
        for row in rows:
            sample.add(row, *([] if row.lang == "en" else ["untranslated"]))


def untranslated_groups(sample: Sample, library: Library) -> Iterator[list[Row]]:
    """Pages of GNOME Help that are the same in English and in other languages, the English one first."""
    english = TREES["gnome-en"]
    trees = [tree for tree in TREES.values() if tree.package == english.package]
    for page in by_chance(library.pages(english), "untranslated"):
        text = library.text(english, page)
        rows = [library.row(tree, page) for tree in trees if library.path(tree, page).exists()]
        same = [row for row in rows if row.text == text]
        if len(same) > 1 and english.accepts(text) and not any(row.id in sample.rows for row in same):
            yield same


def add_repeated_lines(sample: Sample, library: Library) -> None:
    """The pages that repeat their own lines most: option tables, colour tables, lists of functions."""
    found = []
    for key in ("python", "postgresql", "sqlite", "libreoffice-en", "libreoffice-fr"):
        tree = TREES[key]
        for page in library.pages(tree):
            text = library.text(tree, page)
            if tree.row_id(page) not in sample.rows and 1500 <= len(text) <= 30000 and not DOWNLOAD_HOST.search(text):
                found.append((-repetition(text), key, page))
    per_tree: Counter[str] = Counter()
    for _, key, page in sorted(found):
        if per_tree[key] < REPEATED_LINES_PER_TREE and per_tree.total() < REPEATED_LINES:
            per_tree[key] += 1
            sample.add(library.row(TREES[key], page), "repeated_lines")


def repetition(text: str) -> float:
    """The share of lines that have stood before in the same text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return 1 - len(set(lines)) / max(1, len(lines))


def add_pages(sample: Sample, library: Library) -> None:
    """Ordinary pages: one page in six keeps its navigation bars, as in a crawl without a good extractor."""
    for key, tree in TREES.items():
        unused = sample.unused_pages(library, tree, f"page {key}", max_untranslated=0.4)
        pages = list(itertools.islice(unused, tree.take))
        for page in pages:
            name = tree.row_id(page)
            bars = not tree.mallard and unit("navigation", name) < NAVIGATION_SHARE
            sample.add(library.row(tree, page, bars), *(["navigation_bars"] if bars else []))
            sample.origins[name] = Origin(tree, page, bars)
        if len(pages) < tree.take:
            print(f"{key}: {tree.take - len(pages)} pages fewer than asked for", file=sys.stderr)


def add_jargon(sample: Sample, library: Library) -> None:
    """Entries of the Jargon File: short English prose that is not a manual."""
    for row in itertools.islice(jargon_rows(library.root / "dict-jargon"), JARGON_ENTRIES):
        sample.add(row)


def jargon_rows(package: Path) -> Iterator[Row]:
    """The entries that fit, in the order of chance, the first of those whose words give the same id."""
    entries = jargon_entries(package / "usr/share/dictd")
    seen = set()
    for word in by_chance(entries, "jargon"):
        text = entries[word]
        name = f"dict-jargon/{re.sub(r'[^a-z0-9]+', '-', word.lower()).strip('-')}"
        fits = 250 <= len(text) <= 6000 and not word.startswith("00-") and not COARSE.search(text)
        if fits and name not in seen:
            seen.add(name)
            yield Row(name, text, "en", "dict-jargon", "usr/share/dictd/jargon.dict.dz")


def jargon_entries(folder: Path) -> dict[str, str]:
    """The texts of a dictd dictionary by their words."""
    data = gzip.decompress((folder / "jargon.dict.dz").read_bytes())
    entries: dict[str, str] = {}
    for line in (folder / "jargon.index").read_text(encoding="utf-8").splitlines():
        word, start, length = line.split("\t")[:3]
        first = dictd_number(start)
        entries[word] = data[first : first + dictd_number(length)].decode("utf-8", errors="replace").strip()
    return entries


def dictd_number(digits: str) -> int:
    """A number of a dictd index, which writes them in base 64."""
    return functools.reduce(lambda total, digit: total * 64 + DICTD_DIGITS.index(digit), digits, 0)
