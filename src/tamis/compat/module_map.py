"""Where tamis has the names that ``nemo_curator`` has in another module.

All names are without the package: ``"tasks"`` is ``nemo_curator.tasks`` on the left and ``tamis.tasks`` on the right.
A module that is not listed here is looked for under its own name.
"""

from __future__ import annotations

from typing import Final

_FILTERS: Final = ("stages.text.filters",)
_CODE_FILTERS: Final = ("stages.text.filters.code",)
_MODIFIERS: Final = ("stages.text.modifiers",)
_COLUMNS: Final = ("stages.text.columns",)
_SEGMENTS: Final = ("stages.text.segments",)
_MODIFIER_MODULES: Final = (
    "c4",
    "line_remover",
    "markdown_remover",
    "newline_normalizer",
    "quotation_remover",
    "slicer",
    "url_remover",
)

MODULES: Final[dict[str, tuple[str, ...]]] = {
    "backends.base": ("compat.executors",),
    "backends.slurm_array": ("compat.slurm_array",),
    "backends.utils": ("compat.executors",),
    "config.run": ("compat.config",),
    "core.constants": ("compat.constants",),
    "pipeline": ("compat.pipeline",),
    "pipeline.pipeline": ("compat.pipeline",),
    "tasks": ("compat.batch", "compat.images"),
    "tasks.audio_task": ("tasks",),
    "tasks.document": ("compat.batch",),
    "tasks.file_group": ("tasks",),
    "tasks.image": ("compat.images",),
    "tasks.tasks": ("tasks",),
    "tasks.utils": ("compat.workflow",),
    "utils.client_utils": ("compat.files",),
    "utils.file_utils": ("compat.files",),
    "utils.hash_utils": ("compat.files",),
    "utils.merge_file_prefixes": ("compat.files",),
    "utils.split_large_files": ("compat.files",),
    "utils.performance_utils": ("tasks",),
    "stages.deduplication.fuzzy.utils": ("stages.deduplication.fuzzy.columns",),
    "stages.deduplication.shuffle_utils.stage": ("stages.shuffle",),
    "stages.text.filters.doc_filter": _FILTERS,
    "stages.text.filters.fasttext.fasttext_filters": _FILTERS,
    "stages.text.filters.heuristic": _FILTERS,
    "stages.text.filters.heuristic.code": _CODE_FILTERS,
    "stages.text.filters.heuristic.code.code": _CODE_FILTERS,
    "stages.text.filters.heuristic.repetition": _FILTERS,
    "stages.text.filters.heuristic.repetition.repetition": _FILTERS,
    "stages.text.filters.heuristic.string": _FILTERS,
    "stages.text.filters.heuristic_filter": _FILTERS,
    "stages.text.filters.histogram.histogram": _FILTERS,
    "stages.text.filters.token.token_count": _FILTERS,
    "stages.text.modifiers.doc_modifier": _MODIFIERS,
    "stages.text.modifiers.modifier": _MODIFIERS,
    "stages.text.modifiers.heuristic": _MODIFIERS,
    "stages.text.modifiers.string": _MODIFIERS,
    "stages.text.modifiers.fasttext.fasttext_label": _MODIFIERS,
    "stages.text.modifiers.unicode": _MODIFIERS,
    "stages.text.modifiers.unicode.reformatter": _MODIFIERS,
    "stages.text.modifiers.unicode.unicode_reformatter": _MODIFIERS,
    "stages.text.modifiers.unicode_reformatter": _MODIFIERS,
    # One file for each modifier; versions of NeMo Curator have them in different folders.
    **{
        f"stages.text.modifiers{folder}.{module}": _MODIFIERS
        for folder in ("", ".heuristic", ".string")
        for module in _MODIFIER_MODULES
    },
    "stages.text.modules": _FILTERS + _MODIFIERS + _COLUMNS + _SEGMENTS,
    "stages.text.modules.add_id": _COLUMNS,
    "stages.text.modules.joiner": _SEGMENTS,
    "stages.text.modules.modifier": _MODIFIERS,
    "stages.text.modules.score_filter": _FILTERS,
    "stages.text.modules.splitter": _SEGMENTS,
    "stages.text.utils.text_utils": ("stages.text.words",),
}
"""Where the names of a module are, in addition to the module of the same name.

``compat`` has what only scripts for NeMo Curator need: names of its ``utils``, and classes that show batches as pandas
frames.
"""

NAMES: Final[dict[tuple[str, str], str]] = {
    ("tasks", "_EmptyTask"): "EmptyTask",
    ("tasks.tasks", "_EmptyTask"): "EmptyTask",
    ("utils.performance_utils", "StagePerfStats"): "StagePerf",
}
"""Names that are different in tamis."""


def candidates(module: str) -> list[str]:
    """The tamis modules that may have the names of a module, the best first.

    >>> candidates("tasks.file_group")
    ['tamis.tasks', 'tamis.tasks.file_group']
    """
    return [f"tamis.{place}" if place else "tamis" for place in (*MODULES.get(module, ()), module)]


def is_only_a_parent(module: str) -> bool:
    """Whether tamis has names for modules below this one.

    >>> is_only_a_parent("utils"), is_only_a_parent("utils.performance_utils")
    (True, False)
    """
    return any(known.startswith(f"{module}.") for known in MODULES)
