"""What every source of documents is made of."""

from tamis.stages.text.download.base.download import DocumentDownloader, DocumentDownloadStage
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.base.iterator import DocumentIterateExtractStage, DocumentIterator
from tamis.stages.text.download.base.stage import DocumentDownloadExtractStage
from tamis.stages.text.download.base.url_generation import URLGenerationStage, URLGenerator, URLList

__all__ = [
    "DocumentDownloadExtractStage",
    "DocumentDownloadStage",
    "DocumentDownloader",
    "DocumentExtractor",
    "DocumentIterateExtractStage",
    "DocumentIterator",
    "URLGenerationStage",
    "URLGenerator",
    "URLList",
]
