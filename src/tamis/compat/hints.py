"""What to use instead of names that tamis does not have."""

from __future__ import annotations

from typing import Final

_FILTER: Final = (
    "This filter is not built yet. Your own filter is a tamis.stages.text.filters.DocumentFilter with score_document() "
    "and keep_document(), run by ScoreFilter"
)
_FORMAT: Final = (
    "This format is not built yet. tamis.stages.io reads and writes JSON lines, Parquet, CSV and plain text"
)
_DOWNLOAD: Final = (
    "This source is not built yet. Your own source is a tamis.stages.text.download.DocumentDownloadExtractStage, made "
    "of a URL generator, a downloader, an iterator and an extractor"
)
_MODALITIES: Final = (
    "Stages for audio and video are not built yet; their batches are: tamis.tasks.AudioBatch, tamis.tasks.VideoTask. "
    "Your own stage extends tamis.stages.base.ProcessingStage"
)
_SYNTHETIC: Final = "Stages that call a language model are not built yet"
_MATH: Final = (
    "Stages that download, extract and clean mathematical pages are not built yet; "
    "tamis.stages.math.classifiers.FineMathClassifier scores them. Your own stages "
    "extend tamis.stages.base.ProcessingStage"
)
_DASK: Final = (
    "This is the interface of NeMo Curator before version 1.0, on Dask: functions over a whole dataset. "
    "Write the steps as the stages of a tamis.pipeline.Pipeline"
)
_METRICS: Final = (
    "tamis monitor writes files that start Prometheus and Grafana against a run, see docs/metrics.md. What each stage "
    "did is in the result of run(): result.stages, and with everything else in the run directory's run.json and "
    "report.html"
)

NAMES: Final[dict[str, str]] = {
    "PornographicUrlsFilter": _FILTER,
    "RepeatingDuplicateNGramsFilter": _FILTER,
    "RepeatingTopNGramsFilter": _FILTER,
    "WordsWithoutAlphabetsFilter": _FILTER,
    "ArxivDownloadExtractStage": _DOWNLOAD,
    "CommonCrawlDownloadExtractStage": _DOWNLOAD,
    "WikipediaDownloadExtractStage": _DOWNLOAD,
    "LanceReader": _FORMAT,
    "LanceWriter": _FORMAT,
    "ClientPartitioningStage": "tamis.stages.io.FilePartitioningStage lists files on any fsspec path",
    "FailedTask": "A stage that cannot do a task raises; one that leaves it out returns None",
    "NoneTask": "A stage that leaves a task out returns None",
    "InterleavedBatch": _MODALITIES,
    "DocumentDataset": _DASK,
    "Sequential": _DASK,
    "get_client": _DASK,
}
"""Hints for single names, in any module."""

MODULES: Final[dict[str, str]] = {
    "core.serve": _SYNTHETIC,
    "datasets": _DASK,
    "eval": _SYNTHETIC,
    "filters": _DASK,
    "image": _DASK,
    "metrics": _METRICS,
    "models.client": _SYNTHETIC,
    "modifiers": _DASK,
    "modules": _DASK,
    "stages.audio": _MODALITIES,
    "stages.client_partitioning": "tamis.stages.io.FilePartitioningStage lists files on any fsspec path",
    "stages.interleaved": _MODALITIES,
    "stages.math.download": _MATH,
    "stages.math.modifiers": _MATH,
    "stages.synthetic": _SYNTHETIC,
    "stages.text.download.arxiv": _DOWNLOAD,
    "stages.text.download.common_crawl": _DOWNLOAD,
    "stages.text.download.html_extractors": _DOWNLOAD,
    "stages.text.download.wikipedia": _DOWNLOAD,
    "stages.text.experimental": _SYNTHETIC,
    "stages.text.io.reader.lance": _FORMAT,
    "stages.text.io.writer.lance": _FORMAT,
    "stages.video": _MODALITIES,
    "tasks.interleaved": _MODALITIES,
    "tasks.ocr": _MODALITIES,
    "utils.decoder_utils": _MODALITIES,
    "utils.distributed_utils": _DASK,
    "utils.prompts": _SYNTHETIC,
}
"""Hints for modules and everything below them, without the package's name."""


def hint_for(module: str) -> str:
    """The hint for a module or a name in a module, without the package's name; empty if there is none.

    >>> hint_for("core.serve.InferenceServer").partition(" not")[0]
    'Stages that call a language model are'
    >>> hint_for("stages.video.io.video_reader") == hint_for("stages.video")
    True
    """
    parts = module.split(".")
    if parts[-1] in NAMES:
        return NAMES[parts[-1]]
    for length in range(len(parts), 0, -1):
        found = MODULES.get(".".join(parts[:length]))
        if found:
            return found
    return ""
