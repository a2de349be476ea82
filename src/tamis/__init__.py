"""tamis: a fine sieve for training data.

Three ideas carry the whole: a *task* is a batch of data, a *stage* turns a task into none, one or many, a *pipeline*
is a list of stages. The names below load what they need when they are first used, so ``import tamis`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "CompositeStage": "tamis.stages.base",
    "DocumentBatch": "tamis.tasks",
    "EmptyTask": "tamis.tasks",
    "FileGroup": "tamis.tasks",
    "LocalExecutor": "tamis.backends.local",
    "Pipeline": "tamis.pipeline",
    "ProcessingStage": "tamis.stages.base",
    "Resources": "tamis.stages.resources",
    "Task": "tamis.tasks",
    "processing_stage": "tamis.stages.function_decorators",
}

__all__ = [
    "CompositeStage",
    "DocumentBatch",
    "EmptyTask",
    "FileGroup",
    "LocalExecutor",
    "Pipeline",
    "ProcessingStage",
    "Resources",
    "Task",
    "__version__",
    "processing_stage",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tamis' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
