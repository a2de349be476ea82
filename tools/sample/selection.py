"""Which pages of the packages the sample takes, and how many."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

# Pages that name a download host are left out, so that the sample never points a tool at one.
DOWNLOAD_HOST = re.compile(
    r"\b(?:pypi|npmjs|crates)\.[a-z]|\b(?:deb|ftp|security|snapshot|archive|mirror)[a-z0-9.]*\.(?:debian|ubuntu)", re.I
)


@dataclass(frozen=True)
class Tree:
    """A folder of pages in one language, and how many of them the sample takes."""

    package: str
    root: str
    lang: str
    take: int
    web: str = ""  # where the same pages live on the web, to resolve their links
    english: str = ""  # the key of the English twin of this folder, to find pages nobody has translated
    pattern: str = "**/*.html"
    shortest: int = 250
    longest: int = 6500

    @property
    def mallard(self) -> bool:
        """Whether the pages are Mallard (GNOME Help), which has no navigation bars."""
        return self.pattern == "*.page"

    def accepts(self, text: str) -> bool:
        """Whether a page is of ordinary length and names no download host."""
        return self.shortest <= len(text) <= self.longest and not DOWNLOAD_HOST.search(text)

    def row_id(self, page: str) -> str:
        """A name for a page that is the same in every build: the package, and the path that tells pages apart."""
        if self.package not in ("gnome-user-docs", "debian-handbook"):  # one language to a package
            return f"{self.package}/{page}"
        folder = self.root.removesuffix("/gnome-help").rpartition("/")[2]
        return f"{self.package}/{folder}/{page}"


def libreoffice(lang: str, take: int, folder: str = "") -> Tree:
    """The help of LibreOffice in one language; the folder is named only where it differs from the language."""
    folder = folder or lang
    return Tree(
        f"libreoffice-help-{folder.lower()}",
        f"usr/share/libreoffice/help/{folder}",
        lang,
        take,
        web=f"https://help.libreoffice.org/7.4/{folder}/",
        english="" if lang == "en" else "libreoffice-en",
    )


def gnome(lang: str, take: int, folder: str = "") -> Tree:
    """GNOME Help in one language; the folder is named only where it differs from the language."""
    root = f"usr/share/help/{folder or lang}/gnome-help"
    english = "" if lang == "en" else "gnome-en"
    return Tree("gnome-user-docs", root, lang, take, english=english, pattern="*.page", shortest=200)


def handbook(lang: str, take: int, folder: str) -> Tree:
    """The Debian Administrator's Handbook in one language."""
    return Tree(
        "debian-handbook",
        f"usr/share/doc/debian-handbook/html/{folder}",
        lang,
        take,
        web=f"https://debian-handbook.info/browse/{folder}/stable/",
        english="" if lang == "en" else "handbook-en",
        pattern="*.html",
        longest=8000,
    )


TREES = {
    "python": Tree(
        "python3.11-doc", "usr/share/doc/python3.11/html", "en", 215, web="https://docs.python.org/3.11/", longest=8000
    ),
    "postgresql": Tree(
        "postgresql-doc-15",
        "usr/share/doc/postgresql-doc-15/html",
        "en",
        500,
        web="https://www.postgresql.org/docs/15/",
    ),
    "sqlite": Tree("sqlite3-doc", "usr/share/doc/sqlite3", "en", 330, web="https://www.sqlite.org/"),
    "libreoffice-en": libreoffice("en", 390, "en-US"),
    "libreoffice-de": libreoffice("de", 95),
    "libreoffice-fr": libreoffice("fr", 90),
    "libreoffice-es": libreoffice("es", 85),
    "libreoffice-ru": libreoffice("ru", 80),
    "libreoffice-ja": libreoffice("ja", 95),
    "libreoffice-zh": libreoffice("zh", 95, "zh-CN"),
    "libreoffice-ko": libreoffice("ko", 70),
    "libreoffice-el": libreoffice("el", 60),
    "gnome-en": gnome("en", 190, "C"),
    "gnome-de": gnome("de", 65),
    "gnome-fr": gnome("fr", 60),
    "gnome-es": gnome("es", 60),
    "gnome-ru": gnome("ru", 50),
    "gnome-ja": gnome("ja", 16),
    "gnome-zh": gnome("zh", 10, "zh_CN"),
    "gnome-ko": gnome("ko", 40),
    "gnome-el": gnome("el", 40),
    "gnome-pt": gnome("pt", 45, "pt_BR"),
    "gnome-it": gnome("it", 36),
    "gnome-pl": gnome("pl", 40),
    "gnome-uk": gnome("uk", 35),
    "handbook-en": handbook("en", 55, "en-US"),
    "handbook-de": handbook("de", 25, "de-DE"),
    "handbook-fr": handbook("fr", 25, "fr-FR"),
    "handbook-es": handbook("es", 22, "es-ES"),
    "handbook-ru": handbook("ru", 18, "ru-RU"),
    "handbook-ja": handbook("ja", 26, "ja-JP"),
    "handbook-zh": handbook("zh", 19, "zh-CN"),
    "handbook-pt": handbook("pt", 18, "pt-BR"),
    "handbook-it": handbook("it", 14, "it-IT"),
}
JARGON_ENTRIES = 300

PRIVACY = ("privacy.page", "privacy-location.page", "privacy-purge.page")
NETWORK = ("index.page", "net.page")
OFFICE_CONTENTS = ("text/swriter/main0000.html", "text/scalc/01/04060100.html")

# Class of dirt -> tree -> pages that are nothing else, taken with their navigation bars.
SPECIAL_PAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "legal_notices": {
        "python": ("license.html", "copyright.html"),
        "postgresql": ("legalnotice.html",),
        "sqlite": ("copyright.html", "copyright-release.html"),
        **{key: ("noscript.html",) for key in TREES if key.startswith("libreoffice-")},
        "gnome-en": PRIVACY,
        "gnome-es": PRIVACY,
    },
    "index_pages": {
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
        **{f"handbook-{lang}": ("index.html",) for lang in ("en", "de", "fr", "es", "ja")},
        **{f"gnome-{lang}": NETWORK for lang in ("en", "de", "ru")},
        **{f"libreoffice-{lang}": OFFICE_CONTENTS for lang in ("en", "de", "ko")},
    },
    "huge": {
        "python": ("contents.html", "library/stdtypes.html"),
        "postgresql": ("bookindex.html",),
        "sqlite": ("changes.html",),
    },
}  # fmt: skip
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


class Stretch(NamedTuple):
    """Some lines of a file of a package."""

    package: str
    file: str
    first: int  # counted from one
    length: int


# Real tables of numbers, code points and symbols.
TABLES = (
    Stretch("unicode-data", "usr/share/unicode/UnicodeData.txt", 1200, 120),
    Stretch("unicode-data", "usr/share/unicode/UnicodeData.txt", 19500, 90),
    Stretch("unicode-data", "usr/share/unicode/NormalizationTest.txt.bz2", 900, 110),
    Stretch("unicode-data", "usr/share/unicode/NormalizationTest.txt.bz2", 7000, 60),
    Stretch("unicode-data", "usr/share/unicode/BidiTest.txt", 60000, 220),
    Stretch("unicode-data", "usr/share/unicode/BidiCharacterTest.txt", 4000, 70),
    Stretch("unicode-data", "usr/share/unicode/CaseFolding.txt", 400, 90),
    Stretch("unicode-data", "usr/share/unicode/EastAsianWidth.txt", 900, 100),
    Stretch("unicode-data", "usr/share/unicode/DerivedAge.txt", 700, 80),
    Stretch("unicode-data", "usr/share/unicode/allkeys.txt", 15000, 100),
    Stretch("unicode-data", "usr/share/unicode/decomps.txt", 3000, 110),
    Stretch("unicode-data", "usr/share/unicode/Unihan_RadicalStrokeCounts.txt.bz2", 5000, 150),
    Stretch("unicode-data", "usr/share/unicode/auxiliary/LineBreakTest.txt", 2500, 60),
    Stretch("unicode-data", "usr/share/unicode/auxiliary/GraphemeBreakTest.txt", 200, 60),
    Stretch("unicode-data", "usr/share/unicode/emoji/emoji-test.txt", 900, 120),
    Stretch("unicode-data", "usr/share/unicode/emoji/emoji-zwj-sequences.txt", 300, 60),
    Stretch("unicode-data", "usr/share/unicode/extracted/DerivedNumericValues.txt", 500, 100),
    Stretch("unicode-data", "usr/share/unicode/extracted/DerivedBidiClass.txt", 300, 100),
    Stretch("pci.ids", "usr/share/misc/pci.ids", 4000, 140),
    Stretch("pci.ids", "usr/share/misc/pci.ids", 9000, 160),
    Stretch("pci.ids", "usr/share/misc/pci.ids", 14500, 120),
    Stretch("pci.ids", "usr/share/misc/pci.ids", 21000, 180),
    Stretch("pci.ids", "usr/share/misc/pci.ids", 27000, 130),
    Stretch("pci.ids", "usr/share/misc/pci.ids", 31000, 150),
)
DOMAIN_LISTS = (
    Stretch("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 2600, 200),
    Stretch("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 7300, 140),
    Stretch("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 8600, 160),
    Stretch("publicsuffix", "usr/share/publicsuffix/public_suffix_list.dat", 3200, 150),
)

# Coarse entries of the Jargon File are left out because these files reach every user.
COARSE = re.compile(r"fuck|shit|bitch|suck|sex|rape|rapist|nazi|penis|whore|bugger|slut|crap|piss|damn|screw", re.I)
