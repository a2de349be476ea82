"""One batch of rows as several classes: text, images, audio and video are views of the same table."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, TypeVar

from tamis.tasks.base import Task
from tamis.tasks.document import DocumentBatch
from tamis.tasks.table import TableTask

__all__ = ["as_taken", "can_be_taken", "view_of"]

V = TypeVar("V", bound=TableTask)


def view_of(batch: TableTask, kind: type[V]) -> V:
    """The same rows, with their names and everything else, as a batch of another class.

    >>> from tamis.tasks import DocumentBatch, ImageBatch
    >>> images = view_of(DocumentBatch({"image_path": ["a.jpg"]}).named("list"), ImageBatch)
    >>> type(images).__name__, images.names.to_texts()
    ('ImageBatch', ['list:0'])
    """
    missing = [f.name for f in _own_fields(kind) if not hasattr(batch, f.name) and not _has_default(f)]
    if missing:
        raise TypeError(f"{kind.__name__} cannot be a view of a {type(batch).__name__}: it needs {', '.join(missing)}")
    made = object.__new__(kind)
    for f in _own_fields(kind):
        if f.default_factory is not dataclasses.MISSING:
            made.__dict__[f.name] = f.default_factory()
        elif f.default is not dataclasses.MISSING:
            made.__dict__[f.name] = f.default
    made.__dict__.update(copy.copy(batch).__dict__)
    return made


def as_taken(task: Task[Any], taken: Any) -> Task[Any]:
    """A task as a stage takes it: a batch of rows becomes a view of the class that the stage declares.

    A stage that takes :class:`DocumentBatch` works on columns and takes every batch of rows as it is.
    """
    kinds = taken if isinstance(taken, tuple) else (taken,)
    if not isinstance(task, TableTask) or any(isinstance(task, kind) or kind is DocumentBatch for kind in kinds):
        return task
    views = [kind for kind in kinds if issubclass(kind, TableTask) and not _required(kind)]
    return view_of(task, views[0]) if views else task


def can_be_taken(given: Any, taken: Any) -> bool:
    """Whether a stage that takes one class of task can be given another.

    ``Task`` alone says nothing. Documents can be a view of any other class of rows, and any of these can be a
    document; images cannot be audio.
    """
    if given is Task or taken is Task or issubclass(given, taken) or issubclass(taken, given):
        return True
    is_rows = issubclass(given, TableTask) and issubclass(taken, TableTask)
    return is_rows and (issubclass(given, DocumentBatch) or issubclass(taken, DocumentBatch))


def _own_fields(kind: type[TableTask]) -> list[dataclasses.Field[Any]]:
    known = {f.name for f in dataclasses.fields(TableTask)}
    return [f for f in dataclasses.fields(kind) if f.name not in known]


def _required(kind: type[TableTask]) -> bool:
    return any(not _has_default(f) for f in _own_fields(kind))


def _has_default(f: dataclasses.Field[Any]) -> bool:
    return f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
