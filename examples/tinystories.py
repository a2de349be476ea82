"""Fetch short stories, clean them, keep the ones that are long enough and finished, and write them.

The stories lie beside this file, so that no network is needed; ``--source`` names another directory or web address.
They were made up for this example, in the form of the TinyStories data set (Eldan and Li, 2023). Repairing broken text
needs ``pip install -e '.[unicode]'``.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tamis import CompositeStage, DocumentBatch, EmptyTask, Pipeline, ProcessingStage
from tamis.runs.report import summary_table
from tamis.stages.io import JsonlWriter
from tamis.stages.text.download import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentIterator,
    URLGenerator,
)
from tamis.stages.text.filters import DocumentFilter, IncompleteStoryFilter, ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import DocumentModifier, Modify, QuotationUnifier, UnicodeReformatter


@dataclass
class StoryFiles(URLGenerator):
    """The address of a split's file."""

    source: str
    split: str

    def generate_urls(self) -> list[str]:
        return [f"{self.source}/stories-{self.split}.txt"]


class StoryIterator(DocumentIterator):
    """Stories in plain text, with a line between them. One story is in memory at a time."""

    def iterate(self, file_path: str) -> Iterator[dict[str, str]]:
        lines: list[str] = []
        with Path(file_path).open(encoding="utf-8") as file:
            for line in file:
                if line.strip() != "<|endoftext|>":
                    lines.append(line)
                    continue
                yield {"text": "".join(lines).strip()}
                lines = []
        if "".join(lines).strip():  # the last story need not be closed
            yield {"text": "".join(lines).strip()}

    def output_columns(self) -> list[str]:
        return ["text"]


@dataclass
class TinyStoriesDownloadExtractStage(CompositeStage[EmptyTask, DocumentBatch]):
    """Fetch a split and read its stories.

    Args:
        download_dir: Where to put the files.
        source: The directory or web address they come from.
        split: ``"train"`` or ``"valid"``.
    """

    download_dir: str
    source: str
    split: str = "valid"

    def decompose(self) -> list[ProcessingStage]:
        files = StoryFiles(self.source, self.split)
        return [DocumentDownloadExtractStage(files, DocumentDownloader(self.download_dir), StoryIterator())]


class OwnQuotationUnifier(DocumentModifier):
    """A modifier of one's own: it is given one text at a time."""

    def modify_document(self, text: str) -> str:
        for curly, straight in {"‘": "'", "’": "'", "“": '"', "”": '"'}.items():  # noqa: RUF001 - curly ones are meant
            text = text.replace(curly, straight)
        return text


class OwnIncompleteStoryFilter(DocumentFilter):
    """A filter of one's own: a score for one text, and whether to keep a text with that score."""

    def score_document(self, text: str) -> float:
        return float(text.rstrip().endswith((".", "!", "?", '"', "'")))

    def keep_document(self, score: float) -> bool:
        return score == 1.0


def curate(source: str, split: str, folder: str, unifier: DocumentModifier, whole: DocumentFilter) -> list[str]:
    """Run the pipeline; return the lines it wrote."""
    stages = [
        TinyStoriesDownloadExtractStage("raw", source, split),
        Modify(modifier_fn=UnicodeReformatter()),  # first: text that is repaired may have curly marks again
        Modify(modifier_fn=unifier),
        ScoreFilter(filter_obj=WordCountFilter(min_words=80)),
        ScoreFilter(filter_obj=whole),
        JsonlWriter(path=folder),
    ]
    result = Pipeline(name="tinystories", stages=stages).run(progress="off")
    print(summary_table(result.summary))
    return [line for path in result.outputs for line in Path(path).read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default=str(Path(__file__).parent / "data"))
    parser.add_argument("--split", choices=["train", "valid"], default="valid")
    given = parser.parse_args()

    stories = curate(given.source, given.split, "curated", QuotationUnifier(), IncompleteStoryFilter())
    print(f"{len(stories)} stories, the first of them:\n{stories[0]}")

    by_hand = curate(given.source, given.split, "by-hand", OwnQuotationUnifier(), OwnIncompleteStoryFilter())
    print(f"the same with a modifier and a filter of one's own: {by_hand == stories}")
