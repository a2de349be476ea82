#!/usr/bin/env python3
"""Rebuild the sample data of ``tamis quickstart`` from Debian packages.

The sample is a small, honest picture of what a crawl hands to a curator: real documents in a dozen languages, most of
them sound, some of them dirty. Everything is taken from Debian 12 packages through ``apt-get download`` (run
``apt-get update`` first), so anyone can repeat it, and every package's licence is checked against its copyright file.

Nothing here is random: whatever looks like a choice is a SHA-256 of a fixed seed and a stable name, so the same
packages always give the same bytes, whatever the order in which files are listed or the version of Python. (The
compressed files also depend on the zlib and libzstd in use; ``--check`` therefore compares what is inside them.)

    python tools/build_sample.py                 # write src/tamis/quickstart/sample
    python tools/build_sample.py --check         # rebuild elsewhere and compare with what is there
"""

from __future__ import annotations

import argparse
import bz2
import functools
import gzip
import hashlib
import json
import math
import re
import subprocess
import sys
import tempfile
import textwrap
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import zstandard

SEED = "tamis-sample-1"
REPOSITORY = Path(__file__).resolve().parents[1]
OUT = REPOSITORY / "src" / "tamis" / "quickstart" / "sample"

# Shares and numbers of the dirt; the rest of the numbers are the `take` of each tree below.
DUPLICATE_SHARE = 0.05
NAVIGATION_SHARE = 1 / 6
MOJIBAKE = {"latin1": 11, "cp1252": 11, "double": 8, "cp1251": 4}
REPLACEMENT_CHARACTERS = 18
CONTROL_CHARACTERS = 16
CARRIAGE_RETURNS = 36
EMPTY, WHITESPACE, ONE_WORD = 14, 11, 13
NEAR_DUPLICATES = 40
REPEATED_LINES = 16
UNTRANSLATED_GROUPS = 14

# File name -> (share of the English rows, share of the others). Huge documents go to compressed files only.
FILES = {
    "docs-en.jsonl.gz": (0.60, 0.0),
    "docs-en-2.jsonl.zst": (0.35, 0.0),
    "docs-mixed.jsonl": (0.05, 0.03),
    "docs-world-1.jsonl": (0.0, 0.10),
    "docs-world-2.jsonl.gz": (0.0, 0.48),
    "docs-world-3.jsonl.zst": (0.0, 0.39),
}
BROKEN_FILE = "docs-world-1.jsonl"
GATEWAY_ERROR = (
    "<html><head><title>504 Gateway Time-out</title></head><body><center><h1>504 Gateway Time-out</h1></center>"
    "<hr><center>nginx</center></body></html>"
)


# ---------------------------------------------------------------------------------------------------------------------
# Where the documents come from
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """One Debian source package: what it is, whose it is, and the proof that it may be passed on."""

    name: str
    upstream: str
    license: str
    holders: str
    evidence: tuple[str, ...]  # each must stand, word for word, in the package's copyright file
    packages: dict[str, tuple[str, str]]  # binary package -> (version, SHA-256 of the .deb)
    notice: tuple[str, str] | None = None  # first and last words of the notice that must travel with the text


LIBREOFFICE_VERSION = "4:7.4.7-1+deb12u14"
LIBREOFFICE_SHA256 = {
    "en-us": "8faa840285734d6cfe1ed25537b48f07e74bd6412e3917bf8e5f8a653f7b3712",
    "de": "00490b63c509ac96f7f212d6a6e40452d3e0d1f97ccf4b824dd5ec4c01e8277f",
    "el": "ed4c905d0df5761be817f59381ce7c48fa50ec9cef5737c83e66aa7d3c898f79",
    "es": "9128a84d83d92c8b1c618d90469d16affddb7d1290b09d42a0c5109cb16f0480",
    "fr": "c796530d3e95af1ea4d054076682efc8aad2b569ae9513f3d4a776b2df3fd206",
    "ja": "7799ace9bfe0845771ed2499913e7f7e521318cf3727c007672e3b020f8eb7b9",
    "ko": "7ef2d854e9ed58e6bf861cfa9fa2579555233f9df874baf327fcb07ccd190669",
    "ru": "5a2f75d5b0dfcf660275070647af528a81be28b5d3e9c3ec2d419ef5518db7a2",
    "zh-cn": "db867cdece4c2f9c7eebe65e519c6cf386fdcf49d6e061db3dffec893b3e1dee",
}

SOURCES = (
    Source(
        "sqlite3",
        "SQLite documentation, https://www.sqlite.org/",
        "public-domain",
        "D. Richard Hipp (dedicated to the public domain)",
        (
            "Files: * Copyright: D. Richard Hipp <drh@hwaci.com> License: public-domain",
            "The files listed have been put on the public domain by the sqlite3 contributors.",
        ),
        {
            "sqlite3-doc": (
                "3.40.1-2+deb12u2",
                "466e30d7066e2641fa13e56bc662a2ad521b8cc9c17dde9c9dac3d4f105e32f2",
            )
        },
    ),
    Source(
        "python3.11",
        "Python documentation, https://docs.python.org/3.11/",
        "PSF-2.0",
        "Copyright (c) 2001-2014 Python Software Foundation; All Rights Reserved",
        (
            "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2",
            "prepare derivative works, distribute, and otherwise use Python alone or in any derivative version",
        ),
        {
            "python3.11-doc": (
                "3.11.2-6+deb12u9",
                "5b3594189d6ef9a6963ce0347fd307a1cc67620ad697e144db366070e2e146be",
            )
        },
        (
            "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2",
            "agrees to be bound by the terms and conditions of this License\nAgreement.",
        ),
    ),
    Source(
        "postgresql-15",
        "PostgreSQL documentation, https://www.postgresql.org/docs/15/",
        "PostgreSQL",
        "Portions Copyright (c) 1996-2019, PostgreSQL Global Development Group; "
        "Portions Copyright (c) 1994, The Regents of the University of California",
        (
            "Files: * Copyright: Portions Copyright (c) 1996-2019, PostgreSQL Global Development Group "
            "Portions Copyright (c) 1994, The Regents of the University of California License: PostgreSQL",
        ),
        {
            "postgresql-doc-15": (
                "15.20-0+deb12u1",
                "4c44bf2c599f208b3f46454a6cf7a72e25ec46ff74d37b59dd31ad76b00eebb7",
            )
        },
        ("License: PostgreSQL\n Permission to use", "MAINTENANCE, SUPPORT, UPDATES, ENHANCEMENTS, OR MODIFICATIONS."),
    ),
    Source(
        "gnome-user-docs",
        "GNOME Help, https://help.gnome.org/",
        "CC-BY-SA-3.0",
        "Copyright (C) 2010 - 2014 Shaun McCance; and the authors and translators named under Credits",
        ("Files: * Copyright: Copyright (C) 2010 - 2014 Shaun McCance License: CC-BY-SA-3.0",),
        {"gnome-user-docs": ("43.0-2", "0d635a840747958ca84da778b40d341f1155603851f922c9a171f5a181d6a39f")},
    ),
    Source(
        "debian-handbook",
        "The Debian Administrator's Handbook, https://debian-handbook.info/",
        "GPL-2.0-or-later OR CC-BY-SA-3.0",
        "2003-2015 Raphaël Hertzog; 2006-2015 Roland Mas; 2013-2015 Freexian SARL",
        (
            "Files: * Copyright: 2003-2015 Raphaël Hertzog <hertzog@debian.org> 2006-2015 Roland Mas "
            "<lolando@debian.org> 2013-2015 Freexian SARL License: GPL-2.0+ or CC-BY-SA-3.0",
        ),
        {"debian-handbook": ("11.20220922", "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa")},
    ),
    Source(
        "libreoffice",
        "LibreOffice Help, https://help.libreoffice.org/",
        "MPL-2.0",
        "Copyright 2000, 2010 Oracle and/or its affiliates; "
        "Copyright (c) 2000, 2010 LibreOffice contributors and/or their affiliates",
        (
            "Files: * Copyright: Copyright 2000, 2010 Oracle and/or its affiliates. Copyright (c) 2000, 2010 "
            "LibreOffice contributors and/or their affiliates. License: MPL-2.0",
        ),
        {f"libreoffice-help-{lang}": (LIBREOFFICE_VERSION, digest) for lang, digest in LIBREOFFICE_SHA256.items()},
    ),
    Source(
        "dict-jargon",
        "The Jargon File, version 4.4.7, 29 Dec 2003, http://catb.org/jargon/",
        "public-domain",
        "none (Eric S. Raymond, editor)",
        ("Files: * Copyright: The Jargon File is in the public domain License: public-domain",),
        {"dict-jargon": ("4.4.7-3.1", "405f8168d7994ed2cb71407bb95493daec2e9aa66fc0461dafa74a9d6728a8c1")},
    ),
    Source(
        "unicode-data",
        "Unicode Character Database 15.0, https://www.unicode.org/",
        "Unicode-DFS",
        "Copyright © 1991-2005 Unicode, Inc. All rights reserved (the data files themselves: © 2022 Unicode®, Inc.)",
        (
            "UNICODE, INC. LICENSE AGREEMENT - DATA FILES AND SOFTWARE",
            "the rights to use, copy, modify, merge, publish, distribute, and/or sell copies of the Data Files",
        ),
        {"unicode-data": ("15.0.0-1", "5efef23bbb1c6a133ecbdd63a2cfa07159ccacf5466a49e2426101c5ecd691fc")},
        ("COPYRIGHT AND PERMISSION NOTICE", "prior written authorization of the copyright holder."),
    ),
    Source(
        "pci.ids",
        "The PCI ID Repository, https://pci-ids.ucw.cz/",
        "GPL-2.0-or-later OR BSD-3-Clause",
        "Copyright © 1997-2023 Martin Mareš; Copyright © 2015-2023 Albert Pool",
        (
            "Files: * Copyright: Copyright © 1997-2023 Martin Mareš Copyright © 2015-2023 Albert Pool "
            "License: GPL-2+ or BSD-3-clause",
        ),
        {"pci.ids": ("0.0~2023.04.11-1", "eac5f889128f3f53100be7f16f9a7dd5aade7499fa9571f53a6c1cfa0bf4565d")},
        ("Redistribution and use in source and binary forms", "POSSIBILITY OF SUCH DAMAGE."),
    ),
    Source(
        "publicsuffix",
        "Public Suffix List, https://publicsuffix.org/",
        "MPL-2.0",
        "2010-2022 PSL maintainers, Daniel Veditz, Ehsan Akhgari, Gervase Markham, Jason Duell, Jothan Frakes, "
        "Mitchell Field, Mounir Lamouri, Ruben Arakelyan, Simone Carletti",
        (
            "Files: * Copyright: 2010-2022 PSL maintainers, Daniel Veditz, Ehsan Akhgari, Gervase Markham, "
            "Jason Duell, Jothan Frakes, Mitchell Field, Mounir Lamouri, Ruben Arakelyan, Simone Carletti "
            "License: MPL-2.0",
        ),
        {"publicsuffix": ("20230209.2326-1", "791c92c681a3cefcc9721445dc8a301a1a3cb3eef40ac2c16a4d9dd9ad5a42d7")},
    ),
)
SOURCE_OF = {package: source for source in SOURCES for package in source.packages}


@dataclass(frozen=True)
class Tree:
    """A folder of pages in one language, and how many of them the sample takes."""

    package: str
    root: str
    lang: str
    take: int
    address: str = ""  # where the same pages live on the web, to resolve their links
    english: str = ""  # the English twin of this folder, to find pages nobody has translated
    pattern: str = "**/*.html"
    shortest: int = 250
    longest: int = 6500


def libreoffice_tree(lang: str, take: int, folder: str = "", package: str = "") -> Tree:
    """The help of LibreOffice in one language; folder and package are named only where they differ from lang."""
    folder = folder or lang
    name = f"libreoffice-help-{package or lang}"
    root = "usr/share/libreoffice/help/"
    return Tree(name, root + folder, lang, take, f"https://help.libreoffice.org/7.4/{folder}/", root + "en-US")


def gnome_tree(lang: str, take: int, folder: str = "") -> Tree:
    """GNOME Help in one language (Mallard pages, not HTML)."""
    root = "usr/share/help/"
    where = f"{root}{folder or lang}/gnome-help"
    return Tree("gnome-user-docs", where, lang, take, "", f"{root}C/gnome-help", "*.page", shortest=200)


def handbook_tree(lang: str, take: int, folder: str) -> Tree:
    """The Debian Administrator's Handbook in one language."""
    root = "usr/share/doc/debian-handbook/html/"
    web = f"https://debian-handbook.info/browse/{folder}/stable/"
    return Tree("debian-handbook", root + folder, lang, take, web, root + "en-US", "*.html", longest=8000)


TREES = {
    "python": Tree(
        "python3.11-doc",
        "usr/share/doc/python3.11/html",
        "en",
        215,
        "https://docs.python.org/3.11/",
        longest=8000,
    ),
    "postgresql": Tree(
        "postgresql-doc-15",
        "usr/share/doc/postgresql-doc-15/html",
        "en",
        500,
        "https://www.postgresql.org/docs/15/",
    ),
    "sqlite": Tree("sqlite3-doc", "usr/share/doc/sqlite3", "en", 330, "https://www.sqlite.org/"),
    "libreoffice-en": libreoffice_tree("en", 390, "en-US", "en-us"),
    "libreoffice-de": libreoffice_tree("de", 95),
    "libreoffice-fr": libreoffice_tree("fr", 90),
    "libreoffice-es": libreoffice_tree("es", 85),
    "libreoffice-ru": libreoffice_tree("ru", 80),
    "libreoffice-ja": libreoffice_tree("ja", 95),
    "libreoffice-zh": libreoffice_tree("zh", 95, "zh-CN", "zh-cn"),
    "libreoffice-ko": libreoffice_tree("ko", 70),
    "libreoffice-el": libreoffice_tree("el", 60),
    "gnome-en": gnome_tree("en", 190, "C"),
    "gnome-de": gnome_tree("de", 65),
    "gnome-fr": gnome_tree("fr", 60),
    "gnome-es": gnome_tree("es", 60),
    "gnome-ru": gnome_tree("ru", 50),
    "gnome-ja": gnome_tree("ja", 16),
    "gnome-zh": gnome_tree("zh", 10, "zh_CN"),
    "gnome-ko": gnome_tree("ko", 40),
    "gnome-el": gnome_tree("el", 40),
    "gnome-pt": gnome_tree("pt", 45, "pt_BR"),
    "gnome-it": gnome_tree("it", 36),
    "gnome-pl": gnome_tree("pl", 40),
    "gnome-uk": gnome_tree("uk", 35),
    "handbook-en": handbook_tree("en", 55, "en-US"),
    "handbook-de": handbook_tree("de", 25, "de-DE"),
    "handbook-fr": handbook_tree("fr", 25, "fr-FR"),
    "handbook-es": handbook_tree("es", 22, "es-ES"),
    "handbook-ru": handbook_tree("ru", 18, "ru-RU"),
    "handbook-ja": handbook_tree("ja", 26, "ja-JP"),
    "handbook-zh": handbook_tree("zh", 19, "zh-CN"),
    "handbook-pt": handbook_tree("pt", 18, "pt-BR"),
    "handbook-it": handbook_tree("it", 14, "it-IT"),
}
JARGON_ENTRIES = 300

# Pages that hold nothing but boilerplate, taken with their navigation bars.
LEGAL_NOTICES = {
    "python": ("license.html", "copyright.html"),
    "postgresql": ("legalnotice.html",),
    "sqlite": ("copyright.html", "copyright-release.html"),
}
JAVASCRIPT_NOTICES = [key for key in TREES if key.startswith("libreoffice-")]  # noscript.html of every language
PRIVACY_PAGES = ("privacy.page", "privacy-location.page", "privacy-purge.page")
INDEX_PAGES = {
    "python": (
        "index.html", "genindex.html", "genindex-J.html", "genindex-K.html", "genindex-Q.html", "genindex-V.html",
        "genindex-X.html", "genindex-Y.html", "genindex-Z.html", "genindex-_.html", "library/index.html",
        "py-modindex.html", "search.html", "c-api/index.html", "howto/index.html", "faq/index.html",
        "reference/index.html", "tutorial/index.html",
    ),
    "postgresql": (
        "index.html", "sql-commands.html", "release.html", "contrib.html", "functions.html", "tutorial.html",
    ),
    "sqlite": ("index.html", "docs.html", "keyword_index.html", "sitemap.html", "doclist.html", "lang.html"),
    "handbook-en": ("index.html",),
    "handbook-de": ("index.html",),
    "handbook-fr": ("index.html",),
    "handbook-es": ("index.html",),
    "handbook-ja": ("index.html",),
    "gnome-en": ("index.page", "net.page"),
    "gnome-de": ("index.page", "net.page"),
    "gnome-ru": ("index.page", "net.page"),
    "libreoffice-en": ("text/swriter/main0000.html", "text/scalc/01/04060100.html"),
    "libreoffice-de": ("text/swriter/main0000.html", "text/scalc/01/04060100.html"),
    "libreoffice-ko": ("text/swriter/main0000.html", "text/scalc/01/04060100.html"),
}  # fmt: skip
HUGE_PAGES = {
    "python": ("contents.html", "library/stdtypes.html"),
    "postgresql": ("bookindex.html",),
    "sqlite": ("changes.html",),
}
HUGE_BOOKS = {"handbook-de": 240_000, "handbook-ru": 300_000}  # a whole manual in one document, up to so many bytes
LINK_LISTS = {
    "python": ("library/index.html", "genindex-B.html", "whatsnew/index.html"),
    "postgresql": ("index.html", "sql-commands.html"),
    "sqlite": ("docs.html", "c3ref/funclist.html", "syntax.html"),
    "handbook-fr": ("index.html",),
    "libreoffice-en": ("text/scalc/01/04060100.html",),
    "libreoffice-es": ("text/sbasic/shared/03080000.html", "text/shared/main0400.html"),
    "libreoffice-ru": ("text/swriter/main0100.html",),
}
# (package, file, first line, number of lines): stretches of real tables of numbers, code points and symbols.
TABLES = (
    ("unicode-data", "usr/share/unicode/UnicodeData.txt", 1200, 120),
    ("unicode-data", "usr/share/unicode/UnicodeData.txt", 19500, 90),
    ("unicode-data", "usr/share/unicode/NormalizationTest.txt.bz2", 900, 110),
    ("unicode-data", "usr/share/unicode/NormalizationTest.txt.bz2", 7000, 60),
    ("unicode-data", "usr/share/unicode/BidiTest.txt", 60000, 220),
    ("unicode-data", "usr/share/unicode/BidiCharacterTest.txt", 4000, 70),
    ("unicode-data", "usr/share/unicode/CaseFolding.txt", 400, 90),
    ("unicode-data", "usr/share/unicode/EastAsianWidth.txt", 900, 100),
    ("unicode-data", "usr/share/unicode/DerivedAge.txt", 700, 80),
    ("unicode-data", "usr/share/unicode/allkeys.txt", 15000, 100),
    ("unicode-data", "usr/share/unicode/decomps.txt", 3000, 110),
    ("unicode-data", "usr/share/unicode/Unihan_RadicalStrokeCounts.txt.bz2", 5000, 150),
    ("unicode-data", "usr/share/unicode/auxiliary/LineBreakTest.txt", 2500, 60),
    ("unicode-data", "usr/share/unicode/auxiliary/GraphemeBreakTest.txt", 200, 60),
    ("unicode-data", "usr/share/unicode/emoji/emoji-test.txt", 900, 120),
    ("unicode-data", "usr/share/unicode/emoji/emoji-zwj-sequences.txt", 300, 60),
    ("unicode-data", "usr/share/unicode/extracted/DerivedNumericValues.txt", 500, 100),
    ("unicode-data", "usr/share/unicode/extracted/DerivedBidiClass.txt", 300, 100),
    ("pci.ids", "usr/share/misc/pci.ids", 4000, 140),
    ("pci.ids", "usr/share/misc/pci.ids", 9000, 160),
    ("pci.ids", "usr/share/misc/pci.ids", 14500, 120),
    ("pci.ids", "usr/share/misc/pci.ids", 21000, 180),
    ("pci.ids", "usr/share/misc/pci.ids", 27000, 130),
    ("pci.ids", "usr/share/misc/pci.ids", 31000, 150),
)
DOMAIN_LISTS = (
    ("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 2600, 200),
    ("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 7300, 140),
    ("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 8600, 160),
    ("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 3200, 150),
)

# Pages that name a download host are left out, so that the sample never points a tool at one; coarse entries of the
# Jargon File are left out because these files reach every user.
DOWNLOAD_HOST = re.compile(
    r"\b(?:pypi|npmjs|crates)\.[a-z]|\b(?:deb|ftp|security|snapshot|archive|mirror)[a-z0-9.]*\.(?:debian|ubuntu)", re.I
)
COARSE = re.compile(r"fuck|shit|bitch|suck|sex|rape|rapist|nazi|penis|whore|bugger|slut|crap|piss|damn|screw", re.I)


# ---------------------------------------------------------------------------------------------------------------------
# Choice without chance
# ---------------------------------------------------------------------------------------------------------------------


def unit(*parts: object) -> float:
    """A number in (0, 1) that depends on nothing but the seed and the names given."""
    digest = hashlib.sha256("\x1f".join([SEED, *map(str, parts)]).encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 2)


def by_chance(names: Iterable[str], purpose: str) -> list[str]:
    """The names in an order that is fixed, but has nothing to do with their meaning."""
    return sorted(names, key=lambda name: (unit(purpose, name), name))


# ---------------------------------------------------------------------------------------------------------------------
# Packages
# ---------------------------------------------------------------------------------------------------------------------


class BuildError(Exception):
    """The packages are not what this script was written for."""


def sha256(path: Path) -> str:
    """SHA-256 of a file, to tell whether apt gave the package that is pinned."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(package: str, cache: Path, any_version: bool) -> Path:
    """Download one package with apt-get, unless the cache holds it, and return the .deb."""
    version, digest = SOURCE_OF[package].packages[package]
    found = sorted(cache.glob(f"{package}_*.deb"))
    if not found:
        wanted = package if any_version else f"{package}={version}"
        done = subprocess.run(["apt-get", "download", wanted], cwd=cache, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(
                f"apt-get cannot fetch {wanted} (run `apt-get update` on Debian 12; "
                f"if that version is gone, --any-version takes the present one):\n{done.stderr}"
            )
        found = sorted(cache.glob(f"{package}_*.deb"))
    if not any_version and sha256(found[-1]) != digest:
        raise BuildError(f"{found[-1].name} is not the pinned package ({package} {version})")
    return found[-1]


def normal(text: str) -> str:
    """Text with every run of white space as one blank, so that quotes match whatever the line breaks."""
    return " ".join(text.split())


class Packages:
    """The unpacked packages, and the copyright file of each."""

    def __init__(self, cache: Path, unpacked: Path, any_version: bool) -> None:
        self.root = unpacked
        unpacked.mkdir(parents=True)
        self.version: dict[str, str] = {}
        for package in SOURCE_OF:
            deb = fetch(package, cache, any_version)
            subprocess.run(["dpkg", "-x", str(deb), str(unpacked / package)], check=True)
            asked = subprocess.run(["dpkg-deb", "-f", str(deb), "Version"], check=True, capture_output=True, text=True)
            self.version[package] = asked.stdout.strip()
            self.check_licence(package)

    def copyright(self, package: str) -> str:
        """The Debian copyright file of a package."""
        return (self.root / package / "usr/share/doc" / package / "copyright").read_text(encoding="utf-8")

    def check_licence(self, package: str) -> None:
        """Stop when the copyright file no longer says what the sample's notice says it says."""
        held = normal(self.copyright(package))
        for quote in SOURCE_OF[package].evidence:
            if normal(quote) not in held:
                raise BuildError(f"the copyright file of {package} does not say: {quote}")

    def notice(self, source: Source) -> str:
        """The licence notice that must go along with the documents of a source."""
        assert source.notice
        text = self.copyright(next(iter(source.packages)))
        start = text.index(source.notice[0])
        end = text.index(source.notice[1], start) + len(source.notice[1])
        lines = (re.sub(r"^ \.?$", "", line.rstrip()).strip() for line in text[start:end].splitlines())
        return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# From pages to text
# ---------------------------------------------------------------------------------------------------------------------

UNSEEN = {"script", "style", "head", "svg", "template", "noscript"}
PARAGRAPHS = {
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table", "ul", "ol", "dl", "section", "header", "footer", "nav",
    "aside", "blockquote",
}  # fmt: skip
LINES = {"div", "li", "tr", "dt", "dd", "br", "hr"}
VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
}  # fmt: skip
# What the five sites call their navigation bars, side bars, footers and permalinks.
NAVIGATION = {
    "sphinxsidebar", "related", "footer", "headerlink", "navheader", "navfooter", "nosearch", "docnav",
    "mobile-nav", "banner", "TopLeftHeader", "rightside", "leftside", "DEBUG",
}  # fmt: skip


class PageReader(HTMLParser):
    """Turns an HTML page into plain text as a simple crawler does, with or without its navigation bars."""

    def __init__(self, keep_navigation: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.keep_navigation = keep_navigation
        self.parts: list[str] = []
        self.links: list[str] = []
        self.base = ""
        self._hidden: list[str] = []  # the open tags, from the outermost one that is not to be seen
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links and line breaks, and start to hide what a reader does not see."""
        given = dict(attrs)
        if tag == "base":
            self.base = given.get("href") or ""
        if self._hidden or self._hides(tag, given):
            if tag not in VOID:
                self._hidden.append(tag)
            return
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        self._preformatted += tag == "pre"
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close what was open; pages leave <p> and <li> unclosed, so close up to the matching tag."""
        if self._hidden:
            while tag in self._hidden and self._hidden.pop() != tag:
                pass
            return
        self._preformatted = max(0, self._preformatted - (tag == "pre"))
        self._break(tag)
        if tag in ("td", "th"):
            self.parts.append("\t")

    def handle_data(self, data: str) -> None:
        """Keep text; white space counts only where it is preformatted."""
        if not self._hidden:
            self.parts.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def _hides(self, tag: str, given: dict[str, str | None]) -> bool:
        if tag in UNSEEN:
            return True
        names = f"{given.get('class') or ''} {given.get('id') or ''}".split()
        return not self.keep_navigation and not NAVIGATION.isdisjoint(names)

    def _break(self, tag: str) -> None:
        if tag in PARAGRAPHS:
            self.parts.append("\n\n")
        elif tag in LINES:
            self.parts.append("\n")

    def text(self) -> str:
        """The text read so far, without trailing blanks or piles of empty lines."""
        return tidy("".join(self.parts))


def tidy(text: str) -> str:
    """Remove trailing blanks, and let no more than one empty line stand between paragraphs."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def read_html(path: Path, keep_navigation: bool) -> PageReader:
    """Read one HTML page."""
    reader = PageReader(keep_navigation)
    reader.feed(path.read_text(encoding="utf-8", errors="replace"))
    reader.close()
    return reader


MALLARD_BLOCKS = {"p", "title", "item", "td", "code", "screen", "cite", "tr"}


def mallard_text(element: ET.Element) -> str:
    """The text of a Mallard page (GNOME Help): blocks on lines of their own, key presses joined by plus signs."""
    name = element.tag.rpartition("}")[2]
    if name in ("info", "media"):
        return element.tail or ""
    if name == "keyseq":
        inside = "+".join("".join(key.itertext()) for key in element)
    else:
        inside = (element.text or "") + "".join(mallard_text(child) for child in element)
    inside = inside if name in ("code", "screen") else re.sub(r"[ \t\n]*\n[ \t]*", "\n", inside)
    if name in MALLARD_BLOCKS:
        flat = inside if name in ("code", "screen", "item", "td", "tr") else normal(inside)
        inside = f"\n{flat}\n\n" if name in ("p", "title") else f"\n{flat}\n"
    return inside + (element.tail or "")


def read_mallard(path: Path) -> str:
    """Read one Mallard page as text."""
    text = mallard_text(ET.parse(path).getroot())
    return tidy("\n".join(line.strip() for line in text.splitlines()))


def mallard_credits(path: Path) -> set[str]:
    """The people a Mallard page names as its authors, editors and translators (without their addresses)."""
    root = ET.parse(path).getroot()
    names = (normal("".join(name.itertext())) for name in root.iterfind("{*}info/{*}credit/{*}name"))
    return {name for name in names if name}


def dictd_number(digits: str) -> int:
    """A number of a dictd index, which writes them in base 64."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return functools.reduce(lambda total, digit: total * 64 + alphabet.index(digit), digits, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Rows
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the sample."""

    id: str
    text: str
    lang: str
    source: str
    url: str | None

    def as_json(self) -> str:
        """The row as one line of JSON."""
        fields = {
            "id": self.id,
            "text": self.text,
            "lang": self.lang,
            "source": self.source,
            "license": SOURCE_OF[self.source].license,
            "url": self.url,
        }
        return json.dumps(fields, ensure_ascii=False)


class Library:
    """The pages of all trees, read on demand."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self._read: dict[tuple[str, str, bool], str] = {}

    def path(self, tree: Tree, page: str) -> Path:
        """Where a page lies."""
        return self.packages.root / tree.package / tree.root / page

    def pages(self, tree: Tree) -> list[str]:
        """The pages of a tree, as paths below its root."""
        top = self.packages.root / tree.package / tree.root
        found = (path.relative_to(top).as_posix() for path in top.glob(tree.pattern))
        return sorted(page for page in found if not page.startswith("_"))

    def text(self, tree: Tree, page: str, keep_navigation: bool = False) -> str:
        """The text of a page."""
        key = (tree.package + tree.root, page, keep_navigation)
        if key not in self._read:
            path = self.path(tree, page)
            mallard = path.suffix == ".page"
            self._read[key] = read_mallard(path) if mallard else read_html(path, keep_navigation).text()
        return self._read[key]

    def row(self, tree: Tree, page: str, keep_navigation: bool = False) -> Row:
        """A page as a row of the sample."""
        text = self.text(tree, page, keep_navigation)
        return Row(row_id(tree, page), text, tree.lang, tree.package, f"{tree.root}/{page}")

    def untranslated_share(self, tree: Tree, page: str) -> float:
        """How much of a page, by characters, stands in the same words in its English twin."""
        twin = replace(tree, package=english_package(tree), root=tree.english)
        if not tree.english or tree.root == tree.english or not self.path(twin, page).exists():
            return 0.0
        english = set(self.text(twin, page).splitlines())
        lines = [line for line in self.text(tree, page).splitlines() if len(line) > 20]
        return sum(len(line) for line in lines if line in english) / max(1, sum(map(len, lines)))


def english_package(tree: Tree) -> str:
    """The package that holds the English twin of a tree."""
    return "libreoffice-help-en-us" if tree.package.startswith("libreoffice") else tree.package


def row_id(tree: Tree, page: str) -> str:
    """A name for a page that stays the same from build to build: the package and the path that tells pages apart."""
    folder = tree.root.removesuffix("/gnome-help").rpartition("/")[2]
    many = tree.package in ("gnome-user-docs", "debian-handbook")
    return f"{tree.package}/{folder}/{page}" if many else f"{tree.package}/{page}"


class Sample:
    """The rows chosen so far, by id, and for every class of dirt the ids of the rows that have it."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.dirt: dict[str, list[str]] = defaultdict(list)
        self.pages: dict[str, tuple[Tree, str, bool]] = {}  # where a row came from, for rows that are plain pages

    def add(self, row: Row, *classes: str) -> None:
        """Add a row, once, and note its dirt."""
        if row.id in self.rows:
            raise BuildError(f"{row.id} is in the sample twice")
        self.rows[row.id] = row
        self.mark(row.id, *classes)

    def mark(self, name: str, *classes: str) -> None:
        """Note the dirt of a row."""
        for each in classes:
            self.dirt[each].append(name)

    def damage(self, name: str, text: str, label: str) -> None:
        """Put a damaged text in the place of a sound one."""
        self.rows[name] = replace(self.rows[name], text=text)
        self.mark(name, label)

    def sound(self, purpose: str) -> Iterator[Row]:
        """Rows without injected or special dirt, in the order of chance."""
        spoilt = {name for label, names in self.dirt.items() if label != "navigation_bars" for name in names}
        for name in by_chance(self.pages.keys() - spoilt, purpose):
            yield self.rows[name]


# ---------------------------------------------------------------------------------------------------------------------
# Sound documents, and dirt that is there by nature
# ---------------------------------------------------------------------------------------------------------------------


def usable(text: str, tree: Tree) -> bool:
    """Whether a page is of ordinary length and names no download host."""
    return tree.shortest <= len(text) <= tree.longest and not DOWNLOAD_HOST.search(text)


def add_pages(sample: Sample, library: Library) -> None:
    """Ordinary pages: one page in six keeps its navigation bars, as in a crawl without a good extractor."""
    for key, tree in TREES.items():
        left = tree.take
        for page in by_chance(library.pages(tree), f"page {key}"):
            name = row_id(tree, page)
            if not left:
                break
            if name in sample.rows or not usable(library.text(tree, page), tree):
                continue
            if library.untranslated_share(tree, page) > 0.4:
                continue
            bars = tree.pattern != "*.page" and unit("navigation", name) < NAVIGATION_SHARE
            sample.add(library.row(tree, page, bars), *(["navigation_bars"] if bars else []))
            sample.pages[name] = (tree, page, bars)
            left -= 1
        if left:
            print(f"{key}: {left} pages fewer than asked for", file=sys.stderr)


def add_boilerplate(sample: Sample, library: Library) -> None:
    """Licence texts, notices, indexes and tables of contents, with all their bars."""
    wanted = [(key, page, "legal_notices") for key, pages in LEGAL_NOTICES.items() for page in pages]
    wanted += [(key, "noscript.html", "legal_notices") for key in JAVASCRIPT_NOTICES]
    wanted += [(key, page, "legal_notices") for key in ("gnome-en", "gnome-es") for page in PRIVACY_PAGES]
    wanted += [(key, page, "index_pages") for key, pages in INDEX_PAGES.items() for page in pages]
    for key, page, label in wanted:
        sample.add(library.row(TREES[key], page, keep_navigation=True), label)


def add_untranslated(sample: Sample, library: Library) -> None:
    """Pages that are word for word the English ones, though their language says otherwise."""
    groups: dict[str, list[str]] = defaultdict(list)
    for key, tree in TREES.items():
        for page in library.pages(tree) if key.startswith("gnome-") else []:
            if usable(library.text(tree, page), tree):
                groups[page].append(key)
    taken = 0
    for page in by_chance(groups, "untranslated"):
        same = [key for key in groups[page] if library.text(TREES[key], page) == library.text(TREES["gnome-en"], page)]
        names = [row_id(TREES[key], page) for key in same]
        if len(same) < 2 or any(name in sample.rows for name in names):
            continue
        for key, name in zip(same, names, strict=True):
            sample.add(library.row(TREES[key], page), *([] if key == "gnome-en" else ["untranslated"]))
            sample.mark(name, "duplicates_natural")
        taken += 1
        if taken == UNTRANSLATED_GROUPS:
            return


def repetition(text: str) -> float:
    """The share of lines that have stood before in the same text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return 1 - len(set(lines)) / max(1, len(lines))


def add_repeated_lines(sample: Sample, library: Library) -> None:
    """The pages that repeat their own lines most: option tables, colour tables, lists of functions."""
    found = []
    for key in ("python", "postgresql", "sqlite", "libreoffice-en", "libreoffice-fr"):
        tree = TREES[key]
        for page in library.pages(tree):
            text = library.text(tree, page)
            if row_id(tree, page) not in sample.rows and 1500 <= len(text) <= 30000 and not DOWNLOAD_HOST.search(text):
                found.append((-repetition(text), key, page))
    per_tree: Counter[str] = Counter()
    for _, key, page in sorted(found):
        if per_tree[key] < REPEATED_LINES // 4 and per_tree.total() < REPEATED_LINES:
            per_tree[key] += 1
            sample.add(library.row(TREES[key], page), "repeated_lines")


def add_huge(sample: Sample, library: Library) -> None:
    """Documents of 100 to 400 kB: single pages that are that long, and a manual in one piece."""
    for key, pages in HUGE_PAGES.items():
        for page in pages:
            sample.add(library.row(TREES[key], page, keep_navigation=True), "huge")
    for key, limit in HUGE_BOOKS.items():
        sample.add(book(library, TREES[key], limit), "huge")


def book(library: Library, tree: Tree, limit: int) -> Row:
    """All sections of a manual, one after the other, until the limit is reached."""
    chapters: list[str] = []
    for page in library.pages(tree):
        text = library.text(tree, page)
        if library.untranslated_share(tree, page) < 0.3 and not DOWNLOAD_HOST.search(text):
            chapters.append(text)
        if sum(len(chapter.encode()) for chapter in chapters) > limit:
            break
    whole = row_id(tree, "book.txt")
    return Row(whole, "\n\n".join(chapters), tree.lang, tree.package, tree.root)


def add_link_lists(sample: Sample, library: Library) -> None:
    """Lists of links, numbered as a text browser prints them below a page."""
    for key, pages in LINK_LISTS.items():
        tree = TREES[key]
        for page in pages:
            reader = read_html(library.path(tree, page), keep_navigation=True)
            base = urljoin(tree.address + page, reader.base)
            addresses = dict.fromkeys(urljoin(base, link) for link in reader.links)
            public = (address for address in addresses if address.startswith("http"))
            seen = [address for address in public if not DOWNLOAD_HOST.search(address)][:260]
            text = "References\n\n" + "\n".join(f"{n:4}. {address}" for n, address in enumerate(seen, 1))
            name = f"{row_id(tree, page)}#references"
            sample.add(Row(name, text, tree.lang, tree.package, f"{tree.root}/{page}"), "url_lists")


def table_lines(path: Path) -> list[str]:
    """The lines of a table, whether packed or not."""
    data = path.read_bytes()
    return (bz2.decompress(data) if path.suffix == ".bz2" else data).decode("utf-8").splitlines()


def add_tables(sample: Sample, library: Library) -> None:
    """Stretches of tables: code points, hexadecimal identifiers, symbols, domain names."""
    cached = functools.cache(table_lines)
    for label, stretches in (("numbers_and_symbols", TABLES), ("url_lists", DOMAIN_LISTS)):
        for package, file, first, count in stretches:
            lines = cached(library.packages.root / package / file)[first - 1 : first - 1 + count]
            name = f"{package}/{Path(file).name}#L{first}-L{first + count - 1}"
            row = Row(name, "\n".join(lines), "en", package, f"{file}#L{first}-L{first + count - 1}")
            sample.add(row, label)


def add_jargon(sample: Sample, library: Library) -> None:
    """Entries of the Jargon File: short English prose that is not a manual."""
    folder = library.packages.root / "dict-jargon/usr/share/dictd"
    data = gzip.decompress((folder / "jargon.dict.dz").read_bytes())
    entries: dict[str, str] = {}
    for line in (folder / "jargon.index").read_text(encoding="utf-8").splitlines():
        word, start, length = line.split("\t")[:3]
        first = dictd_number(start)
        entries[word] = data[first : first + dictd_number(length)].decode("utf-8", errors="replace").strip()
    left = JARGON_ENTRIES
    for word in by_chance(entries, "jargon"):
        text = entries[word]
        if left and 250 <= len(text) <= 6000 and not word.startswith("00-") and not COARSE.search(text):
            name = f"dict-jargon/{re.sub(r'[^a-z0-9]+', '-', word.lower()).strip('-')}"
            if name in sample.rows:
                continue
            sample.add(Row(name, text, "en", "dict-jargon", "usr/share/dictd/jargon.dict.dz"))
            left -= 1


# ---------------------------------------------------------------------------------------------------------------------
# Dirt that is put in
# ---------------------------------------------------------------------------------------------------------------------

WINDOWS_1252 = {byte: bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in range(0x80, 0xA0)}


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


MOJIBAKE_MAKERS: dict[str, Callable[[str], str]] = {
    "latin1": as_latin1,
    "cp1252": as_cp1252,
    "double": as_cp1252_twice,
    "cp1251": as_cp1251,
}
WESTERN = ("de", "fr", "es", "it", "pt")


def foreign(row: Row) -> bool:
    """Whether a row has enough letters beyond ASCII for an encoding mistake to show."""
    return row.lang != "en" and sum(not char.isascii() for char in row.text) >= 20


def damage_encodings(sample: Sample) -> None:
    """Mojibake of four kinds in about two of a hundred documents that are not English."""
    for label, count in MOJIBAKE.items():
        fits = (row for row in sample.sound(f"mojibake {label}") if foreign(row) and len(row.text) < 5000)
        if label == "cp1251":
            fits = (row for row in fits if row.lang == "ru")
        elif label == "double":
            fits = (row for row in fits if row.lang in WESTERN)
        for row in take(fits, count):
            sample.damage(row.id, MOJIBAKE_MAKERS[label](row.text), f"mojibake_{label}")


def with_replacement_characters(row: Row) -> str:
    """A text whose bytes could not be decoded: a Latin-1 page taken for UTF-8, or characters cut in two by a buffer."""
    if row.lang in WESTERN:
        return row.text.encode("cp1252", errors="replace").decode("utf-8", errors="replace")
    data = row.text.encode("utf-8")
    return "".join(data[at : at + 256].decode("utf-8", errors="replace") for at in range(0, len(data), 256))


def damage_bytes(sample: Sample) -> None:
    """Replacement characters where bytes were lost."""
    fits = (row for row in sample.sound("replacement") if foreign(row) and "\ufffd" in with_replacement_characters(row))
    for row in take(fits, REPLACEMENT_CHARACTERS):
        sample.damage(row.id, with_replacement_characters(row), "replacement_characters")


def with_overstrike(text: str) -> str:
    """The first line in bold as old printers and `man` write it: every letter, a backspace, the letter again."""
    first, _, rest = text.partition("\n")
    return "".join(f"{char}\b{char}" if char != " " else char for char in first) + "\n" + rest


def with_escape_codes(text: str) -> str:
    """Short lines in bold as a terminal shows them: escape sequences of a captured session."""
    return re.sub(r"(?m)^(\S.{0,38}\S)$", "\x1b[1m\\1\x1b[0m", text)


def with_page_breaks(text: str) -> str:
    """A form feed before every second paragraph and stray byte-order marks, as in a paginated text file."""
    pages = text.split("\n\n")
    return "\ufeff" + "".join(("\x0c" if n % 2 else "\n\n") + page for n, page in enumerate(pages)).strip("\n")


def damage_controls(sample: Sample) -> None:
    """Control characters of three kinds, and line ends of another system."""
    makers = (with_overstrike, with_escape_codes, with_page_breaks)
    for n, row in enumerate(take(sample.sound("controls"), CONTROL_CHARACTERS)):
        sample.damage(row.id, makers[n % 3](row.text), "control_characters")
    for row in take(sample.sound("line ends"), CARRIAGE_RETURNS):
        sample.damage(row.id, row.text.replace("\n", "\r\n"), "carriage_returns")


def take(rows: Iterable[Row], count: int) -> list[Row]:
    """The first rows of a stream, as a list, so that the stream may look at what changes afterwards."""
    return [row for row, _ in zip(rows, range(count), strict=False)]


BLANKS = (" ", "\n", "\n\n\n", " \t \n", "\u00a0", "\r\n \r\n", "\u3000\n", "\t\t")


def add_empty(sample: Sample, library: Library) -> None:
    """Pages of which nothing was left: no text, white space only, or one word of the title."""
    plan = ["empty"] * EMPTY + ["whitespace_only"] * WHITESPACE + ["one_word"] * ONE_WORD
    keys = by_chance((key for key in TREES if key.startswith(("libreoffice", "postgresql", "sqlite"))), "empty")
    for n, label in enumerate(plan):
        row = spare_row(sample, library, TREES[keys[n % len(keys)]], "empty")
        texts = {"empty": "", "whitespace_only": BLANKS[n % len(BLANKS)], "one_word": row.text.split()[0]}
        sample.add(replace(row, text=texts[label]), label)


def spare_row(sample: Sample, library: Library, tree: Tree, purpose: str) -> Row:
    """A sound page of a tree that the sample does not hold yet."""
    for page in by_chance(library.pages(tree), f"{purpose} {tree.root}"):
        fits = row_id(tree, page) not in sample.rows and usable(library.text(tree, page), tree)
        if fits and library.untranslated_share(tree, page) <= 0.2:
            return library.row(tree, page)
    raise BuildError(f"{tree.package} has no page left")


def again(row: Row, rows: Iterable[str]) -> str:
    """A new id for a further copy of a row, as if the page had been fetched once more."""
    known = set(rows)
    return next(name for n in range(2, 99) if (name := f"{row.id}@{n}") not in known)


def add_near_duplicates(sample: Sample, library: Library) -> None:
    """The same page once more, from another extractor: with its navigation bars where it had none, or without them."""
    added = 0
    for row in sample.sound("near"):
        tree, page, bars = sample.pages[row.id]
        other = library.text(tree, page, not bars)
        if tree.pattern == "*.page" or other == row.text or len(row.text) < 600:
            continue
        name = again(row, sample.rows)
        sample.add(replace(row, id=name, text=other), "near_duplicates", *([] if bars else ["navigation_bars"]))
        added += 1
        if added == NEAR_DUPLICATES:
            return


def redundant(rows: Iterable[Row]) -> int:
    """How many rows would go if of every text only one were kept."""
    texts = [row.text for row in rows]
    return len(texts) - len(set(texts))


def add_copies(sample: Sample) -> None:
    """Exact copies, until about five of a hundred rows are redundant: notices many times, ordinary pages twice."""
    full = [row for row in sample.rows.values() if row.text.strip()]
    missing = round((DUPLICATE_SHARE * len(full) - redundant(full)) / (1 - DUPLICATE_SHARE))
    notices = [name for name in sample.dirt["legal_notices"] if "noscript" not in name]
    queue = [sample.rows[name] for name in by_chance(notices, "copies") if len(sample.rows[name].text) < 9000] * 2
    queue += take(sample.sound("copies"), missing)
    for row in queue[:missing]:
        name = again(row, sample.rows)
        sample.add(replace(row, id=name), "duplicates_copied")


def mark_natural_duplicates(sample: Sample) -> None:
    """Note rows that are equal though nobody copied them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, row in sample.rows.items():
        if row.text.strip() and "@" not in name and name not in sample.dirt["one_word"]:
            groups[row.text].append(name)
    sample.dirt["duplicates_natural"] = [name for group in groups.values() if len(group) > 1 for name in group]


# ---------------------------------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------------------------------


def places(row: Row, huge: bool) -> list[str]:
    """The files for a row, the fittest first (rendezvous hashing: a row added elsewhere moves no other row)."""
    column = 0 if row.lang == "en" else 1
    weights = {
        file: shares[column]
        for file, shares in FILES.items()
        if shares[column] and not (huge and file.endswith(".jsonl"))
    }
    page = row.id.partition("@")[0]
    return sorted(weights, key=lambda file: -math.log(unit("file", file, page)) / weights[file])


def distribute(sample: Sample) -> dict[str, list[Row]]:
    """Spread the rows over the files, copies away from their originals, and shuffle every file."""
    files: dict[str, list[Row]] = {name: [] for name in FILES}
    huge = set(sample.dirt["huge"])
    for row in sample.rows.values():
        number = int(row.id.partition("@")[2] or 1)
        order = places(row, row.id in huge)
        files[order[(number - 1) % len(order)]].append(row)
    return {name: sorted(rows, key=lambda row: (unit("row", row.id), row.id)) for name, rows in files.items()}


def broken_lines(sample: Sample, library: Library) -> list[tuple[str, bytes]]:
    """Three lines no reader can use: an object cut off, an error page, and bytes that are not UTF-8."""
    cut = spare_row(sample, library, TREES["libreoffice-fr"], "broken").as_json()
    latin = spare_row(sample, library, TREES["libreoffice-de"], "broken").as_json()
    return [
        ("truncated JSON", cut[: len(cut) * 3 // 5].encode("utf-8")),
        ("not JSON", GATEWAY_ERROR.encode("ascii")),
        ("invalid UTF-8", latin.encode("cp1252", errors="replace")),
    ]


def insert_broken(lines: list[bytes], broken: list[tuple[str, bytes]]) -> list[dict[str, object]]:
    """Put the broken lines among the sound ones, and say where."""
    where: list[dict[str, object]] = []
    for n, (kind, line) in enumerate(broken):
        at = len(lines) * (2 * n + 1) // 6
        lines.insert(at, line)
        where.append({"file": BROKEN_FILE, "line": at + 1, "kind": kind})
    return where


def pack(name: str, data: bytes) -> bytes:
    """Compress as the name of the file says, without a time stamp."""
    if name.endswith(".gz"):
        return gzip.compress(data, compresslevel=9, mtime=0)
    if name.endswith(".zst"):
        return zstandard.ZstdCompressor(level=19, write_content_size=True, write_checksum=True).compress(data)
    return data


def unpack(name: str, data: bytes) -> bytes:
    """The contents of a file of the sample."""
    if name.endswith(".gz"):
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompress(data) if name.endswith(".zst") else data


DIRT_NOTES = {
    "duplicates_natural": "rows that are equal in the packages themselves (untranslated pages, the same notice)",
    "duplicates_copied": "exact copies of other rows (the id without @n), in another file than the original",
    "near_duplicates": "the page of the id without @n once more, extracted with or without its navigation bars",
    "navigation_bars": "pages that kept their navigation bars, side bars and footers",
    "legal_notices": 'licence texts, help pages on privacy, "enable JavaScript" notices',
    "index_pages": "indexes, tables of contents, search pages",
    "untranslated": "English text under another language",
    "mojibake_latin1": "UTF-8 read as ISO 8859-1",
    "mojibake_cp1252": "UTF-8 read as Windows-1252",
    "mojibake_double": "UTF-8 read as Windows-1252, twice",
    "mojibake_cp1251": "UTF-8 read as Windows-1251",
    "replacement_characters": "U+FFFD where bytes were lost",
    "control_characters": "overstrikes, terminal escape codes, form feeds, byte-order marks",
    "carriage_returns": "CR LF line ends",
    "empty": "no text",
    "whitespace_only": "white space only",
    "one_word": "a single word",
    "huge": "100 to 400 kB: four single pages, and two manuals that the script put into one piece",
    "numbers_and_symbols": "tables of code points, identifiers and symbols",
    "repeated_lines": "pages that repeat their own lines most",
    "url_lists": "domain names, and the links of real pages listed as a text browser lists them",
}
INJECTED = (
    "duplicates_copied", "near_duplicates", "mojibake_latin1", "mojibake_cp1252", "mojibake_double", "mojibake_cp1251",
    "replacement_characters", "control_characters", "carriage_returns", "empty", "whitespace_only", "one_word",
)  # fmt: skip


def dirt_json(sample: Sample, broken: list[dict[str, object]]) -> bytes:
    """The list of what is wrong with which row, for tests and for the curious."""
    classes = {
        label: {"what": note, "injected": label in INJECTED, "ids": sorted(sample.dirt[label])}
        for label, note in DIRT_NOTES.items()
    }
    whole = {"seed": SEED, "rows": len(sample.rows), "broken_lines": broken, "classes": classes}
    return (json.dumps(whole, ensure_ascii=False, indent=1) + "\n").encode()


def source_table(sample: Sample, packages: Packages) -> list[str]:
    """One line of the table for every package."""
    lines = [
        "| Debian package | Upstream | Version | Licence | Copyright holders | Documents | Languages |",
        "|---|---|---|---|---|---:|---|",
    ]
    for source in SOURCES:
        for package in source.packages:
            langs = Counter(row.lang for row in sample.rows.values() if row.source == package)
            spread = ", ".join(f"{lang} {count}" for lang, count in langs.most_common()) if len(langs) > 1 else ""
            cells = (
                package, source.upstream, packages.version[package], source.license, source.holders,
                str(langs.total()), spread or "".join(langs),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def credited(sample: Sample, library: Library) -> list[str]:
    """Everyone the chosen GNOME pages name, as the licence asks."""
    names: set[str] = set()
    for row in sample.rows.values():
        if row.source == "gnome-user-docs" and row.url:
            names |= mallard_credits(library.packages.root / row.source / row.url)
    return sorted(names)


def dirt_paragraph(count: dict[str, int], broken: list[dict[str, object]]) -> str:
    """The paragraph that says how the dirt came about, with its numbers filled in and its lines wrapped again."""
    lines = "; ".join(f"line {each['line']}: {each['kind']}" for each in broken)
    return textwrap.fill(normal(DIRT_PARAGRAPH.format(**count, broken=lines, file=BROKEN_FILE)), 120) + "\n"


def evidence() -> list[str]:
    """What each copyright file says, one line for each source."""
    return [
        f"- `{source.name}` ({source.license}): " + "; ".join(f'"{normal(quote)}"' for quote in source.evidence)
        for source in SOURCES
    ]


def notices(packages: Packages) -> list[str]:
    """The notices that some licences want to see beside the text."""
    return [
        f"### {source.name} ({source.license})\n\n{source.holders}.\n\n```text\n{packages.notice(source)}\n```\n"
        for source in SOURCES
        if source.notice
    ]


def sources_md(sample: Sample, library: Library, files: dict[str, list[Row]], broken: list[dict[str, object]]) -> bytes:
    """SOURCES.md: whose texts these are, under which licences, and how they were made dirty."""
    packages = library.packages
    count = {label: len(set(names)) for label, names in sample.dirt.items()}
    languages = Counter(row.lang for row in sample.rows.values())
    parts = [
        INTRODUCTION.format(rows=len(sample.rows), files=len(files)),
        *source_table(sample, packages),
        "",
        "Documents by language: " + ", ".join(f"{lang} {number}" for lang, number in languages.most_common()) + ".",
        "",
        "## The dirt",
        "",
        dirt_paragraph(count, broken),
        "| Class (key in dirt.json) | Rows | Put in | What |",
        "|---|---:|---|---|",
        *(f"| {label} | {count.get(label, 0)} | {'yes' if label in INJECTED else 'no'} | {note} |"
          for label, note in DIRT_NOTES.items()),
        "",
        "## Proof of the licences",
        "",
        "Quoted from `/usr/share/doc/PACKAGE/copyright` of each package; the build stops if a quote is missing there.",
        "",
        *evidence(),
        "",
        LICENCE_LINKS,
        "## Notices",
        "",
        *notices(packages),
        "## Credits",
        "",
        "Authors, editors and translators named in the GNOME Help pages of this sample: "
        + ", ".join(credited(sample, library)) + ".",
        "",
    ]  # fmt: skip
    return "\n".join(parts).encode()


INTRODUCTION = """\
# Sources of the quickstart sample

{rows} real documents in {files} files, taken from Debian 12 packages and written by `tools/build_sample.py`, which
rebuilds them byte for byte. Each row says where it comes from: `source` is the Debian package, `license` its licence
and `url` the path inside the package; `lang` is the language the package gives the page.

The documents are data that ship with tamis; they are **not** under the licence of tamis. Each keeps the licence in the
table. They were changed: turned from HTML, Mallard or dictionary files into plain text, cut into rows, and some of them
damaged on purpose, as told below. No author of these texts endorses tamis or this use of them.
"""

DIRT_PARAGRAPH = """\
Much of the dirt was in the packages: {duplicates_natural} rows are equal by nature (pages of GNOME Help that nobody
has translated yet, and the JavaScript notice of LibreOffice Help, which is English in several of them), {untranslated}
rows are English under another language, and there are {legal_notices} notices (licences, help on privacy, "enable
JavaScript"), {index_pages} indexes and tables of contents, {repeated_lines} pages that repeat themselves and
{numbers_and_symbols} stretches of tables of numbers and symbols. Some came about when pages were turned into text:
{navigation_bars} rows kept their navigation bars, {url_lists} rows are domain names or the links of a page listed as a
text browser lists them, and {huge} rows are huge (four single pages, and two manuals put into one piece). The rest
was put in by the script, always by making a mistake that programs really make:
{duplicates_copied} rows were copied to another file (so that about 5 % of all rows are redundant), {near_duplicates}
pages were extracted a second time in another way, UTF-8 was read as ISO 8859-1 ({mojibake_latin1} rows), as
Windows-1252 ({mojibake_cp1252}), twice as Windows-1252 ({mojibake_double}) or as Windows-1251 ({mojibake_cp1251}),
bytes were lost and became U+FFFD ({replacement_characters}), control characters crept in ({control_characters}), line
ends became CR LF ({carriage_returns}), and of some pages nothing was left ({empty} empty, {whitespace_only} white
space only, {one_word} one word). `{file}` also has three lines that are no rows at all ({broken}). Which row has which
dirt is in `dirt.json`.
"""

LICENCE_LINKS = """\
Texts of the licences that are not printed below: MPL-2.0 <https://www.mozilla.org/MPL/2.0/>, CC-BY-SA-3.0
<https://creativecommons.org/licenses/by-sa/3.0/>, GPL-2.0 <https://www.gnu.org/licenses/old-licenses/gpl-2.0.html>.
The source form of the MPL-2.0 documents is what stands in the rows; the original pages are in the Debian packages
named above. Where a licence gives a choice (`OR`), the choice is passed on. "Unicode-DFS" is the licence of the
Unicode data files as the Debian package quotes it; later wordings of it are known as Unicode-DFS-2015 and
Unicode-DFS-2016. Of the GNOME and Debian Handbook pages, the rows that were damaged or copied stay under CC-BY-SA-3.0.
"""


# ---------------------------------------------------------------------------------------------------------------------
# The whole
# ---------------------------------------------------------------------------------------------------------------------


def choose(library: Library) -> Sample:
    """Pick the rows and make some of them dirty; special pages first, so that ordinary ones do not take them."""
    sample = Sample()
    add_boilerplate(sample, library)
    add_huge(sample, library)
    add_link_lists(sample, library)
    add_tables(sample, library)
    add_untranslated(sample, library)
    add_repeated_lines(sample, library)
    add_pages(sample, library)
    add_jargon(sample, library)
    damage_encodings(sample)
    damage_bytes(sample)
    damage_controls(sample)
    add_near_duplicates(sample, library)
    add_empty(sample, library)
    add_copies(sample)
    mark_natural_duplicates(sample)
    return sample


def build(cache: Path, unpacked: Path, any_version: bool) -> dict[str, bytes]:
    """Make all files of the sample, by name."""
    library = Library(Packages(cache, unpacked, any_version))
    sample = choose(library)
    files = distribute(sample)
    made: dict[str, bytes] = {}
    where: list[dict[str, object]] = []
    for name, rows in files.items():
        lines = [row.as_json().encode("utf-8") for row in rows]
        if name == BROKEN_FILE:
            where = insert_broken(lines, broken_lines(sample, library))
        made[name] = pack(name, b"".join(line + b"\n" for line in lines))
    made["dirt.json"] = dirt_json(sample, where)
    made["SOURCES.md"] = sources_md(sample, library, files, where)
    return made


def differences(made: dict[str, bytes], out: Path) -> list[str]:
    """The names of files that are missing from a folder or hold something else."""
    return [
        name
        for name, data in made.items()
        if not (out / name).exists() or unpack(name, (out / name).read_bytes()) != unpack(name, data)
    ]


def main() -> int:
    """Build the sample, and write it or compare it."""
    parser = argparse.ArgumentParser(description="Rebuild the quickstart sample from Debian packages.")
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to (default: %(default)s)")
    parser.add_argument("--cache", type=Path, help="folder that keeps the downloaded packages")
    parser.add_argument("--any-version", action="store_true", help="take the packages apt offers, pinned or not")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the folder holds another sample")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or Path(scratch, "packages")
        cache.mkdir(parents=True, exist_ok=True)
        try:
            made = build(cache.resolve(), Path(scratch, "unpacked"), args.any_version)
        except BuildError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if args.check:
        wrong = differences(made, args.out)
        print(f"differ: {', '.join(wrong)}" if wrong else "the sample is up to date")
        return 1 if wrong else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (args.out / name).write_bytes(data)
        print(f"{len(data):9} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
