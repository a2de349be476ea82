"""Turns HTML and Mallard pages into plain text, as a simple crawler does."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

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
MALLARD_BLOCKS = {"item", "td", "tr", "code", "screen"}
MALLARD_PREFORMATTED = {"code", "screen"}


def one_line(text: str) -> str:
    """Text with every run of white space as one blank."""
    return " ".join(text.split())


def tidy(text: str) -> str:
    """Remove trailing blanks, and let no more than one empty line stand between paragraphs."""
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


class PageReader(HTMLParser):
    """The text and the links of an HTML page, with or without its navigation bars."""

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


def read_html(path: Path, keep_navigation: bool) -> PageReader:
    """Read one HTML page."""
    reader = PageReader(keep_navigation)
    reader.feed(path.read_text(encoding="utf-8", errors="replace"))
    reader.close()
    return reader


def mallard_text(element: ET.Element) -> str:
    """The text of a Mallard element and its tail: blocks on lines of their own, key presses joined by plus signs."""
    name = element.tag.rpartition("}")[2]
    tail = element.tail or ""
    if name in ("info", "media"):
        return tail
    if name == "keyseq":
        inside = "+".join("".join(key.itertext()) for key in element)
    else:
        inside = (element.text or "") + "".join(mallard_text(child) for child in element)
    if name not in MALLARD_PREFORMATTED:
        inside = re.sub(r"[ \t\n]*\n[ \t]*", "\n", inside)
    if name in ("p", "title"):
        return f"\n{one_line(inside)}\n\n{tail}"
    if name == "cite":
        return f"\n{one_line(inside)}\n{tail}"
    return (f"\n{inside}\n" if name in MALLARD_BLOCKS else inside) + tail


def read_mallard(path: Path) -> str:
    """Read one Mallard page (GNOME Help) as text."""
    text = mallard_text(ET.parse(path).getroot())
    return tidy("\n".join(line.strip() for line in text.splitlines()))


def mallard_credits(path: Path) -> set[str]:
    """The people a Mallard page names as its authors, editors and translators (without their addresses)."""
    root = ET.parse(path).getroot()
    names = (one_line("".join(name.itertext())) for name in root.iterfind("{*}info/{*}credit/{*}name"))
    return {name for name in names if name}
