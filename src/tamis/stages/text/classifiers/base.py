"""The base of the classifiers: the parameters they have in common, tokens that are there already, and filtering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import MissingExtraError, ModelError, PlanError, did_you_mean
from tamis.models.model import Model
from tamis.models.published import labels_of, read_config
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stages.text.classifiers.existing_tokens import unpadded_tokens
from tamis.stages.text.models.inference import Inference
from tamis.stages.text.models.model import TextModelStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.models.classification import Scorer
    from tamis.models.token_batches import TokenBatch

__all__ = ["OUTPUTS", "ClassifierStage", "DistributedDataClassifier", "labels_at", "outputs_of"]

OUTPUTS = "outputs"
"""The name under which the numbers of a model travel from :meth:`infer` to :meth:`finish`."""


@dataclass(kw_only=True, repr=False)
class ClassifierStage(TextModelStage):
    """A classifier: one model, which says something of each text.

    Texts are tokenised on CPUs; the model computes on a GPU, or on CPUs where there is none. A text that is longer
    than the limits is cut for the model; the column keeps it whole. An empty text has a result as any other; a null has
    null in every column.

    Args:
        model_identifier: The model: a name on the Hugging Face hub or a folder.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        revision: The commit, branch or tag of the model on the hub.
        text_field: The column with the text.
        max_chars: The most characters of a text that are looked at; all when not given.
        max_seq_length: The most tokens of a text, those around it included; what the model names as its limit when not
            given.
        padding_side, sort_by_length: Accepted for scripts that name them. Rows are sorted by length and, where the
            model allows it, not padded.
        model_inference_batch_size: The most texts of a batch; when not given, only ``batch_tokens`` limits it.
        autocast: Whether the model computes with 16 bits on a GPU. On CPUs it has 32 bits.
        keep_tokens: Whether the tokens stay, in the column ``input_ids``, for another classifier with the same
            tokenizer.
        use_existing_tokens: Whether the tokens are there already, in the column ``input_ids``, where tokens whose entry
            in a column ``attention_mask`` is 0 do not count; or the names of two such columns. They are taken off
            afterwards unless ``keep_tokens``.
        batch_tokens: The most tokens of a batch; a number that suits the device when not given. It is halved when a
            batch does not fit into the memory of a GPU.
        dtype: The numbers of the transformer: ``"auto"``, or a type of PyTorch by name. Scores are computed with 32
            bits.
        compile: Whether ``torch.compile`` makes the model faster, which takes a minute or more at the start.
        resources: What a worker that runs the model needs.
    """

    model_identifier: str = ""
    cache_dir: str | None = None
    hf_token: str | None = None
    revision: str | None = None
    text_field: str = "text"
    max_chars: int | None = None
    max_seq_length: int | None = None
    padding_side: str = "right"
    sort_by_length: bool = True
    model_inference_batch_size: int | None = None
    autocast: bool = True
    keep_tokens: bool = False
    use_existing_tokens: bool | list[str] = False  # type: ignore[assignment]  # more than in the base
    batch_tokens: int | None = None
    dtype: str = "auto"
    compile: bool = False
    resources: Resources = Resources(gpus=1.0)  # noqa: RUF009 - it cannot be changed

    ends_with_token: ClassVar[bool] = True
    """Whether the tokenizer puts a token after each text, which stays when tokens are cut."""

    def __post_init__(self) -> None:
        if not self.model_identifier:
            raise ValueError(
                f"{type(self).__name__}: model_identifier names no model; give a folder or a name on the hub"
            )
        given = self.use_existing_tokens
        if not isinstance(given, bool) and (isinstance(given, str) or len(given) != 2):
            raise ValueError(
                f"{type(self).__name__}(use_existing_tokens={given!r}): give True, or the names of two columns, with "
                "the tokens and with the attention mask"
            )
        for limit in ("model_inference_batch_size", "batch_tokens", "max_chars", "max_seq_length"):
            number = getattr(self, limit)
            if number is not None and number < 1:
                raise ValueError(f"{type(self).__name__}({limit}={number}): must be at least 1")
        self.batch_texts = self.model_inference_batch_size

    # -- what a classifier defines ------------------------------------------------------------------------------------

    def make_scorer(self, device: str) -> Scorer:
        """Load the model."""
        raise NotImplementedError(f"{type(self).__name__} has no make_scorer()")

    # -- the same for all ---------------------------------------------------------------------------------------------

    @property
    def source(self) -> Model:
        return Model(self.model_identifier, self.revision, self.cache_dir, self.hf_token)

    def models(self) -> list[Model]:
        """All the models that are needed."""
        return [self.source]

    def fetch(self) -> None:
        for model in self.models():
            model.fetch()
            model.check()

    @property
    def number_type(self) -> str:
        """The numbers that the model computes with."""
        return self.dtype if self.autocast or self.dtype != "auto" else "float32"

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def load(self, device: str) -> None:
        self._scorer = self.make_scorer(device)

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        return {OUTPUTS: self._scorer(tokens)}

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.adds_columns()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self._existing[:1] if self.use_existing_tokens is True else self._existing) or [
            self.text_field
        ]

    def text_columns(self) -> list[str]:
        return [] if self.use_existing_tokens else [self.text_field]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        after = super().columns_after(available)
        return after if after is None or self.keep_tokens else after - frozenset(self._existing)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if not self.use_existing_tokens:
            return super().decompose()
        return [Inference(self, self._existing[0])]

    def read_tokens(self, batch: DocumentBatch, tokens_field: str) -> pa.ChunkedArray:
        if not self.use_existing_tokens:
            return super().read_tokens(batch, tokens_field)
        ids, mask = self._existing
        is_there = self.use_existing_tokens is not True or mask in batch.get_columns()
        found = unpadded_tokens(
            batch,
            ids,
            mask if is_there else None,
            max_seq_length=self.max_seq_length,
            ends_with_token=self.ends_with_token,
            name=self.name,
        )
        self._check_tokens(found)
        return found

    def without_tokens(self, batch: DocumentBatch) -> DocumentBatch:
        """A batch without the tokens that were there, unless they stay."""
        gone = [] if self.keep_tokens else [name for name in self._existing if name in batch.get_columns()]
        return batch.with_same_rows(batch.data.drop_columns(gone)) if gone else batch

    @property
    def _existing(self) -> list[str]:
        """The columns with tokens and their mask, if they are there already."""
        if self.use_existing_tokens is True:
            return [self.tokens_field, "attention_mask"]
        return list(self.use_existing_tokens or [])

    def _check_tokens(self, tokens: pa.ChunkedArray) -> None:
        """Refuse tokens of another vocabulary, which a GPU would answer with the end of the worker."""
        words, largest = self._scorer.vocab_size, pc.max(pc.list_flatten(tokens)).as_py() or 0
        if largest >= words:
            raise ValueError(
                f"{self.name}: the existing tokens are not those of the model {self.source.name}: there is a token "
                f"{largest}, and its vocabulary has {words}"
            )

    # -- filtering ----------------------------------------------------------------------------------------------------

    def check_labels(self, wanted: Sequence[Any] | None, labels: Sequence[Any] | None) -> None:
        """Refuse labels to filter by that the classifier never gives.

        Args:
            wanted: The labels to keep.
            labels: Those that the classifier gives; ``None`` where they are not known yet.
        """
        if wanted is None:
            return
        if isinstance(wanted, str) or not wanted:
            raise PlanError(f"{self.name}(filter_by={wanted!r}): give a list of labels, such as ['High', 'Medium']")
        for label in wanted:
            if labels is not None and label not in labels:
                raise PlanError(
                    f"{self.name}(filter_by={list(wanted)!r}): it has no label {label!r}, only "
                    f"{', '.join(map(str, labels))}.{did_you_mean(str(label), map(str, labels))}"
                )


@dataclass(kw_only=True, repr=False)
class DistributedDataClassifier(ClassifierStage):
    """Label each text with a classifier, and keep the texts with some labels only, if wanted.

    The model is one of the layout of NVIDIA's classifiers (a transformer under ``model``, a linear layer ``fc`` for its
    first token), or any that ``AutoModelForSequenceClassification`` of ``transformers`` loads. The label is the one
    with the highest probability.

    The other arguments are those of every :class:`ClassifierStage`.

    Args:
        model_identifier: The model: a folder or a name on the Hugging Face hub.
        label_field: The column that gets the label.
        score_field: The column that gets the probabilities of all labels, in the model's order; none if not given.
        filter_by: Labels. Rows with another one are dropped; the score in the drop ledger is the probability of these
            labels together.

    >>> DistributedDataClassifier(model_identifier="./my-classifier", score_field="probabilities").outputs()[1]
    ['preds', 'probabilities']
    """

    label_field: str = "preds"
    score_field: str | None = None
    filter_by: list[str] | None = None

    def adds_columns(self) -> list[str]:
        return [self.label_field, *([] if self.score_field is None else [self.score_field])]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if self.filter_by is not None:
            self.check_labels(self.filter_by, self._labels_on_disk())
        return super().decompose()

    def make_scorer(self, device: str) -> Scorer:
        from tamis.models.classification import load_classifier

        self._labels = labels_of(read_config(self.source), self.source.name)
        self.check_labels(self.filter_by, self._labels)
        return load_classifier(self.source, device, self.number_type, compile=self.compile)

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        return {OUTPUTS: super().infer(tokens)[OUTPUTS].softmax(dim=1)}

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        present, shares = outputs_of(columns[OUTPUTS])
        chosen = shares.argmax(axis=1)
        made: dict[str, Any] = {self.label_field: labels_at(self._labels, chosen, present)}
        if self.score_field is not None:
            made[self.score_field] = columns[OUTPUTS]
        labelled = self.without_tokens(batch).with_columns(made)
        if self.filter_by is None:
            return labelled
        wanted = [self._labels.index(label) for label in self.filter_by]
        kept = np.zeros(len(present), np.bool_)
        kept[present] = np.isin(chosen, wanted)
        score = np.zeros(len(present))
        score[present] = shares[:, sorted(set(wanted))].sum(axis=1)
        reason = f"{self.label_field} is not {' or '.join(self.filter_by)}"
        return labelled.keep(kept, reason, pa.array(score, mask=~present))

    def _labels_on_disk(self) -> list[str] | None:
        """The labels, if the model is on this machine already."""
        source = self.source
        try:
            source.folder()
        except (ModelError, MissingExtraError):
            if source.is_folder:
                raise
            return None
        return labels_of(read_config(source), source.name)


def outputs_of(column: pa.Array) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Which rows have outputs, and the outputs of those rows.

    >>> outputs_of(pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)))
    (array([ True, False]), array([[1., 2.]], dtype=float32))
    """
    present = numpy_array(column.is_valid())
    return present, numpy_array(column.flatten()).reshape(-1, column.type.list_size)


def labels_at(labels: Sequence[Any], chosen: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """A column of labels: for rows that have one, by its number.

    >>> labels_at(["a", "b"], np.array([1, 0]), np.array([True, False, True])).to_pylist()
    ['b', None, 'a']
    """
    places = np.zeros(len(present), np.int64)
    places[present] = chosen
    return pa.array(labels).take(pa.array(places, mask=~present))
