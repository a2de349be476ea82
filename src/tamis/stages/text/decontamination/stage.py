"""Leave out, or cut, documents that contain parts of benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import PlanError
from tamis.kernels.utf8 import Utf8, continues
from tamis.stages.base import WorkerMetadata
from tamis.stages.column_values import TextStage, read_column
from tamis.stages.emit import Drop, Publish
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.destination import Destination
from tamis.stages.io.encoders import ParquetEncoder
from tamis.stages.io.paths import absolute
from tamis.stages.text.decontamination.benchmarks import Benchmark, load_index
from tamis.stages.text.decontamination.ngrams import Hits, NgramIndex
from tamis.tasks import DocumentBatch, RowNames
from tamis.tasks.storage import format_order

__all__ = ["Decontaminate"]

Positions = NDArray[np.int64]

ACTIONS = ("drop", "cut")


@dataclass(repr=False)
class Decontaminate(TextStage):
    """Find documents that share n-grams of words with benchmarks, and leave them out or cut the place out of them.

    Words are what white space separates, in lower case, without punctuation and symbols. A match is exact: n-grams are
    found by their hashes and then compared word by word.

    With the defaults, one 13-gram is enough and the whole document goes. ``action="cut"`` does as Brown et al. did
    ("Language Models are Few-Shot Learners", 2020, appendix C): the n-gram goes with 200 characters on either side, the
    pieces stay as documents of their own unless they are shorter than 200 characters, and a document in more than ten
    pieces goes as a whole. ``n=8, min_ratio=0.7`` is the rule of Chowdhery et al. ("PaLM", 2022), held against one
    document at a time: it must have 70 % of the 8-grams of an example.

    The run's statistics have for each benchmark how many documents matched; with ``report_dir`` each match is written
    down.

    Args:
        benchmarks: The benchmarks, by name.
        n: Words per n-gram. Examples in which no text has so many words are never found; a
            warning says how many.
        min_ratio: The share of the n-grams of one example that a document must have, from 0 to 1; one n-gram is enough
            when not given.
        action: ``"drop"`` leaves the document out; ``"cut"`` leaves its matching parts out.
        text_field: The column with the text.
        window: With ``"cut"``: how many characters on either side of a match go with it.
        min_piece_chars: With ``"cut"``: a piece with fewer characters goes.
        max_pieces: With ``"cut"``: a document that would be in more pieces goes as a whole.
        report_dir: A directory (or any fsspec address) for a Parquet file per task with matches: ``benchmark``,
            ``example`` (its row), ``document`` (its id, or the name of its row: file and position), ``ngrams`` (how
            many different ones both have), ``ratio`` (of those of the example). What an earlier run left there stays.
            None when not given.
        id_field: The column with the documents' ids, for the report.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe_file("/quiz.jsonl", b'{"text": "What is the capital of France?"}')
    >>> stage = Decontaminate({"quiz": Benchmark("memory://quiz.jsonl")}, n=4)
    >>> batch = DocumentBatch({"text": ["Tell me: what is the CAPITAL of Peru?", "Hello there."]})
    >>> kept = stage.process(batch)
    >>> kept.data["text"].to_pylist(), kept.dropped[0].rows.tolist(), kept.dropped[0].reason
    (['Hello there.'], [0], 'contaminated: quiz')
    """

    benchmarks: dict[str, Benchmark]
    n: int = 13
    min_ratio: float | None = None
    action: str = "drop"
    text_field: str = "text"
    window: int = 200
    min_piece_chars: int = 200
    max_pieces: int = 10
    report_dir: str | None = None
    id_field: str | None = None
    name: str = "Decontaminate"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.benchmarks or not all(isinstance(b, Benchmark) for b in self.benchmarks.values()):
            raise PlanError('Decontaminate: give benchmarks by name, such as {"gsm8k": Benchmark("gsm8k.jsonl")}')
        check_choice("Decontaminate", "action", self.action, ACTIONS)
        self.makes_rows = "split" if self.action == "cut" else "same"  # type: ignore[misc]  # of this stage
        if self.n < 1:
            raise PlanError(f"Decontaminate(n={self.n}): must be at least 1")
        if self.min_ratio is not None and not 0 < self.min_ratio <= 1:
            raise PlanError(f"Decontaminate(min_ratio={self.min_ratio}): must be more than 0 and at most 1")
        for parameter in ("window", "min_piece_chars", "max_pieces"):
            if getattr(self, parameter) < 0:
                raise PlanError(f"Decontaminate({parameter}={getattr(self, parameter)}): must not be negative")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, *([self.id_field] if self.id_field else [])]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._index = load_index(self.benchmarks, self.n)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """The batch without what is contaminated. The report is written by a run, not by this call alone."""
        return self._clean(task)[0]

    def process_batch(self, tasks: list[DocumentBatch]) -> Iterator[Publish | DocumentBatch]:
        for task in tasks:
            cleaned, matches = self._clean(task)
            if self.report_dir is not None and len(matches):
                yield self._report(task, matches, self.report_dir)
            yield cleaned

    def _clean(self, task: DocumentBatch) -> tuple[DocumentBatch, Matches]:
        """The batch without what is contaminated, and what was found."""
        if not hasattr(self, "_index"):
            self.setup()  # as a run does before the first batch
        column = self.texts(task)
        matches, spans = self._search(Utf8.from_arrow(column))
        if not len(matches):
            return task, matches
        self._count(matches)
        # The benchmark that a row is dropped for is the first of those that it matches.
        rows, first = np.unique(matches.documents, return_index=True)
        reasons = self._index.benchmark_of[matches.examples][first]
        if self.action == "cut":
            return self._cut(task, column, rows, reasons, spans), matches
        cleaned = task.select(np.setdiff1d(np.arange(task.num_items), rows))
        cleaned.dropped += self._drops(task, rows, reasons)
        return cleaned, matches

    def _search(self, texts: Utf8) -> tuple[Matches, dict[int, list[tuple[int, int]]]]:
        """Which documents match which examples, and the bytes of each document that do."""
        found, spans = [Matches.none()], dict[int, list[tuple[int, int]]]()
        before = 0
        for block in texts.blocks():
            hits = self._index.find(block)
            if len(hits.places):
                matches, counted = match(self._index, hits, self.min_ratio)
                found.append(Matches(matches.documents + before, matches.examples, matches.ngrams))
                for place in hits.places[counted].tolist() if self.action == "cut" else ():
                    text = int(hits.words.texts[place])
                    begin, end = hits.words.starts[place], hits.words.ends[place + self.n - 1]
                    start = block.offsets[text]
                    spans.setdefault(text + before, []).append((int(begin - start), int(end - start)))
            before += len(block)
        return Matches.join(found), spans

    def _count(self, matches: Matches) -> None:
        benchmark = self._index.benchmark_of[matches.examples]
        for number, name in enumerate(self._index.names):
            documents = np.unique(matches.documents[benchmark == number])
            if len(documents):
                self.log_metric(f"{name}: documents", len(documents))

    def _report(self, task: DocumentBatch, matches: Matches, directory: str) -> Publish:
        index = self._index
        if self.id_field is not None:
            documents = read_column(task.data, self.id_field, self.name).take(pa.array(matches.documents))
            ids = documents.cast(pa.large_string())
        else:
            names = task.names or RowNames.numbered(format_order(task.order), task.num_items)
            ids = pa.array(names.take(matches.documents).to_texts(), pa.large_string())
        table = pa.table(
            {
                "benchmark": pa.array([index.names[b] for b in index.benchmark_of[matches.examples].tolist()]),
                "example": index.row_of[matches.examples],
                "document": ids,
                "ngrams": matches.ngrams,
                "ratio": matches.ngrams / index.grams_of[matches.examples],
            }
        )
        destination = Destination(absolute(directory), "matches-{order}", ".parquet")
        encoder = ParquetEncoder()
        return destination.write(destination.name_for(task), 0, lambda sink: encoder.write(table, sink))

    def _drops(self, task: DocumentBatch, rows: Positions, reasons: Positions) -> list[Drop]:
        return [
            Drop(task, rows[reasons == benchmark], f"contaminated: {self._index.names[benchmark]}")
            for benchmark in np.unique(reasons)
        ]

    def _cut(
        self,
        task: DocumentBatch,
        column: pa.ChunkedArray,
        rows: Positions,
        reasons: Positions,
        spans: dict[int, list[tuple[int, int]]],
    ) -> DocumentBatch:
        pieces = {row: self._pieces(column[row].as_py(), spans[row]) for row in rows.tolist()}
        self.log_metric("documents cut", sum(bool(left) for left in pieces.values()))
        gone = np.array([not pieces[row] for row in rows.tolist()], np.bool_)
        copies = np.ones(task.num_items, np.int64)
        copies[rows] = [len(pieces[row]) for row in rows.tolist()]
        taken = np.repeat(np.arange(task.num_items), copies)
        is_piece = np.isin(taken, rows)
        table = task.data.take(pa.array(taken))
        texts = column.take(pa.array(taken)).combine_chunks()
        changed = pa.array([piece for row in rows.tolist() for piece in pieces[row]], texts.type)
        texts = pa.compute.replace_with_mask(texts, pa.array(is_piece), changed)
        table = table.set_column(table.column_names.index(self.text_field), self.text_field, texts)
        cleaned = task.derived(table, taken)
        cleaned.dropped += self._drops(task, rows[gone], reasons[gone])
        return cleaned

    def _pieces(self, text: str, spans: list[tuple[int, int]]) -> list[str]:
        """What is left of a text: nothing, if there would be too many pieces."""
        # Characters before each byte: spans are in bytes, the text is cut in characters.
        before = np.concatenate([[0], np.cumsum(~continues(np.frombuffer(text.encode(), np.uint8)))])
        left, at = [], 0
        for begin, end in sorted(spans):
            start = int(before[begin]) - self.window
            if start > at:
                left.append(text[at:start])
            at = max(at, int(before[end]) + self.window)
        if at < len(text):
            left.append(text[at:])
        return [p for p in left if len(p) >= self.min_piece_chars] if len(left) <= self.max_pieces else []


@dataclass(frozen=True)
class Matches:
    """Documents (by row) that match examples (by their number in the index), sorted by both, and how many different
    n-grams they have in common.
    """

    documents: Positions
    examples: Positions
    ngrams: Positions

    @classmethod
    def none(cls) -> Matches:
        """No matches."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def join(cls, parts: list[Matches]) -> Matches:
        """Matches of several blocks."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("documents", "examples", "ngrams")))

    def __len__(self) -> int:
        return len(self.documents)


def match(index: NgramIndex, hits: Hits, min_ratio: float | None) -> tuple[Matches, NDArray[np.bool_]]:
    """Which documents match which examples, and which of the hits count for that."""
    pairs = np.unique(np.stack([hits.texts(), hits.grams], axis=1), axis=0)
    examples, counts = index.examples_with(pairs[:, 1])
    owned = np.stack([np.repeat(pairs[:, 0], counts), examples], axis=1)
    both, ngrams = np.unique(owned, axis=0, return_counts=True)
    matches = Matches(both[:, 0], both[:, 1], ngrams)
    if min_ratio is None:
        return matches, np.ones(len(hits.places), np.bool_)
    enough = ngrams / index.grams_of[matches.examples] >= min_ratio  # a product would be off by its rounding
    matches = Matches(matches.documents[enough], matches.examples[enough], matches.ngrams[enough])
    return matches, _counting(index, hits, matches)


def _counting(index: NgramIndex, hits: Hits, matches: Matches) -> NDArray[np.bool_]:
    """Which hits are n-grams of an example that their document matches."""
    width = len(index.benchmark_of)
    wanted = matches.documents * width + matches.examples
    examples, counts = index.examples_with(hits.grams)
    counted: Any = np.isin(np.repeat(hits.texts(), counts) * width + examples, wanted)
    result = np.zeros(len(hits.places), np.bool_)
    np.logical_or.at(result, np.repeat(np.arange(len(hits.places)), counts), counted)
    return result
