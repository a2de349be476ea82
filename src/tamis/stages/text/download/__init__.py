"""Documents from elsewhere: find addresses, fetch files, take the documents out of them."""

from tamis.stages.text.download.base import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentExtractor,
    DocumentIterator,
    URLGenerator,
    URLList,
)

__all__ = [
    "DocumentDownloadExtractStage",
    "DocumentDownloader",
    "DocumentExtractor",
    "DocumentIterator",
    "URLGenerator",
    "URLList",
]
