"""Safety of texts, and poisoned instruction data: classifiers that stand on Llama Guard with the adapters of Aegis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from tamis.errors import PlanError
from tamis.models.lengths import most_tokens
from tamis.models.model import Model
from tamis.models.tokenizers import Tokenizer, load_tokenizer
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.stages.text.classifiers.aegis_prompt import AEGIS_LABELS, AegisPrompt, find_policy, label_of
from tamis.stages.text.classifiers.base import OUTPUTS, ClassifierStage, outputs_of
from tamis.stages.text.models.inference import Inference
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.models.classification import Scorer
    from tamis.models.token_batches import TokenBatch

__all__ = ["AEGIS_VARIANTS", "AegisClassifier", "AegisPromptStage", "InstructionDataGuardClassifier"]

AEGIS_VARIANTS: Final = (
    "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0",
    "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Permissive-1.0",
)
_LLAMA_GUARD: Final = "meta-llama/LlamaGuard-7b"
_TOKENS: Final = "_tokens"
_LEAST_POISONED: Final = 0.5


@dataclass(kw_only=True, repr=False)
class _AegisStage(ClassifierStage):
    """What the classifiers that stand on Llama Guard share."""

    aegis_variant: str = AEGIS_VARIANTS[0]
    base_model_identifier: str = _LLAMA_GUARD
    max_seq_length: int | None = 4096

    ends_with_token: ClassVar[bool] = False

    @property
    def adapter(self) -> Model:
        """Where the adapter is."""
        return Model(self.aegis_variant, self.revision, self.cache_dir, self.hf_token)

    @property
    def base(self) -> Model:
        """Where the language model is."""
        return Model(self.base_model_identifier, None, self.cache_dir, self.hf_token)

    def models(self) -> list[Model]:
        return [self.base, self.adapter]


@dataclass(kw_only=True, repr=False)
class AegisClassifier(_AegisStage):
    """Tell whether texts are safe, and which of 13 categories of unsafe content they belong to if not.

    Llama Guard (a language model of 7 billion parameters) with an adapter of NVIDIA answers a question about each text.
    The label is ``safe``, ``O1`` to ``O13``, or ``unknown`` where the answer is neither. Llama Guard is given to those
    only whom Meta granted access: then give ``hf_token``, or a folder.

    The other arguments are those of every :class:`~tamis.stages.text.classifiers.base.ClassifierStage`; tokens that are
    there already cannot be used, because the model is given a prompt.

    Args:
        aegis_variant: The adapter: the defensive one calls unclear texts unsafe, the permissive one safe. ``revision``
            is that of the adapter.
        base_model_identifier: The language model.
        label_field: The column that gets the label.
        raw_output_field: The column that gets the answer itself, if ``keep_raw_output``.
        keep_raw_output: Whether the answers stay.
        filter_by: Labels. Rows with another one are dropped.
        aegis_prompt_field: The column that gets the prompts, if ``keep_aegis_prompt_field``; ``_aegis_prompt`` if not
            given.
        keep_aegis_prompt_field: Whether the prompts stay.
        policy_file: A text file with the categories for the prompt; by default the policy of the model's card.

    >>> AegisClassifier(filter_by=["safe"], keep_raw_output=True).outputs()[1]
    ['aegis_pred', '_aegis_raw_pred']
    """

    model_identifier: str = field(default=_LLAMA_GUARD, init=False)
    aegis_variant: str = field(default=AEGIS_VARIANTS[0], kw_only=False)
    label_field: str = "aegis_pred"
    raw_output_field: str = "_aegis_raw_pred"
    keep_raw_output: bool = False
    filter_by: list[str] | None = None
    aegis_prompt_field: str | None = None
    keep_aegis_prompt_field: bool = False
    policy_file: str | None = None
    max_chars: int | None = 6000
    batch_tokens: int | None = 32_768

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_existing_tokens:
            raise PlanError(
                f"{type(self).__name__}(use_existing_tokens={self.use_existing_tokens!r}): the model is given a prompt "
                "with the text inside, so tokens of the text cannot be used"
            )

    def adds_columns(self) -> list[str]:
        raw = [self.raw_output_field] if self.keep_raw_output else []
        return [self.label_field, *raw]

    def outputs(self) -> tuple[list[str], list[str]]:
        prompt = [self._prompt_field] if self.keep_aegis_prompt_field else []
        tokens = [self.tokens_field] if self.keep_tokens else []
        return ["data"], [*self.adds_columns(), *prompt, *tokens]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        self.check_labels(self.filter_by, AEGIS_LABELS)
        tokens_field = self.tokens_field if self.keep_tokens else _TOKENS
        prompts = AegisPromptStage(
            self.base_model_identifier,
            self.aegis_variant,
            text_field=self.text_field,
            max_chars=self.max_chars,
            max_seq_length=self.max_seq_length,
            prompt_field=self._prompt_field if self.keep_aegis_prompt_field else None,
            tokens_field=tokens_field,
            policy_file=self.policy_file,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            revision=self.revision,
        )
        inference = Inference(self, tokens_field, removes_tokens=not self.keep_tokens)
        return [prompts.with_(name=f"{self.name} tokens"), inference]

    def load(self, device: str) -> None:
        from tamis.models.guard import load_answerer

        self._answerer = load_answerer(self.base, self.adapter, device, self.number_type)

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        return {OUTPUTS: pa.array(self._answerer(tokens), pa.string())}

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        answers = columns[OUTPUTS]
        labels = pa.array([None if answer is None else label_of(answer) for answer in answers.to_pylist()], pa.string())
        raw = {self.raw_output_field: answers} if self.keep_raw_output else {}
        labelled = batch.with_columns({self.label_field: labels, **raw})
        if self.filter_by is None:
            return labelled
        kept = np.array([label in self.filter_by for label in labels.to_pylist()], np.bool_)
        return labelled.keep(kept, f"{self.label_field} is not {' or '.join(self.filter_by)}")

    @property
    def _prompt_field(self) -> str:
        return self.aegis_prompt_field or "_aegis_prompt"


@dataclass(repr=False)
class AegisPromptStage(TextStage):
    """Add a column with the tokens of the question that an Aegis model is asked about each text.

    Args:
        base_model_identifier: The language model, for its tokenizer.
        aegis_variant: The adapter, for the safety policy on its card.
        text_field: The column with the text.
        max_chars: The most characters of a text.
        max_seq_length: The most tokens of a question; texts are cut so that it fits.
        prompt_field: The column that gets the questions themselves; none if not given.
        tokens_field: The column that gets the tokens.
        policy_file: A text file with a policy of your own.
        cache_dir, hf_token, revision: As for :class:`AegisClassifier`.

    >>> AegisPromptStage(prompt_field="prompt").outputs()[1]
    ['input_ids', 'prompt']
    """

    base_model_identifier: str = _LLAMA_GUARD
    aegis_variant: str = AEGIS_VARIANTS[0]
    text_field: str = "text"
    max_chars: int | None = 6000
    max_seq_length: int | None = 4096
    prompt_field: str | None = None
    tokens_field: str = "input_ids"
    policy_file: str | None = None
    cache_dir: str | None = None
    hf_token: str | None = None
    revision: str | None = None

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.policy_file is not None and not Path(self.policy_file).is_file():
            raise PlanError(f"{type(self).__name__}: there is no policy_file {self.policy_file}")

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.adds_columns()

    def adds_columns(self) -> list[str]:
        return [self.tokens_field, *([] if self.prompt_field is None else [self.prompt_field])]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        for model in self._models():
            model.fetch(weights=False)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        base, adapter = self._models()
        folder = base.fetch(weights=False)
        self._tokenizer: Tokenizer = load_tokenizer(folder)
        adapter.fetch(weights=False)
        policy = find_policy(adapter) if self.policy_file is None else Path(self.policy_file).read_text("utf-8").strip()
        self._prompt = AegisPrompt(policy)
        limits = [limit for limit in (self.max_seq_length, most_tokens(folder)) if limit is not None]
        self._most = min(limits, default=4096)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not hasattr(self, "_prompt"):  # called by hand
            self.setup()
        prompts, tokens, cut = self._prompt.prompts(self.texts(task), self._tokenizer, self._most, self.max_chars)
        self.log_metric("tokens", len(tokens.values))
        self.log_metric("truncated_texts", cut)
        asked = {} if self.prompt_field is None else {self.prompt_field: prompts}
        return task.with_columns({self.tokens_field: tokens, **asked})

    def _models(self) -> tuple[Model, Model]:
        """Where the language model and the adapter are."""
        base = Model(self.base_model_identifier, None, self.cache_dir, self.hf_token)
        return base, Model(self.aegis_variant, self.revision, self.cache_dir, self.hf_token)


@dataclass(kw_only=True, repr=False)
class InstructionDataGuardClassifier(_AegisStage):
    """Tell whether English instruction data are poisoned: made to teach a model something harmful for a secret phrase.

    A small network of NVIDIA judges the state of Llama Guard with the defensive adapter of Aegis after the last token
    of a text. It expects texts such as ``"Instruction: ... Input: ... Response: ..."``.

    The other arguments are those of every :class:`~tamis.stages.text.classifiers.base.ClassifierStage`.

    Args:
        model_identifier: The small network.
        aegis_variant: The adapter.
        base_model_identifier: The language model.
        label_field: The column that gets whether the score is 0.5 or more.
        score_field: The column that gets the score, from 0 to 1.
        filter_by: ``[False]`` keeps the rows that are not poisoned, ``[True]`` the others.

    >>> InstructionDataGuardClassifier(filter_by=[False]).outputs()[1]
    ['is_poisoned', 'instruction_data_guard_poisoning_score']
    """

    model_identifier: str = "nvidia/instruction-data-guard"
    label_field: str = "is_poisoned"
    score_field: str = "instruction_data_guard_poisoning_score"
    filter_by: list[bool] | None = None

    def adds_columns(self) -> list[str]:
        return [self.label_field, self.score_field]

    @property
    def source(self) -> Model:
        return Model(self.model_identifier, None, self.cache_dir, self.hf_token)

    def models(self) -> list[Model]:
        return [*super().models(), self.source]

    def tokenizer(self) -> TokenizerStage:
        made = super().tokenizer()
        base = self.base
        made.model_identifier, made.cache_dir, made.hf_token = base.name, base.cache_dir, base.token
        made.revision = base.revision
        return made

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        self.check_labels(self.filter_by, (True, False))
        return super().decompose()

    def make_scorer(self, device: str) -> Scorer:
        from tamis.models.guard import load_state_judge

        return load_state_judge(self.base, self.adapter, self.source, device, self.number_type)

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        present, outputs = outputs_of(columns[OUTPUTS])
        scores = np.zeros(len(present), np.float32)
        scores[present] = outputs[:, 0]
        is_poisoned = scores >= _LEAST_POISONED
        column = pa.array(scores, mask=~present)
        made = {self.label_field: pa.array(is_poisoned, mask=~present), self.score_field: column}
        judged = self.without_tokens(batch).with_columns(made)
        if self.filter_by is None:
            return judged
        kept = present & np.isin(is_poisoned, self.filter_by)
        return judged.keep(kept, f"{self.label_field} is not {' or '.join(map(str, self.filter_by))}", column)
