"""The web sites that documents come from and link to."""

from __future__ import annotations

from typing import Final

import polars as pl
import pyarrow as pa

__all__ = ["MAX_LINKED", "URL_FIELDS", "linked_sites", "site_of"]

URL_FIELDS: Final = ("url", "uri", "source_url", "page_url", "link", "warc-target-uri", "warc_target_uri")
"""Names of columns that hold a document's address, in lower case."""

MAX_LINKED: Final = 20
"""How many sites that a document links to are counted, the first in the alphabet."""

_ADDRESS: Final = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#@\s]*@)?([^/?#:@\s]+)"
_LINK: Final = r"https?://[A-Za-z0-9][A-Za-z0-9.-]*"


def site_of(addresses: pa.ChunkedArray) -> pl.Series:
    """The site of each address: its host in lower case, without ``www.``; null where there is none.

    >>> site_of(pa.chunked_array([["https://me@www.Example.org:80/a", "no address", None]])).to_list()
    ['example.org', None, None]
    """
    hosts = pl.Series(pl.from_arrow(addresses)).cast(pl.String).str.extract(_ADDRESS, 1)
    return hosts.str.to_lowercase().str.strip_prefix("www.").str.strip_chars_end(".")


def linked_sites(texts: pa.ChunkedArray) -> pl.Series:
    """The sites that each text has links to, each once, in alphabetical order.

    >>> linked_sites(pa.chunked_array([["see http://b.org/1, https://www.a.org. http://b.org/2", ""]])).to_list()
    [['a.org', 'b.org'], []]
    """
    links = pl.Series(pl.from_arrow(texts)).fill_null("").str.extract_all(_LINK)
    host = pl.element().str.extract(r"//(.*)$", 1).str.to_lowercase().str.strip_prefix("www.").str.strip_chars_end(".")
    return links.list.eval(host).list.unique().list.sort().list.head(MAX_LINKED)
