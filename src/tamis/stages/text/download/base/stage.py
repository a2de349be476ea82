"""The three steps as one stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.download.base.download import DocumentDownloader, DocumentDownloadStage
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.base.iterator import DocumentIterateExtractStage, DocumentIterator
from tamis.stages.text.download.base.url_generation import URLGenerationStage, URLGenerator
from tamis.tasks import DocumentBatch, EmptyTask

__all__ = ["DocumentDownloadExtractStage"]


@dataclass
class DocumentDownloadExtractStage(CompositeStage[EmptyTask, DocumentBatch]):
    """Find addresses, fetch the files, read the records in them and make documents of those.

    Each address is a task of its own. Files are fetched and read at the same time; a file that was fetched in an
    earlier run is not fetched again. What cannot be fetched, read or extracted goes to the quarantine.

    Args:
        url_generator: Finds the addresses.
        downloader: Fetches files.
        iterator: Reads the records of a file.
        extractor: Makes documents of records; without one the records are the documents.
        url_limit: At most so many addresses.
        record_limit: At most so many documents of each file.
        add_filename_column: Whether to add the name of the file as a column, ``file_name``; or the column's name.
        extractor_max_calls_per_worker: After so many files a worker process is replaced by a fresh one, for extractors
            that leak memory (only on Ray Data).
        on_error: ``"quarantine"`` sets aside what cannot be downloaded or read and continues, ``"raise"`` stops.

    >>> from tamis.stages.text.download import DocumentDownloader, DocumentIterator, URLList
    >>> class Lines(DocumentIterator):
    ...     def iterate(self, file_path):
    ...         with open(file_path, encoding="utf-8") as file:
    ...             yield from ({"text": line.rstrip()} for line in file)
    ...     def output_columns(self):
    ...         return ["text"]
    >>> urls = URLList(["https://example.org/a.txt"])
    >>> source = DocumentDownloadExtractStage(urls, DocumentDownloader("raw"), Lines())
    >>> [stage.name for stage in source.decompose()]
    ['url_generation_urllist', 'download_documentdownloader', 'iterate_lines']
    """

    url_generator: URLGenerator
    downloader: DocumentDownloader
    iterator: DocumentIterator
    extractor: DocumentExtractor | None = None
    url_limit: int | None = None
    record_limit: int | None = None
    add_filename_column: bool | str = True
    extractor_max_calls_per_worker: int | None = None
    on_error: str = "quarantine"

    def __post_init__(self) -> None:
        self.decompose()  # refuses wrong arguments

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            URLGenerationStage(self.url_generator, self.url_limit),
            DocumentDownloadStage(self.downloader, self.on_error),
            DocumentIterateExtractStage(
                self.iterator,
                self.extractor,
                self.record_limit,
                self.add_filename_column,
                self.extractor_max_calls_per_worker,
                self.on_error,
            ),
        ]
