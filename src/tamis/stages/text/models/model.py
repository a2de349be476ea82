"""The base of stages that run a model over texts: what a subclass computes; the rest is the runtime's."""

from __future__ import annotations

import copy
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.models.model import Model
from tamis.stages.base import CompositeStage, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column
from tamis.stages.resources import Resources
from tamis.stages.text.models.inference import Inference
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.models.token_batches import TokenBatch

__all__ = ["ModelStage", "TextModelStage"]

_OWN_TOKENS = "_tokens"


class TextModelStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """What runs a model over texts, whatever the fields of the stage are called: :class:`ModelStage` says how.

    A subclass that is not a :class:`ModelStage` defines :attr:`source`, and those of the attributes below that its
    users may set.

    Attributes:
        text_field, max_chars, max_seq_length, batch_tokens, dtype, compile, keep_tokens, use_existing_tokens: As the
            arguments of :class:`ModelStage`.
        batch_texts: The most rows of a batch; ``None`` if only tokens limit it.
        tokens_field: The column with tokens that stay, or are there already.
        wants_tensors: Whether :meth:`infer` is given tensors on the device, or else NumPy arrays
            (:class:`~tamis.models.token_batches.TokenRows`). :meth:`load` may set it.
        threads: How many threads a worker without a GPU has for :meth:`infer`; ``None`` for all cores. The runtime sets
            it before :meth:`load`.
    """

    text_field: str = "text"
    max_chars: int | None = None
    max_seq_length: int | None = None
    batch_tokens: int | None = None
    batch_texts: int | None = None
    dtype: str = "auto"
    compile: bool = False
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    resources: Resources = Resources(gpus=1.0)
    tokens_field: str = "input_ids"
    wants_tensors: bool = True
    threads: int | None = None

    # -- what a subclass defines --------------------------------------------------------------------------------------

    def load(self, device: str) -> None:
        """Load the model, once in each worker. By default: an :class:`~tamis.models.encoder.Encoder`, ``self.encoder``.

        Args:
            device: ``"cpu"`` or ``"cuda"``.
        """
        from tamis.models.encoder import Encoder

        self.encoder = Encoder(self.source, device, self.dtype, compile=self.compile)

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        """What the model says of a batch of rows.

        Args:
            tokens: The rows on the device, one after the other without padding. None of them is empty.

        Returns:
            For each new column a value per row: a tensor or NumPy array (with two axes for vectors), or an Arrow array
            or list for anything else.
        """
        raise NotImplementedError(f"{type(self).__name__} has no infer()")

    def read_tokens(self, batch: DocumentBatch, tokens_field: str) -> pa.ChunkedArray:
        """The tokens of each row of a batch, which the model is to be given: lists of numbers."""
        return read_column(batch.data, tokens_field, self.name)

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        """The batch with what was computed. Override it to derive columns, or to leave rows out (:meth:`keep`).

        Args:
            batch: The batch, its tokens taken off.
            columns: What :meth:`infer` returned, for all rows of the batch, null for rows without tokens.
        """
        return batch.with_columns(columns)

    # -- the runtime --------------------------------------------------------------------------------------------------

    @property
    def source(self) -> Model:
        """Where the model is."""
        raise NotImplementedError(f"{type(self).__name__} has no source")

    def parameters(self) -> dict[str, Any]:
        given = super().parameters().items()
        # A token is a secret: not for recipes, reports and logs.
        return {name: replace(value, token=None) if isinstance(value, Model) else value for name, value in given}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field if self.use_existing_tokens else self.text_field]

    def fetch(self) -> None:
        """Fetch the model to this machine, and check its files; once on each machine."""
        self.source.fetch()
        self.source.check()

    def tokenizer(self) -> TokenizerStage:
        """The stage that makes the tokens."""
        source = self.source
        return TokenizerStage(
            source.name,
            source.cache_dir,
            source.token,
            self.text_field,
            self.max_chars,
            self.max_seq_length,
            tokens_field=self.tokens_field if self.keep_tokens else _OWN_TOKENS,
            revision=source.revision,
        ).with_(name=f"{self.name} tokens")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        has_own = not (self.use_existing_tokens or self.keep_tokens)
        tokens_field = _OWN_TOKENS if has_own else self.tokens_field
        inference = Inference(self, tokens_field, removes_tokens=not self.keep_tokens)
        return [inference] if self.use_existing_tokens else [self.tokenizer(), inference]

    def with_(self, overrides: dict[str, dict[str, Any]] | None = None, **settings: Any) -> typing.Self:
        """A copy with settings changed: of the inner stages by name; plain keywords are for the one with the model."""
        changed = super().with_(overrides, **({"name": settings.pop("name")} if "name" in settings else {}))
        for own in ("resources", "batch_tokens"):
            if own in settings:
                object.__setattr__(changed, own, settings.pop(own))
        object.__setattr__(changed, "_of_model", {**getattr(self, "_of_model", {}), **settings})
        return changed

    def unfold(self) -> list[ProcessingStage[Any, Any]]:
        *before, inference = super().unfold()
        return [*before, inference.with_(**getattr(self, "_of_model", {}))]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Prepare for :meth:`process`, which is for calls by hand: a pipeline sets up the inner stages."""
        self._by_hand = [
            stage.without_gpu() if stage.gpu_is_optional and not _has_gpu() else stage for stage in self.unfold()
        ]
        for stage in self._by_hand:
            stage.setup(worker_metadata)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """The same for one batch, by hand."""
        if "_by_hand" not in self.__dict__:
            self.setup()
        for stage in self._by_hand:
            (task,) = typing.cast(list[DocumentBatch], list(stage.process_batch([copy.copy(task)])))
            for name, value in stage.take_metrics().items():
                self.log_metric(name, value)
        return task


@dataclass(repr=False)
class ModelStage(TextModelStage):
    """A stage that runs a model over texts. A subclass says what is computed, in :meth:`infer`.

    It unfolds into two stages: one tokenises on CPUs, the other computes on a GPU, or on CPUs where there is none; then
    both share a worker. Rows are sorted by length and put into batches of a number of tokens, also across tasks. What
    :meth:`infer` returns becomes columns, in the order of the rows.

    A text that is longer than the limits is cut; the metric ``truncated_texts`` counts such texts. A null, or a text
    without any token, has null in every column. A row whose numbers are not finite fails, and is set aside by the run.
    Results depend on the other rows of a batch by no more than rounding: a cosine of 0.99999 with 32-bit numbers, and
    of 0.999 with 16-bit ones.

    Args:
        model: The model: a name on the Hugging Face hub, a folder, or a :class:`~tamis.models.model.Model` with more
            settings.
        text_field: The column with the text.
        max_chars: The most characters of a text that are looked at; all when not given.
        max_seq_length: The most tokens of a text; what the model names as its limit when not given.
        batch_tokens: The most tokens of a batch; a number that suits the device when not given. It is halved when a
            batch does not fit into the memory of a GPU.
        dtype: The model's numbers: ``"auto"`` for 16 bits on a GPU and 32 on CPUs, or a type of PyTorch by name.
        compile: Whether ``torch.compile`` makes the model faster, which takes a minute or more at the start.
        keep_tokens: Whether the tokens stay, in the column ``input_ids``.
        use_existing_tokens: Whether the tokens are there already, in the column ``input_ids``. They are taken off
            afterwards unless ``keep_tokens``.
        resources: What a worker that runs the model needs.

    >>> class Lengths(ModelStage):
    ...     def infer(self, tokens):
    ...         return {"length": tokens.offsets.diff()}
    >>> [stage.name for stage in Lengths("organisation/name").decompose()]
    ['Lengths tokens', 'Lengths']
    """

    model: Model | str
    text_field: str = "text"
    max_chars: int | None = None
    max_seq_length: int | None = None
    batch_tokens: int | None = None
    dtype: str = "auto"
    compile: bool = False
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    resources: Resources = Resources(gpus=1.0)  # noqa: RUF009 - it cannot be changed

    @property
    def source(self) -> Model:
        return self.model if isinstance(self.model, Model) else Model(self.model)


def _has_gpu() -> bool:
    from tamis.models.encoder import best_device

    return best_device() != "cpu"
