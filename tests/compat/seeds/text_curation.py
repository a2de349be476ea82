# From NeMo Curator's guide "Migration Guide: Dask to Ray", steps "Define Operations" and "Create and Run Pipeline".
# Filled in: the imports; TinyStoriesDownloadExtractStage, which has no code there, for a file of three stories; the
# directories and arguments; and `executor = None` for `executor = XennaExecutor()`.
import os
import shutil
from types import SimpleNamespace

from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.download import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentIterator,
    URLGenerator,
)
from nemo_curator.stages.text.filters import IncompleteStoryFilter, ScoreFilter, WordCountFilter
from nemo_curator.stages.text.io.writer import JsonlWriter
from nemo_curator.stages.text.modifiers import Modify, QuotationUnifier, UnicodeReformatter

raw_dir, curated_dir = "raw", "curated"
args = SimpleNamespace(split="valid")
story = "Once upon a time a \u201csmall\u201d cat sat on a mat. " * 10
with open(f"stories-{args.split}.txt", "w", encoding="utf-8") as file:  # noqa: PTH123 - a script of a user's
    file.write("<|endoftext|>".join([story, "A short story.", story + "And then"]))


class StoryUrls(URLGenerator):
    def __init__(self, split: str) -> None:
        self._split = split

    def generate_urls(self) -> list[str]:
        return [f"stories-{self._split}.txt"]


class StoryDownloader(DocumentDownloader):
    def __init__(self, download_dir: str, verbose: bool = False) -> None:
        super().__init__(download_dir=download_dir, verbose=verbose)

    def _get_output_filename(self, url: str) -> str:
        return os.path.basename(url)

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        try:
            shutil.copyfile(url, path)
        except OSError as e:
            return False, str(e)
        return True, None


class StoryIterator(DocumentIterator):
    def iterate(self, file_path: str):
        with open(file_path, encoding="utf-8") as file:  # noqa: PTH123 - a script of a user's
            for text in file.read().split("<|endoftext|>"):
                yield {"text": text.strip()}

    def output_columns(self) -> list[str]:
        return ["text"]


class TinyStoriesDownloadExtractStage(DocumentDownloadExtractStage):
    def __init__(self, download_dir: str, split: str = "valid") -> None:
        super().__init__(
            url_generator=StoryUrls(split), downloader=StoryDownloader(download_dir), iterator=StoryIterator()
        )


# New: Define stages
stages = [
    TinyStoriesDownloadExtractStage(raw_dir, split=args.split),
    Modify(modifier_fn=QuotationUnifier()),
    Modify(modifier_fn=UnicodeReformatter()),
    ScoreFilter(filter_obj=WordCountFilter(min_words=80)),
    ScoreFilter(filter_obj=IncompleteStoryFilter()),
    JsonlWriter(curated_dir),
]

# New: Create pipeline with stages
pipeline = Pipeline(
    name="tinystories",
    description="Download and curation pipeline for the TinyStories dataset.",
    stages=stages,
)

# Create executor
executor = None

# Execute pipeline
pipeline.run(executor)
