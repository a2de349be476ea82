"""Where tamis keeps what ``nemo_curator`` keeps somewhere else.

All names are without the package: ``"tasks"`` is ``nemo_curator.tasks`` on the left and ``tamis.tasks`` on the right.
A module that is not here is looked for under its own name.
"""

from __future__ import annotations

from typing import Final

_FILTERS: Final = ("stages.text.filters",)
_MODIFIERS: Final = ("stages.text.modifiers",)

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "tasks.file_group": ("tasks",),
    "tasks.tasks": ("tasks",),
    "utils.performance_utils": ("tasks",),
    "stages.text.filters.doc_filter": _FILTERS,
    "stages.text.filters.heuristic": _FILTERS,
    "stages.text.filters.heuristic.repetition": _FILTERS,
    "stages.text.filters.heuristic.string": _FILTERS,
    "stages.text.filters.heuristic_filter": _FILTERS,
    "stages.text.modifiers.doc_modifier": _MODIFIERS,
    "stages.text.modifiers.modifier": _MODIFIERS,
    "stages.text.modifiers.unicode_reformatter": _MODIFIERS,
    "stages.text.modules": _FILTERS + _MODIFIERS,
    "stages.text.modules.modifier": _MODIFIERS,
    "stages.text.modules.score_filter": _FILTERS,
}
"""Where the names of a module are, beside the module of the same name if there is one."""

NAMES: Final[dict[tuple[str, str], str]] = {
    ("tasks", "_EmptyTask"): "EmptyTask",
    ("tasks.tasks", "_EmptyTask"): "EmptyTask",
    ("utils.performance_utils", "StagePerfStats"): "StagePerf",
}
"""Names of a module that are called something else."""


def candidates(module: str) -> list[str]:
    """The tamis modules that may have the names of a module, the best first.

    >>> candidates("tasks.file_group")
    ['tamis.tasks', 'tamis.tasks.file_group']
    """
    return [f"tamis.{place}" if place else "tamis" for place in (*MODULES.get(module, ()), module)]


def is_only_a_parent(module: str) -> bool:
    """Whether tamis has something for modules below this one, if not for itself.

    >>> is_only_a_parent("utils"), is_only_a_parent("utils.performance_utils")
    (True, False)
    """
    return any(known.startswith(f"{module}.") for known in MODULES)
