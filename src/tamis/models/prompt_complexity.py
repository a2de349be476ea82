"""What the heads of the prompt task and complexity classifier say: types of tasks, scores, and one score of them all.

The definitions are those of the model's card (``nvidia/prompt-task-and-complexity-classifier``); weights, divisors and
names of types come with the model, in its ``config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import ModelError

__all__ = ["COLUMNS", "COMPLEXITY", "PromptHeads"]

COMPLEXITY: Final = {
    "creativity_scope": 0.35,
    "reasoning": 0.25,
    "constraint_ct": 0.15,
    "domain_knowledge": 0.15,
    "contextual_knowledge": 0.05,
    "number_of_few_shots": 0.05,
}
"""How much each score counts in ``prompt_complexity_score``."""

COLUMNS: Final = (
    "prompt_complexity_score",
    "task_type_1",
    "task_type_2",
    "task_type_prob",
    "creativity_scope",
    "reasoning",
    "contextual_knowledge",
    "number_of_few_shots",
    "domain_knowledge",
    "no_label_reason",
    "constraint_ct",
)

_TYPE: Final = "task_type"
_SCORES: Final = COLUMNS[4:]
_NO_SECOND: Final = "NA"
_LEAST_SECOND: Final = 0.1
_LEAST_SHOTS: Final = 0.05


@dataclass(frozen=True)
class PromptHeads:
    """The heads of the model, in their order.

    Args:
        sizes: How many outputs the head of each target has.
        types: The names of the types of tasks.
        weights: For each score, what each output counts.
        divisors: For each score, what the weighted sum is divided by.
    """

    sizes: Mapping[str, int]
    types: tuple[str, ...]
    weights: Mapping[str, NDArray[np.float64]]
    divisors: Mapping[str, float]

    @classmethod
    def of(cls, config: Mapping[str, Any], name: str) -> PromptHeads:
        """The heads that the ``config.json`` of a model names.

        Args:
            config: ``target_sizes``, ``task_type_map``, ``weights_map`` and ``divisor_map`` are read.
            name: The name of the model, for error messages.
        """
        try:
            sizes = {str(target): int(size) for target, size in config["target_sizes"].items()}
            types = tuple(str(config["task_type_map"][str(number)]) for number in range(sizes[_TYPE]))
            weights = {score: np.array(config["weights_map"][score], np.float64) for score in _SCORES}
            divisors = {score: float(config["divisor_map"][score]) for score in _SCORES}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(
                f"the model {name} is not a prompt task and complexity classifier: its config.json needs target_sizes, "
                f"task_type_map, weights_map and divisor_map for {_TYPE}, {', '.join(_SCORES)} ({error!r})"
            ) from None
        wrong = [score for score in _SCORES if weights[score].shape != (sizes.get(score),)]
        if wrong or len(types) < 2:
            raise ModelError(
                f"the model {name}: target_sizes and weights_map of its config.json differ for {wrong[:1]}"
            )
        return cls(sizes, types, weights, divisors)

    def columns(self, outputs: NDArray[np.float32]) -> dict[str, pa.Array]:
        """The columns for rows of outputs, those of one head after those of another."""
        ends = np.cumsum(list(self.sizes.values()))[:-1]
        parts = dict(zip(self.sizes, np.split(outputs, ends, axis=1), strict=True))
        made: dict[str, Any] = dict(zip(COLUMNS[1:4], self._types(parts[_TYPE]), strict=True))
        for score in _SCORES:
            sums = (_shares(parts[score]) * self.weights[score]).sum(axis=1)
            made[score] = np.round(sums / self.divisors[score], 4)
        shots = made["number_of_few_shots"]
        made["number_of_few_shots"] = np.where(shots >= _LEAST_SHOTS, shots, 0.0)
        whole = sum(share * made[score] for score, share in COMPLEXITY.items())
        made["prompt_complexity_score"] = np.round(whole, 5)
        return {name: pa.array(made[name]) for name in COLUMNS}

    def _types(self, outputs: NDArray[np.float32]) -> tuple[pa.Array, pa.Array, NDArray[np.float64]]:
        """The likeliest type, the second likeliest, and the probability of the first."""
        shares = _shares(outputs)
        order = np.argsort(-outputs, axis=1, kind="stable")[:, :2]
        likely = np.round(np.take_along_axis(shares, order, axis=1), 3)
        names = pa.array([*self.types, _NO_SECOND])
        second = np.where(likely[:, 1] < _LEAST_SECOND, len(self.types), order[:, 1])
        return names.take(pa.array(order[:, 0])), names.take(pa.array(second)), likely[:, 0]


def _shares(outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """The outputs of a head as probabilities."""
    raised = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)
    return shares
