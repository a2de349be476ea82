"""Embeddings computed by vLLM, for large models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.errors import MissingExtraError
from tamis.models.batch_runner import check_finite
from tamis.models.model import Model
from tamis.models.model_tokens import ModelTokens, cuts_begin, load_model_tokenizer
from tamis.models.token_batches import TokenRows
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch

__all__ = ["VLLMEmbeddingModelStage"]

_TYPES: Final = {"float32": np.float32, "float16": np.float16}


@dataclass(repr=False)
class VLLMEmbeddingModelStage(TextStage):
    """Add the embedding of each text, computed by vLLM. It needs the package ``vllm`` and a GPU.

    A null, or a text without any token, has a null. A text that is longer than the model's limit is cut; the metric
    ``truncated_texts`` counts such texts if ``pretokenize``. A row whose vector is not finite fails.

    Args:
        model_identifier: The model: a name on the Hugging Face hub or a folder.
        vllm_init_kwargs: Further arguments of ``vllm.LLM``.
        text_field: The column with the text.
        pretokenize: Whether tamis tokenises, in native code, or vLLM does.
        embedding_field: The column that gets the vectors.
        max_chars: The most characters of a text that are looked at; all when not given.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        verbose: Whether vLLM shows its progress.
        metadata_fields: The columns that stay; all when not given.
        model_inference_batch_size: How many texts vLLM is given at once.
        embedding_output_dtype: The numbers of the vectors: ``"float32"`` or ``"float16"``.
        resources: What a worker needs.

    >>> VLLMEmbeddingModelStage("organisation/name").outputs()[1]
    ['embeddings']
    """

    model_identifier: str
    vllm_init_kwargs: dict[str, Any] = field(default_factory=dict)
    text_field: str = "text"
    pretokenize: bool = True
    embedding_field: str = "embeddings"
    max_chars: int | None = None
    cache_dir: str | None = None
    hf_token: str | None = None
    verbose: bool = False
    metadata_fields: list[str] | None = None
    model_inference_batch_size: int = 8192
    embedding_output_dtype: str = "float32"
    resources: Resources = Resources(gpus=1.0)  # noqa: RUF009 - it cannot be changed
    name: str = "VLLMEmbeddingModelStage"

    releases_gil: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.embedding_output_dtype not in _TYPES:
            raise ValueError(f"embedding_output_dtype={self.embedding_output_dtype!r}: give 'float32' or 'float16'")
        if self.model_inference_batch_size < 1:
            raise ValueError(f"model_inference_batch_size={self.model_inference_batch_size}: must be at least 1")

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, *(self.metadata_fields or [])]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def adds_columns(self) -> list[str]:
        return [self.embedding_field]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        if self.metadata_fields is not None:
            return frozenset([*self.metadata_fields, self.embedding_field])
        return super().columns_after(available)

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._model.fetch()
        self._model.check()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        try:
            import vllm
        except ImportError as error:
            raise MissingExtraError(self.name, package="vllm", extra="vllm") from error
        folder = self._model.fetch()
        settings = {"disable_log_stats": True, **self.vllm_init_kwargs}
        if "task" not in settings:  # what versions before 0.10 were told
            settings.setdefault("runner", "pooling")
        self._llm = vllm.LLM(model=folder, **settings)
        limit = int(self._llm.llm_engine.model_config.max_model_len)
        self._tokens = None
        if self.pretokenize:
            tokenizer = load_model_tokenizer(folder)
            self._tokens = ModelTokens(tokenizer, limit, self.max_chars, cuts_begin=cuts_begin(folder))

    def teardown(self) -> None:
        self._llm = None

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not hasattr(self, "_llm"):  # called by hand
            self.setup()
        prompts, rows = self._prompts(task)
        made = [
            vector
            for start in range(0, len(prompts), self.model_inference_batch_size)
            for vector in self._embed(prompts[start : start + self.model_inference_batch_size])
        ]
        column = self._column(np.array(made, np.float32), rows, task.num_items)
        kept = task.data if self.metadata_fields is None else task.data.select(self.metadata_fields)
        return task.with_same_rows(kept).with_column(self.embedding_field, column)

    @property
    def _model(self) -> Model:
        return Model(self.model_identifier, cache_dir=self.cache_dir, token=self.hf_token)

    def _prompts(self, task: DocumentBatch) -> tuple[list[Any], NDArray[np.int64]]:
        """What vLLM is given, and which rows it stands for."""
        texts = self.texts(task)
        if self._tokens is None:
            shown = [(text or "")[: self.max_chars] for text in texts.to_pylist()]
            given = [row for row, text in enumerate(shown) if text]
            return [shown[row] for row in given], np.array(given, np.int64)
        made = self._tokens(texts)
        self.log_metric("tokens", len(made.column.values))
        self.log_metric("truncated_texts", made.truncated)
        rows = TokenRows.of(made.column)
        present = np.flatnonzero(rows.lengths)
        bounds = zip(rows.offsets[present].tolist(), rows.offsets[present + 1].tolist(), strict=True)
        return [{"prompt_token_ids": rows.ids[start:stop].tolist()} for start, stop in bounds], present

    def _embed(self, prompts: Sequence[Any]) -> list[Any]:
        more = {} if self.pretokenize else {"truncate_prompt_tokens": -1}
        return [one.outputs.embedding for one in self._llm.embed(prompts, use_tqdm=self.verbose, **more)]

    def _column(self, vectors: NDArray[np.float32], rows: NDArray[np.int64], count: int) -> pa.Array:
        """The vectors as a column, null for rows that have none."""
        check_finite(self.embedding_field, vectors, rows)
        if not len(rows):
            size = int(self._llm.llm_engine.model_config.get_hidden_size())
            vectors = np.zeros((1, size), np.float32)
        places = np.zeros(count, np.int64)
        places[rows] = np.arange(len(rows))
        missing = np.ones(count, np.bool_)
        missing[rows] = False
        flat = vectors[places].astype(_TYPES[self.embedding_output_dtype]).reshape(-1)
        values = pa.array(flat) if flat.dtype == np.float16 else arrow_array(flat)
        kind = pa.list_(values.type, vectors.shape[1])
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=arrow_array(missing))
