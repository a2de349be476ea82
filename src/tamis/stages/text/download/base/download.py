"""Fetch files, each as a whole or not at all."""

from __future__ import annotations

import http.client
import logging
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from tamis.errors import DataError, PlanError, redacted
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.paths import absolute, base_name, filesystem, is_local, make_directory, open_read, protocol
from tamis.stages.io.readers import ON_ERROR
from tamis.stages.resources import Resources
from tamis.tasks import FileGroup, FileSlice
from tamis.tasks.base import digest
from tamis.tasks.storage import temporary_beside

__all__ = ["DocumentDownloadStage", "DocumentDownloader"]

_LOG = logging.getLogger("tamis")
_CHUNK_BYTES = 2**20
_LONGEST_WAIT_S = 60.0
_IN_ADDRESSES = "%/:=&?~#+!$,;'@()*[]"
"""What stays as it is in a web address; spaces and what is not ASCII is quoted."""

_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP answers that may be different the next time."""


@dataclass
class DocumentDownloader:
    """Fetches files into a directory. What is there already is not fetched again.

    It fetches web addresses, local paths and all that fsspec knows. For other sources, a subclass overrides
    :meth:`_download_to_path`; for other file names, :meth:`_get_output_filename`. A file is written under a temporary
    name and renamed once all of it is there, so a file in the directory is never a part of one.

    Args:
        download_dir: A local directory for the files.
        verbose: Whether to log each file.
        retries: How often to try again when a download breaks off or a server is busy.
        backoff_s: Seconds to wait before trying again; twice as long each time.
        timeout_s: Seconds without an answer after which a connection counts as broken.

    >>> import fsspec, tempfile
    >>> fsspec.filesystem("memory").pipe_file("/web/a.txt", b"hello")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = DocumentDownloader(folder).download("memory://web/a.txt")
    ...     open(path, "rb").read()
    b'hello'
    """

    download_dir: str
    verbose: bool = False
    retries: int = 3
    backoff_s: float = 1.0
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.retries < 0 or self.backoff_s < 0 or self.timeout_s <= 0:
            given = f"retries={self.retries}, backoff_s={self.backoff_s}, timeout_s={self.timeout_s}"
            raise PlanError(
                f"{type(self).__name__}({given}): the first two must not be negative, the last must be more than 0"
            )

    @property
    def _download_dir(self) -> str:
        """The same as ``download_dir``: under this name, classes that come from NeMo Curator read it."""
        return self.download_dir

    @property
    def _verbose(self) -> bool:
        return self.verbose

    def _get_output_filename(self, url: str) -> str:
        """The name of the file for an address: its last part, and a mark that is different for each address.

        >>> DocumentDownloader("raw")._get_output_filename("https://example.org/2024/part.jsonl.gz?x=1")
        'part-9af7e5cd.jsonl.gz'
        """
        name = re.sub(r"[^\w.+=-]", "_", base_name(url)).encode()[-120:].decode(errors="ignore")
        stem, ending = re.fullmatch(r"(.*?)((?:\.[A-Za-z]\w{0,7}){0,2})", name, re.DOTALL).groups()  # type: ignore[union-attr]  # it matches anything
        return f"{stem or 'file'}-{digest(url)[:8]}{ending}"

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        """Fetch an address into a file: ``(True, None)``, or ``(False, why)`` if it is worth another try.

        What will not be different the next time (there is no such file) is a :class:`~tamis.errors.DataError`.
        """
        with open(path, "wb") as file:  # noqa: PTH123 - plain open is enough
            if protocol(url) in ("http", "https"):
                expected = self._copy_from_web(url, file)
            else:
                expected = _copy_from_storage(url, file)
            got = file.tell()
        if expected is not None and got != expected:
            return False, f"it broke off after {got} of {expected} bytes"
        return True, None

    def download(self, url: str) -> str:
        """Fetch an address; return the path of the file. A :class:`~tamis.errors.DataError` if it cannot be had."""
        folder = absolute(self.download_dir)
        final = os.path.normpath(os.path.join(folder, self._get_output_filename(url)))
        if not final.startswith(os.path.join(folder, "")):
            raise DataError(f"its file name leads out of {folder}", path=url)
        if os.path.exists(final) and os.path.getsize(final) > 0:
            self._log("%s is there already: %s", redacted(url), final)
            return final
        make_directory(os.path.dirname(final))
        for attempt in range(self.retries + 1):
            with temporary_beside(final) as temporary:
                problem, wait_s = self._attempt(url, temporary)
                if problem is None:
                    os.replace(temporary, final)
                    self._log("%s fetched: %s, %d bytes", redacted(url), final, os.path.getsize(final))
                    return final
                Path(temporary).unlink(missing_ok=True)
            if attempt < self.retries:
                wait_s = min(max(wait_s, self.backoff_s * 2**attempt), _LONGEST_WAIT_S)
                _LOG.warning("%s: %s; trying again in %g s", redacted(url), problem, wait_s)
                time.sleep(wait_s)
        raise DataError(f"{problem} (tried {self.retries + 1} times)", path=url)

    def num_workers_per_node(self) -> int | None:
        """How many files to fetch at the same time on one machine; ``None`` for as many as there are workers.

        Four by default: kind to the server, and enough that extraction has something to do meanwhile.
        """
        return 4

    def _attempt(self, url: str, path: str) -> tuple[str | None, float]:
        """Try once: what went wrong, if anything, and how long the server wants to be left alone, in seconds."""
        try:
            done, problem = self._download_to_path(url, path)
            return (None, 0.0) if done else (problem or "it failed, with no reason given", 0.0)
        except urllib.error.HTTPError as e:
            e.close()
            if e.code not in _TRY_AGAIN:
                raise DataError(f"the server says {e.code} {e.reason}", path=url) from e
            return f"the server says {e.code} {e.reason}", _asked_wait(e)
        except urllib.error.URLError as e:
            return f"no connection: {e.reason}", 0.0
        except (OSError, http.client.HTTPException) as e:
            return f"{type(e).__name__}: {e}", 0.0

    def _copy_from_web(self, url: str, file: BinaryIO) -> int | None:
        """Copy an HTTP response; return how long it should be, where the server says so."""
        address = urllib.parse.quote(url, safe=_IN_ADDRESSES)
        try:
            request = urllib.request.Request(address, headers={"User-Agent": "tamis"})
            response = urllib.request.urlopen(request, timeout=self.timeout_s)
        except (ValueError, http.client.InvalidURL) as e:
            raise DataError(f"it is not a web address: {e}", path=url) from e
        with response:
            shutil.copyfileobj(response, file, _CHUNK_BYTES)
            length = response.headers.get("Content-Length")
        return int(length) if length is not None and length.isdigit() else None

    def _log(self, message: str, *values: object) -> None:
        if self.verbose:
            _LOG.info(message, *values)


def _copy_from_storage(url: str, file: BinaryIO) -> int | None:
    """Copy a local file, or one of an fsspec file system; return how long it should be, where that is known."""
    path = absolute(url)
    with open_read(path) as source:
        shutil.copyfileobj(source, file, _CHUNK_BYTES)
    if is_local(path):
        return os.path.getsize(path)
    fs, inner = filesystem(path)
    size = fs.info(inner).get("size")
    return None if size is None else int(size)


def _asked_wait(answer: urllib.error.HTTPError) -> float:
    """How many seconds the server asks to wait."""
    asked = answer.headers.get("Retry-After", "") if answer.headers else ""
    return float(asked) if asked.isdigit() else 0.0


@dataclass
class DocumentDownloadStage(ProcessingStage[FileGroup, FileGroup]):
    """Fetch the addresses of a task.

    Args:
        downloader: Fetches them.
        on_error: ``"quarantine"`` sets aside an address that cannot be downloaded and continues, ``"raise"`` stops.

    >>> DocumentDownloadStage(DocumentDownloader("raw")).name
    'download_documentdownloader'
    """

    downloader: DocumentDownloader
    on_error: str = "quarantine"

    resources = Resources(cpus=0.5)
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = f"download_{type(self.downloader).__name__.lower()}"
        check_choice(type(self).__name__, "on_error", self.on_error, ON_ERROR)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None

    def num_workers(self) -> int | None:
        return self._num_workers or self.downloader.num_workers_per_node()

    def process(self, task: FileGroup) -> Iterator[FileGroup | BadRows]:
        """The same task with local paths in place of addresses."""
        slices = []
        for url in task.data:
            try:
                path = self.downloader.download(url)
                if path is None:  # a download() that a user has overridden, as in NeMo Curator
                    raise DataError("download() gave no file", path=url)
            except DataError as e:
                if self.on_error == "raise":
                    raise
                yield BadRows((BadRow(url, None, None, e.problem),))
                continue
            slices.append(FileSlice(path, size=os.path.getsize(path)))
            self.log_metric("downloaded_bytes", slices[-1].size)
        if slices:
            paths = [s.path for s in slices]
            yield FileGroup(
                paths, task.dataset_name, _metadata={**task._metadata, "source_files": paths}, slices=slices
            )
