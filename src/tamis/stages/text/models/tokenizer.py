"""Texts as the tokens of a model, on CPUs, so that workers with a GPU only compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.models.lengths import most_tokens
from tamis.models.model import Model
from tamis.models.model_tokens import ModelTokens, cuts_begin, load_model_tokenizer
from tamis.models.sentence_layout import read_layout
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.tasks import DocumentBatch

__all__ = ["TokenizerStage"]


@dataclass(repr=False)
class TokenizerStage(TextStage):
    """Add a column with the tokens of each text as a model wants them: cut to its limit, special tokens around them.

    A null has no tokens. Rows keep their order and are not padded: stages that run models sort them themselves.

    Args:
        model_identifier: The model whose tokenizer it is: a name on the Hugging Face hub or a folder.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        text_field: The column with the text.
        max_chars: The most characters of a text that are looked at; all when not given.
        max_seq_length: The most tokens of a text; what the model names as its limit when not given. Longer texts are
            cut; the metric ``truncated_texts`` counts them.
        padding_side, sort_by_length: Accepted for scripts that name them. There is no padding.
        unk_token: Whether the tokenizer's token for unknown words stands in where it has no padding token. There is no
            padding, so this changes nothing.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``.
        tokens_field: The column that gets the tokens.
        revision: The commit, branch or tag on the hub.
        prompt: What is put before each text; when not given, the default of a folder of sentence-transformers.

    >>> TokenizerStage("organisation/name").outputs()[1]
    ['input_ids']
    """

    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | None = None
    text_field: str = "text"
    max_chars: int | None = None
    max_seq_length: int | None = None
    padding_side: str = "right"
    sort_by_length: bool = True
    unk_token: bool = False
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)
    tokens_field: str = "input_ids"
    revision: str | None = None
    prompt: str | None = None
    name: str = "TokenizerStage"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for limit in ("max_chars", "max_seq_length"):
            given = getattr(self, limit)
            if given is not None and given < 1:
                raise ValueError(f"{type(self).__name__}({limit}={given}): must be at least 1")

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def adds_columns(self) -> list[str]:
        return [self.tokens_field]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._model.fetch(weights=False)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        model = self._model
        model.fetch(weights=False)
        layout = read_layout(model, weights=False)
        self._tokens = ModelTokens(
            load_model_tokenizer(layout.transformer, self.transformers_init_kwargs),
            self.max_seq_length or most_tokens(layout.transformer),
            self.max_chars,
            prompt=layout.prompt if self.prompt is None else self.prompt,
            lower_case=layout.lower_case,
            cuts_begin=cuts_begin(layout.transformer),
        )

    @property
    def _model(self) -> Model:
        return Model(self.model_identifier, self.revision, self.cache_dir, self.hf_token)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not hasattr(self, "_tokens"):  # called by hand
            self.setup()
        made = self._tokens(self.texts(task))
        self.log_metric("tokens", len(made.column.values))
        self.log_metric("truncated_texts", made.truncated)
        return task.with_column(self.tokens_field, made.column)
