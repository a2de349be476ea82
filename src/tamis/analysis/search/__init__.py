"""Search: the rows of a data set whose embeddings are nearest to that of a text."""

from tamis.lazy import load_when_used

__all__ = ["Hit", "SearchResult", "search"]

__getattr__, __dir__ = load_when_used(
    __name__,
    {
        "Hit": "tamis.analysis.search.files",
        "SearchResult": "tamis.analysis.search.files",
        "search": "tamis.analysis.search.files",
    },
)
