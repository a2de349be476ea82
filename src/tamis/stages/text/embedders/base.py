"""Stages that add an embedding of each text, computed by a transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tamis.errors import PlanError
from tamis.models.model import Model
from tamis.models.onnx_encoder import OnnxEncoder, onnx_file
from tamis.models.sentence_layout import SentenceLayout, Step, pooling_named, read_layout
from tamis.stages.resources import Resources
from tamis.stages.text.models.model import TextModelStage
from tamis.stages.text.models.tokenizer import TokenizerStage

__all__ = ["EmbeddingCreatorStage", "EmbeddingModelStage", "SentenceTransformerEmbeddingModelStage"]

Backend = Literal["auto", "torch", "onnx"]


class _EmbeddingStage(TextModelStage):
    """What the stages have in common. Each is a dataclass of its own, with its parameters in their own order."""

    model_identifier: str
    embedding_field: str = "embeddings"
    cache_dir: str | None = None
    hf_token: str | None = None
    revision: str | None = None
    backend: Backend = "auto"
    autocast: bool = True
    model_inference_batch_size: int | None = None
    transformers_init_kwargs: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        own = type(self).__name__
        unknown = sorted(set(self.transformers_init_kwargs) - {"trust_remote_code", "revision"})
        if unknown:
            raise ValueError(
                f"{own}(transformers_init_kwargs={{{unknown[0]!r}: ...}}): only 'trust_remote_code' and 'revision' "
                "have an effect here"
            )
        if not self.model_identifier:
            raise ValueError(f"{own}(model_identifier=''): give a name on the Hugging Face hub or a folder")
        if self.backend not in ("auto", "torch", "onnx"):
            raise ValueError(f"{own}(backend={self.backend!r}): give 'auto', 'torch' or 'onnx'")
        for limit in ("model_inference_batch_size", "batch_tokens", "max_chars", "max_seq_length"):
            given = getattr(self, limit)
            if given is not None and given < 1:
                raise ValueError(f"{own}({limit}={given}): must be at least 1")
        self.batch_texts = self.model_inference_batch_size

    def layout(self) -> SentenceLayout:
        """How the states of tokens become a vector."""
        return read_layout(self.source)

    @property
    def source(self) -> Model:
        given = self.transformers_init_kwargs
        revision = self.revision or given.get("revision")
        is_trusted = given.get("trust_remote_code") is True
        return Model(self.model_identifier, revision, self.cache_dir, self.hf_token, is_trusted)

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def adds_columns(self) -> list[str]:
        return [self.embedding_field]

    def load(self, device: str) -> None:
        layout, model = self.layout(), self.source
        is_onnx = self.backend == "onnx" or (self.backend == "auto" and _has_only_onnx(model, layout))
        self.wants_tensors = not is_onnx
        if is_onnx:
            self._encoder: Any = OnnxEncoder(model, layout, device, self.threads)
            return
        from tamis.models.sentence_encoder import SentenceEncoder

        dtype = self.dtype if self.autocast or self.dtype != "auto" else "float32"
        self._encoder = SentenceEncoder(model, layout, device, dtype, compile=self.compile)

    def infer(self, tokens: Any) -> Mapping[str, Any]:
        return {self.embedding_field: self._encoder(tokens)}


@dataclass(repr=False)
class EmbeddingCreatorStage(_EmbeddingStage):
    """Add the embedding of each text, from a model of sentence-transformers or any encoder of Hugging Face.

    Texts are tokenised on CPUs; the model computes on a GPU, or on CPUs where there is none. The vectors are those that
    sentence-transformers computes of the same folder: its pooling, dense layers and normalisation are read from it.

    A text that is longer than the limits is cut; the metric ``truncated_texts`` counts such texts. A null has a null,
    an empty text the vector of the special tokens. A row whose vector is not finite fails, and is set aside by the run.

    Args:
        model_identifier: The model: a name on the Hugging Face hub or a folder.
        use_sentence_transformer: Whether the folder says how tokens become a vector. A folder that does not gets the
            mean. If false, ``embedding_pooling`` says it, and vectors have length 1.
        text_field: The column with the text.
        embedding_field: The column that gets the vectors: lists of 32-bit numbers of fixed size.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        max_chars: The most characters of a text that are looked at; all when not given.
        max_seq_length: The most tokens of a text; what the model names as its limit when not given.
        padding_side, sort_by_length: Accepted for scripts that name them. Rows are sorted and not padded.
        embedding_pooling: ``"mean_pooling"``, ``"last_token"`` or ``"cls"``, for ``use_sentence_transformer=False``.
        model_inference_batch_size: The most texts of a batch; when not given, only ``batch_tokens`` limits it.
        autocast: Whether the model computes with 16 bits on a GPU. On CPUs it has 32 bits.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        revision: The commit, branch or tag on the hub.
        prompt: What is put before each text; what the model names as its default when not given.
        normalize: Whether vectors get length 1; as the model says when not given.
        backend: ``"torch"``, ``"onnx"`` (ONNX Runtime, for a folder with a ``model.onnx``), or ``"auto"``: PyTorch,
            unless a folder has weights for ONNX only.
        batch_tokens: The most tokens of a batch; a number that suits the device when not given. It is halved when a
            batch does not fit into the memory of a GPU.
        dtype: The model's numbers: ``"auto"``, or a type of PyTorch by name. ``"bfloat16"`` is twice as fast on CPUs
            that multiply such numbers, for a cosine of about 0.9999 with the same vector of 32 bits.
        compile: Whether ``torch.compile`` makes the model faster, which takes a minute or more at the start.
        keep_tokens: Whether the tokens stay, in the column ``input_ids``.
        resources: What a worker that runs the model needs.
        transformers_init_kwargs: ``{"trust_remote_code": True}`` lets Python code that comes with the model run.

    >>> [stage.name for stage in EmbeddingCreatorStage("organisation/name").decompose()]
    ['EmbeddingCreatorStage tokens', 'EmbeddingCreatorStage']
    """

    model_identifier: str = "sentence-transformers/all-MiniLM-L6-v2"
    use_sentence_transformer: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    cache_dir: str | None = None
    max_chars: int | None = None
    max_seq_length: int | None = None
    padding_side: Literal["left", "right"] = "right"
    embedding_pooling: str = "mean_pooling"
    model_inference_batch_size: int | None = None
    autocast: bool = True
    sort_by_length: bool = True
    hf_token: str | None = None
    revision: str | None = None
    prompt: str | None = None
    normalize: bool | None = None
    backend: Backend = "auto"
    batch_tokens: int | None = None
    dtype: str = "auto"
    compile: bool = False
    keep_tokens: bool = False
    resources: Resources = Resources(gpus=1.0)  # noqa: RUF009 - it cannot be changed
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pooling = pooling_named(self.embedding_pooling)

    def layout(self) -> SentenceLayout:
        found = read_layout(self.source)
        if not self.use_sentence_transformer:
            found = SentenceLayout(found.transformer, (self._pooling,), (Step("normalize"),))
        steps = list(found.steps)
        if self.normalize is False and steps and steps[-1].kind == "normalize":
            steps.pop()
        elif self.normalize and not (steps and steps[-1].kind == "normalize"):
            steps.append(Step("normalize"))
        return replace(found, steps=tuple(steps))

    def tokenizer(self) -> TokenizerStage:
        made = super().tokenizer()
        made.prompt = self.prompt if self.use_sentence_transformer or self.prompt is not None else ""
        return made


@dataclass(repr=False)
class EmbeddingModelStage(_EmbeddingStage):
    """Add the embedding of each text of which the tokens are there already: the mean or last state, with length 1.

    :class:`~tamis.stages.text.models.tokenizer.TokenizerStage` makes them. :class:`EmbeddingCreatorStage` is both.

    Args:
        model_identifier: The model: a name on the Hugging Face hub or a folder.
        embedding_field: The column that gets the vectors.
        pooling: ``"mean_pooling"``, ``"last_token"`` or ``"cls"``.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        model_inference_batch_size: The most texts of a batch; when not given, only ``batch_tokens`` limits it.
        has_seq_order, padding_side: Accepted for scripts that name them. Rows keep their order and are not padded.
        autocast: Whether the model computes with 16 bits on a GPU. On CPUs it has 32 bits.
        cache_dir, revision, backend, batch_tokens, dtype, compile, resources, transformers_init_kwargs: As for
            :class:`EmbeddingCreatorStage`.
        keep_tokens: Whether the tokens stay.

    >>> EmbeddingModelStage("organisation/name").decompose()[0].inputs()[1]
    ['input_ids']
    """

    model_identifier: str
    embedding_field: str = "embeddings"
    pooling: str = "mean_pooling"
    hf_token: str | None = None
    model_inference_batch_size: int | None = None
    has_seq_order: bool = True
    padding_side: Literal["left", "right"] = "right"
    autocast: bool = True
    cache_dir: str | None = None
    revision: str | None = None
    backend: Backend = "auto"
    batch_tokens: int | None = None
    dtype: str = "auto"
    compile: bool = False
    keep_tokens: bool = False
    use_existing_tokens: bool = True
    resources: Resources = Resources(gpus=1.0)  # noqa: RUF009 - it cannot be changed
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.use_existing_tokens:
            raise PlanError(
                f"{type(self).__name__} works on tokens that are there: use EmbeddingCreatorStage, which makes them"
            )
        self._pooling = pooling_named(self.pooling)

    def layout(self) -> SentenceLayout:
        return SentenceLayout(read_layout(self.source).transformer, (self._pooling,), (Step("normalize"),))


@dataclass(repr=False)
class SentenceTransformerEmbeddingModelStage(EmbeddingModelStage):
    """Add the embedding of each text of which the tokens are there already, as sentence-transformers computes it.

    The arguments are those of :class:`EmbeddingModelStage`, but ``pooling`` has no effect.

    >>> SentenceTransformerEmbeddingModelStage("organisation/name", "vectors").outputs()[1]
    ['vectors']
    """

    def layout(self) -> SentenceLayout:
        return read_layout(self.source)


def _has_only_onnx(model: Model, layout: SentenceLayout) -> bool:
    """Whether a folder has weights for ONNX Runtime and none for PyTorch."""
    has_others = any(Path(layout.transformer).glob("*.safetensors"))
    return not has_others and (onnx_file(layout.transformer) or onnx_file(model.folder())) is not None
