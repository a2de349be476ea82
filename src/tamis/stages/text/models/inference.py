"""The part of a model stage that runs on the device: loads the model, and runs it over batches of tokens."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from tamis.models.batch_runner import GPU_TOKENS, BatchRunner
from tamis.models.encoder import torch_threads
from tamis.models.token_batches import TokenRows
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.stages.text.models.model import TextModelStage

__all__ = ["Inference"]

_BATCHES_AT_ONCE: Final = 8
"""How many batches' worth of tokens a call is given on a GPU: enough that sorting makes rows of a batch alike."""


@dataclass(repr=False)
class Inference(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Run the model of a :class:`~tamis.stages.text.models.model.ModelStage` over tokens.

    Args:
        stage: The stage with the model.
        tokens_field: The column with the tokens.
        removes_tokens: Whether the tokens are taken off afterwards.
    """

    stage: TextModelStage
    tokens_field: str = "input_ids"
    removes_tokens: bool = False

    gpu_is_optional: ClassVar[bool] = True
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = self.stage.name
        self.resources = self.stage.resources
        self.overwrite_columns = self.stage.overwrite_columns
        if self.resources.requires_gpu:
            self.batch_tokens = _BATCHES_AT_ONCE * (self.stage.batch_tokens or GPU_TOKENS)
        self._runner: BatchRunner | None = None

    def parameters(self) -> dict[str, Any]:
        return self.stage.parameters()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return self.stage.outputs()

    def adds_columns(self) -> list[str]:
        return self.stage.adds_columns()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        after = self.stage.columns_after(available)
        return after - {self.tokens_field} if after is not None and self.removes_tokens else after

    def without_gpu(self) -> typing.Self:
        """On CPUs it works on one task at a time, so that it can share a worker with the stage that tokenises."""
        changed = super().without_gpu()
        object.__setattr__(changed, "batch_tokens", None)
        return changed

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.stage.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        device = "cpu"
        if self.resources.requires_gpu:
            from tamis.models.encoder import best_device

            device = best_device()
        if worker_metadata is not None and device == "cpu":  # by hand it has all cores
            self.stage.threads = max(1, int(self.resources.cpus))
        with torch_threads(self.stage.threads):
            self.stage.load(device)
        self._runner = BatchRunner(
            self.stage.infer,
            device,
            self.stage.batch_tokens,
            self.stage.batch_texts,
            wants_tensors=self.stage.wants_tensors,
        )

    def count_tokens(self, task: DocumentBatch) -> Sequence[int]:
        counts: Sequence[int] = pc.fill_null(pc.list_value_length(task[self.tokens_field]), 0).to_numpy()
        return counts

    def process_batch(self, tasks: list[DocumentBatch]) -> Iterator[DocumentBatch]:
        if self._runner is None:  # called by hand
            self.setup()
        assert self._runner is not None
        columns = [read_column(task.data, self.tokens_field, self.name) for task in tasks]
        halvings = self._runner.halvings
        chunks = [chunk for column in columns for chunk in column.chunks]
        with torch_threads(self.stage.threads):
            found = self._runner(TokenRows.of(pa.chunked_array(chunks, columns[0].type)))
        if self._runner.halvings > halvings:
            self.log_metric("batches_too_large", self._runner.halvings - halvings)
        start = 0
        for task in tasks:
            part = {name: values.slice(start, task.num_items) for name, values in found.items()}
            start += task.num_items
            plain = task.with_same_rows(task.data.drop_columns([self.tokens_field])) if self.removes_tokens else task
            made = self.stage.finish(plain, part)
            for name, value in self.stage.take_metrics().items():
                self.log_metric(name, value)
            yield made

    def teardown(self) -> None:
        self.stage.teardown()
        self._runner = None
