"""Turns HTML pages, Mallard pages and dictd numbers into plain text and plain numbers."""

from __future__ import annotations

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
