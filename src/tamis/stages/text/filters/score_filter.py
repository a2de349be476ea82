"""The stages that run filters: score documents, decide by a score, or both.

Each takes one filter (or plain function) or a list of them. A list is a chain: its members work one after the other,
and each sees only the rows that those before it left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.filters.batch_filter import BatchFilter
from tamis.stages.text.filters.chain import Chain, FilterOrFunction, KeepStep, Rows, ScoreKeepStep, ScoreStep, Step
from tamis.stages.text.forms import OperationStage, chain_name, listed, name_of
from tamis.tasks import DocumentBatch

__all__ = ["Filter", "Score", "ScoreFilter"]

T = TypeVar("T")

_LOG = logging.getLogger("tamis")


class _FilterStage(OperationStage):
    """What the three stages share: their steps, and the hooks of filters that work with a model."""

    verbose: bool = False

    _steps: Sequence[Step]
    _chain: Chain | None = None
    """The steps as they are run in this worker."""

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.adds_columns()

    def adds_columns(self) -> list[str]:
        return [column for step in self._steps for column in step.adds]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._call_hooks("model_check_or_download")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._call_hooks("load_model", "load_tokenizer")
        self._chain = _chain_of(self._members())

    def _call_hooks(self, *names: str) -> None:
        for step in self._steps:
            for name in names:
                hook = getattr(step.operation, name, None)
                if isinstance(step.operation, DocumentFilter) and hook is not None:
                    hook()

    def merged_with(self, following: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any] | None:
        return FilterRun([self, following]) if isinstance(following, _FilterStage) else None

    def _members(self) -> Sequence[_FilterStage]:
        """The stages that run as one here."""
        return [self]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        members = self._members()
        rows = Rows(task, [member.name for member in members])
        try:
            (self._chain or _chain_of(members)).run(rows)
        except Exception as error:
            error.raised_by_member = rows.member  # type: ignore[attr-defined]  # the runner names that stage
            raise
        for number, member in enumerate(members):
            if member.verbose:
                dropped = sum(len(drop.rows) for drop in rows.dropped if drop.stage <= number)
                _LOG.info("%s: kept %d of %d rows", member.name, task.num_items - dropped, task.num_items)
        return rows.result()


class FilterRun(_FilterStage):
    """Filters of several stages, one after the other, that share one pass over the texts. Made by the planner."""

    def __init__(self, members: Sequence[_FilterStage]) -> None:
        self.members = list(members)
        self._steps = [step for member in members for step in member._steps]
        self.name = " + ".join(member.name for member in members)

    def parameters(self) -> dict[str, Any]:
        return {"members": self.members}

    def merged_with(self, following: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any] | None:
        return FilterRun([*self.members, following]) if isinstance(following, _FilterStage) else None

    def _members(self) -> Sequence[_FilterStage]:
        return self.members


def _chain_of(members: Sequence[_FilterStage]) -> Chain:
    return Chain([(number, step) for number, member in enumerate(members) for step in member._steps])


@dataclass(repr=False)
class Score(_FilterStage):
    """Write a score of each document into a column. Nothing is dropped.

    Args:
        score_fn: A filter, of which only the score is used, or a function from a text to a score; or a list of them.
        score_field: The column the score is written to; for a list, one for each.
        text_field: The column that is scored; for a list, one for all or one for each. A null counts as an empty text.
            Filters of images do not use it.

    >>> from tamis.stages.text.filters import WordCountFilter
    >>> scored = Score(WordCountFilter(), "words").process(DocumentBatch({"text": ["a b", None]}))
    >>> scored.data.to_pydict()
    {'text': ['a b', None], 'words': [2, 0]}
    """

    score_fn: FilterOrFunction | list[FilterOrFunction]
    score_field: str | list[str]
    text_field: str | list[str] = "text"

    def __post_init__(self) -> None:
        operations = _operations(self.score_fn, "Score(score_fn=...)")
        writes = _one_each(self.score_field, operations, "Score", "score_field")
        reads = _columns_read(self.text_field, operations, "Score")
        self._steps = list(map(ScoreStep, operations, reads, writes))
        self.name = chain_name("Score", operations)


@dataclass(repr=False)
class Filter(_FilterStage):
    """Keep the documents whose score, in a column that is already there, is good enough.

    Args:
        filter_fn: A filter, of which only the decision is used, or a function from a value to whether to keep it; or
            a list of them. A filter never keeps a null; a function is called with ``None``.
        filter_field: The column that decides; for a list, one for each.
        invert: Keep what would be dropped and drop the rest; for a list, one for all or one for each.
        verbose: Log how many rows of each batch are kept.

    >>> stage = Filter(lambda stars: stars >= 3, "stars")
    >>> kept = stage.process(DocumentBatch({"stars": [1, 5]}))
    >>> kept.data.to_pydict(), kept.dropped[0].rows.tolist(), kept.dropped[0].reason
    ({'stars': [5]}, [0], 'rejected by <lambda>')
    """

    filter_fn: FilterOrFunction | list[FilterOrFunction]
    filter_field: str | list[str]
    invert: bool | list[bool] = False
    verbose: bool = False

    def __post_init__(self) -> None:
        operations = _operations(self.filter_fn, "Filter(filter_fn=...)")
        reads = _one_each(self.filter_field, operations, "Filter", "filter_field")
        invert = _for_each(self.invert, operations, "Filter", "invert")
        self._steps = list(map(KeepStep, operations, reads, [None] * len(reads), invert))
        self.name = chain_name("Filter", operations)


@dataclass(repr=False)
class ScoreFilter(_FilterStage):
    """Score each document and keep those whose score is good enough.

    Args:
        filter_obj: A filter, or a function from a text to whether to keep it; or a list of them.
        text_field: The column that is scored; for a list, one for all or one for each. A null counts as an empty text.
            Filters of images do not use it.
        score_field: The column the score is written to, if it is wanted; for a list, one (or ``None``) for each.
        invert: Keep what would be dropped and drop the rest; for a list, one for all or one for each.
        verbose: Log how many rows of each batch are kept.

    >>> from tamis.stages.text.filters import WordCountFilter
    >>> stage = ScoreFilter(WordCountFilter(min_words=2), score_field="words")
    >>> kept = stage.process(DocumentBatch({"text": ["a", "b c"]}))
    >>> kept.data.to_pydict(), kept.dropped[0].reason, kept.dropped[0].scores.to_pylist()
    ({'text': ['b c'], 'words': [2]}, 'word_count outside 2..100000', [1])
    """

    filter_obj: FilterOrFunction | list[FilterOrFunction]
    text_field: str | list[str] = "text"
    score_field: str | list[str | None] | None = None
    invert: bool | list[bool] = False
    verbose: bool = False

    def __post_init__(self) -> None:
        operations = _operations(self.filter_obj, "ScoreFilter(filter_obj=...)")
        reads = _columns_read(self.text_field, operations, "ScoreFilter")
        invert = _for_each(self.invert, operations, "ScoreFilter", "invert")
        writes: Sequence[str | None] = [None] * len(operations)
        if self.score_field is not None:
            writes = _one_each(self.score_field, operations, "ScoreFilter", "score_field")
        self._steps = list(map(ScoreKeepStep, operations, reads, writes, invert))
        self.name = chain_name("ScoreFilter", operations)


def _operations(given: Any, argument: str) -> list[FilterOrFunction]:
    operations = listed(given, DocumentFilter, argument)
    for operation in operations:
        if isinstance(operation, DocumentFilter):
            operation.check_parameters()
    return operations


def _columns_read(given: str | list[str], operations: list[FilterOrFunction], stage: str) -> list[str]:
    if given != "text" and all(isinstance(operation, BatchFilter) for operation in operations):
        raise ValueError(
            f"{stage}(text_field={given!r}): {', '.join(map(name_of, operations))} read no text; leave text_field out"
        )
    return _for_each(given, operations, stage, "text_field")


def _one_each(given: T | list[T], operations: list[FilterOrFunction], stage: str, argument: str) -> list[T]:
    """The argument for each operation: as many as there are operations."""
    values = list(given) if isinstance(given, list | tuple) else [given]
    if len(values) != len(operations):
        raise ValueError(
            f"{stage}: {len(operations)} of them, {', '.join(map(name_of, operations))}, need as many columns "
            f"in {argument}, given was {given!r}"
        )
    return values


def _for_each(given: T | list[T], operations: list[FilterOrFunction], stage: str, argument: str) -> list[T]:
    """The argument for each operation: one that holds for all, or as many as there are operations."""
    if isinstance(given, list | tuple):
        return _one_each(list(given), operations, stage, argument)
    return [given] * len(operations)
