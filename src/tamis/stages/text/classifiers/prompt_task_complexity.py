"""Tasks and complexity of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tamis.errors import PlanError
from tamis.models.prompt_complexity import COLUMNS, PromptHeads
from tamis.models.published import read_config
from tamis.stages.text.classifiers.base import OUTPUTS, ClassifierStage, outputs_of
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.models.classification import Scorer

__all__ = ["PromptTaskComplexityClassifier"]


@dataclass(kw_only=True, repr=False)
class PromptTaskComplexityClassifier(ClassifierStage):
    """Tell the type of task of English prompts, and how complex they are in six respects.

    It adds eleven columns: ``prompt_complexity_score``, the two likeliest types (``task_type_1``, ``task_type_2``: the
    second is ``"NA"`` if its probability is below 0.1), the probability of the first (``task_type_prob``) and seven
    scores. The complexity is ``0.35 creativity_scope + 0.25 reasoning + 0.15 constraint_ct + 0.15 domain_knowledge +
    0.05 contextual_knowledge + 0.05 number_of_few_shots``.

    The other arguments are those of every :class:`~tamis.stages.text.classifiers.base.ClassifierStage`.

    Args:
        filter_by: Accepted for scripts that name it. It must not be given: the stage
            :class:`~tamis.stages.text.filters.Filter` keeps rows by a column.

    >>> len(PromptTaskComplexityClassifier().outputs()[1])
    11
    """

    model_identifier: str = "nvidia/prompt-task-and-complexity-classifier"
    filter_by: list[str] | None = None
    max_seq_length: int | None = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.filter_by:
            raise PlanError(
                f"{type(self).__name__}(filter_by={self.filter_by!r}): it has no single label to filter by. Put a "
                'stage such as Filter(lambda score: score >= 0.3, "prompt_complexity_score") after it'
            )

    def adds_columns(self) -> list[str]:
        return list(COLUMNS)

    def make_scorer(self, device: str) -> Scorer:
        from tamis.models.classification import load_heads

        self._heads = PromptHeads.of(read_config(self.source), self.source.name)
        return load_heads(self.source, list(self._heads.sizes.values()), device, self.number_type, compile=self.compile)

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        present, outputs = outputs_of(columns[OUTPUTS])
        places = np.zeros(len(present), np.int64)
        places[present] = np.arange(len(outputs))
        rows = pa.array(places, mask=~present)
        made = {name: values.take(rows) for name, values in self._heads.columns(outputs).items()}
        return self.without_tokens(batch).with_columns(made)
