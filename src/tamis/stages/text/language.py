"""A stage that writes down the language and the script of each document, so that others can go by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tamis.kernels.scripts import dominant_scripts
from tamis.models.fasttext import check_model_file
from tamis.models.language import MAX_BYTES, built_in_languages, load_language_model
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.tasks import DocumentBatch

__all__ = ["AddLanguage"]


@dataclass(repr=False)
class AddLanguage(TextStage):
    """Add columns with the language of each document and how sure that is. Needs ``tamis[language]``.

    The built-in model gives BCP 47 codes, ``und`` where the language cannot be told, and as certainty the share of the
    text that is in the language. Nothing is dropped; :class:`tamis.stages.flow.Route` sends documents on by language.

    Args:
        text_field: The column with the text. A null counts as an empty text.
        language_field: The column for the code.
        score_field: The column for how sure it is, 0 to 1, if that is wanted.
        script_field: The column for the ISO 15924 code of the script most characters belong to, if that is wanted.
        model_path: A fastText model (``.bin`` or ``.ftz``), such as ``lid.176.ftz``, instead of the built-in model.
        max_bytes: How much of each text is looked at for its language, in bytes from its beginning; ``None`` for all.

    >>> batch = DocumentBatch({"text": ["Où est la bibliothèque municipale ?", ""]})
    >>> AddLanguage(script_field="script").process(batch).data.drop_columns("text").to_pylist()[0]
    {'language': 'fr', 'language_score': 0.97, 'script': 'Latn'}
    """

    text_field: str = "text"
    language_field: str = "language"
    score_field: str | None = "language_score"
    script_field: str | None = None
    model_path: str | None = None
    max_bytes: int | None = MAX_BYTES

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.max_bytes is not None and self.max_bytes < 1:
            raise ValueError(f"AddLanguage(max_bytes={self.max_bytes}): must be at least 1, or None for whole texts")
        written = self.outputs()[1]
        if len(set(written)) < len(written) or self.text_field in written:
            raise ValueError(f"AddLanguage: columns get in each other's way: {', '.join([self.text_field, *written])}")
        if self.model_path is None:
            built_in_languages()  # says which package is missing before anything runs

    def outputs(self) -> tuple[list[str], list[str]]:
        fields = (self.language_field, self.score_field, self.script_field)
        return ["data"], [field for field in fields if field is not None]

    def adds_columns(self) -> list[str]:
        return self.outputs()[1]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        if self.model_path is not None:
            check_model_file(self.model_path, self.name)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        load_language_model(self.model_path, self.max_bytes)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        column = self.texts(task)
        codes, certain = load_language_model(self.model_path, self.max_bytes).identify(column)
        found = {self.language_field: codes}
        if self.score_field is not None:
            found[self.score_field] = pa.array(certain)
        if self.script_field is not None:
            found[self.script_field] = dominant_scripts(column)[0]
        return task.with_columns(found)
