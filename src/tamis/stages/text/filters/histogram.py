"""A filter that compares the characters of a text with those that are usual in its language."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import DataError, did_you_mean
from tamis.kernels.utf8 import WHITE_SPACE, CharacterSet, character_counts, measure
from tamis.stages.text.filters.base import SHARE, ThresholdFilter

__all__ = ["HistogramFilter"]

_ARCHIVE = "https://dl.fbaipublicfiles.com/m2m_100/histograms.tar.gz"
_FOLDER = "histograms"
_INSIDE = ("checkpoint", "edunov", "cc60_multilingual", "clean_hists")
_TIMEOUT_S = 60


@dataclass
class HistogramFilter(ThresholdFilter):
    """Drop text with too many characters that are unusual in its language: a cheap check of the language.

    Score: 1 if the characters of the stripped text that are in the histogram of the language are more than the
    threshold's share of the whole text, else 0; 0 for an empty text. Kept are texts with the score 1. The rule and the
    histograms are those of M2M-100 (Fan et al., 2020) and NLLB (NLLB Team, 2022, section 5.1).

    The histograms are downloaded once on each machine. Where that cannot be done, unpack the archive by hand into
    ``histograms`` below ``cache_dir``, or give its path.

    Args:
        lang: The language the texts should be in, by its ISO 639-1 code.
        threshold: The share of usual characters, 0 to 1, that must be exceeded.
        cache_dir: Where the histograms are kept; when empty, ``tamis`` in the user's cache directory.
        threshold_char: The character at the start of the line that ends the usual characters in a histogram.
        archive: Where the histograms come from: an address, or the path of a ``.tar.gz`` with the same content.

    >>> HistogramFilter("de").keep_document(1)
    True
    """

    lang: str = "en"
    threshold: float = 0.8
    cache_dir: str = ""
    threshold_char: str = "]"
    archive: str = field(default=_ARCHIVE, kw_only=True)
    name = "histogram"

    def __post_init__(self) -> None:
        if not self.lang or os.path.basename(self.lang) != self.lang or self.lang in (".", ".."):
            raise ValueError(f"HistogramFilter(lang={self.lang!r}): give the code of a language, such as 'en'")

    def check_parameters(self) -> None:
        self._require("threshold", SHARE)

    def model_check_or_download(self) -> None:
        """Download the histograms, unless they are there already."""
        if not os.path.isdir(os.path.join(self._cache, _FOLDER)):
            _unpack(self.archive, self._cache)

    def load_model(self) -> None:
        """Read the histogram of the language."""
        self._usual  # noqa: B018 - read and kept at its first use

    def score_document(self, text: str) -> int:
        usual = sum(character in self._characters for character in text.strip())
        return int(bool(text) and usual / len(text) > self.threshold)

    def bounds(self) -> tuple[float | None, float | None]:
        return 1, None

    def score_column(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        usual = measure(pc.utf8_trim(column, characters=WHITE_SPACE), self._usual.counts)
        lengths = measure(column, character_counts)
        shares: NDArray[np.float64] = np.full(len(usual), -np.inf)
        np.divide(usual, lengths, out=shares, where=lengths > 0)
        return (shares > self.threshold).astype(np.int64)

    def reason(self) -> str:
        return f"{self.name}: usual characters of {self.lang} <= {self.threshold}"

    @property
    def _cache(self) -> str:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return self.cache_dir or os.path.join(caches, "tamis")

    @functools.cached_property
    def _characters(self) -> frozenset[str]:
        self.model_check_or_download()
        folder = os.path.join(self._cache, _FOLDER, *_INSIDE)
        path = os.path.join(folder, self.lang)
        if not os.path.isfile(path):
            known = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            raise DataError(
                f"there is no histogram for the language {self.lang!r}.{did_you_mean(self.lang, known)}",
                path=folder,
                hint=f"There are: {', '.join(known)}." if known else "The archive has none at all.",
            )
        return _read_histogram(path, self.threshold_char)

    @functools.cached_property
    def _usual(self) -> CharacterSet:
        return CharacterSet(self._characters)


def _read_histogram(path: str, threshold_char: str) -> frozenset[str]:
    """The first character of each line, up to the line that begins with the threshold's."""
    usual = set()
    with open(path, encoding="utf-8") as lines:  # noqa: PTH123 - os.path throughout
        for line in lines:
            if line[0] == threshold_char:
                break
            usual.add(line[0])
    return frozenset(usual)


def _unpack(archive: str, cache: str) -> None:
    """Put the content of the archive into the cache. Several processes may do so at once: one of them is first."""
    import tarfile

    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{_FOLDER}-") as folder:
        packed, content = os.path.join(folder, "packed"), os.path.join(folder, "content")
        _fetch(archive, packed)
        try:
            with tarfile.open(packed, "r:gz") as tar:
                tar.extractall(content, filter="data")
        except (tarfile.TarError, EOFError, OSError) as e:
            raise DataError(f"the archive of histograms cannot be unpacked: {e}", path=archive) from e
        try:
            os.rename(content, os.path.join(cache, _FOLDER))
        except OSError:
            if not os.path.isdir(os.path.join(cache, _FOLDER)):
                raise


def _fetch(archive: str, target: str) -> None:
    import urllib.request

    try:
        if "://" not in archive:
            shutil.copyfile(archive, target)
            return
        with urllib.request.urlopen(archive, timeout=_TIMEOUT_S) as source, Path(target).open("wb") as file:
            shutil.copyfileobj(source, file)
    except OSError as e:  # a URLError is one
        raise DataError(
            f"the archive of histograms cannot be fetched: {e}",
            path=archive,
            hint="Fetch it on another machine and give its path as archive=..., or unpack it below cache_dir.",
        ) from e
