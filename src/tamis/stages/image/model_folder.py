"""Where the model of a stage for images is: its folder, the folder of several models, or the hub."""

from __future__ import annotations

import os
from dataclasses import replace

from tamis.models.model import Model

__all__ = ["model_in"]


def model_in(model_dir: str | None, model: Model | str, marks: tuple[str, ...]) -> Model:
    """The model that a stage is to load.

    Args:
        model_dir: The folder of the model itself, a folder that has it below under its name, or a folder where what is
            fetched from the hub is kept.
        model: The model: a name on the hub, a folder, or a :class:`~tamis.models.model.Model`.
        marks: Files by which a folder of the model itself is known.

    >>> model_in(None, "organisation/name", ()).name
    'organisation/name'
    """
    wanted = model if isinstance(model, Model) else Model(model)
    if model_dir is None:
        return wanted
    place = os.path.expanduser(model_dir)
    below = os.path.join(place, wanted.name)
    if any(os.path.exists(os.path.join(place, mark)) for mark in marks):
        return replace(wanted, name=os.path.abspath(place))
    if os.path.isdir(below):
        return replace(wanted, name=os.path.abspath(below))
    return replace(wanted, cache_dir=place)
