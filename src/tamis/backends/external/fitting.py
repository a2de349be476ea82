"""Fits the demands of stages to a cluster, for engines that keep a worker of every stage at the same time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.backends.external.ray_session import ClusterNode
from tamis.errors import PlanError, ResourceError, did_you_mean

LEAST_CPUS = 0.01
"""The smallest share of a core that a worker asks for: engines do not count zero."""


@dataclass(frozen=True)
class Need:
    """What the workers of one group need for the whole run.

    Args:
        name: The group's stages, in words.
        cpus, gpus: For one worker.
        workers: The least number of workers.
    """

    name: str
    cpus: float
    gpus: float
    workers: int = 1


def scaled_cpus(needs: Sequence[Need], cpus: float, largest: float) -> list[float]:
    """The CPUs to request for one worker of each group if the minimum of all groups must fit.

    Demands that fit are kept; others are reduced in proportion, and the workers share the cores.

    Args:
        needs: The demands.
        cpus: What the cluster has.
        largest: What its largest machine has.

    >>> scaled_cpus([Need("a", 1, 0), Need("b", 1, 0, workers=3)], cpus=2, largest=2)
    [0.5, 0.5]
    >>> scaled_cpus([Need("a", 1, 0), Need("b", 0.5, 0)], cpus=2, largest=2)
    [1.0, 0.5]
    """
    together = sum(max(n.cpus, LEAST_CPUS) * n.workers for n in needs)
    factor = min(1.0, cpus / together) if together else 1.0
    wanted = [max(min(n.cpus * factor, largest), LEAST_CPUS) for n in needs]
    return [w if w == n.cpus else math.floor(w * 1e4) / 1e4 for w, n in zip(wanted, needs, strict=True)]


def check_gpus(needs: Sequence[Need], nodes: Sequence[ClusterNode], engine: str) -> None:
    """Raise if stages ask for more GPUs than the cluster has."""
    asking = [n for n in needs if n.gpus]
    total, largest = sum(n.gpus for n in nodes), max((n.gpus for n in nodes), default=0.0)
    for need in asking:
        if not total:
            raise ResourceError(
                f"stage {need.name!r} asks for a GPU, but the cluster has none that can be used. "
                "`ray status` shows what it has"
            )
        if need.gpus > largest:
            raise ResourceError(
                f"stage {need.name!r} asks for {need.gpus:g} GPUs on one machine, the cluster has at most {largest:g}"
            )
    together = sum(n.gpus * n.workers for n in asking)
    if together > total + 1e-9:
        parts = ", ".join(f"{n.name}: {f'{n.workers} x ' if n.workers > 1 else ''}{n.gpus:g}" for n in asking)
        raise ResourceError(
            f"the stages ask for {together:g} GPUs together ({parts}), the cluster has {total:g}. {engine} keeps a "
            "worker of every stage at the same time: give shares of a card, Resources(gpus=0.5), or fewer workers"
        )


@dataclass(frozen=True)
class Kind:
    """The values that a setting may have, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]


COUNT = Kind("a whole number, 1 or more", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 1)
AMOUNT = Kind("a number, 0 or more", lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v >= 0)
POSITIVE = Kind("a number, more than 0", lambda v: AMOUNT.fits(v) and v > 0)
SHARE = Kind("more than 0 and at most 1", lambda v: AMOUNT.fits(v) and 0 < v <= 1)
FLAG = Kind("True or False", lambda v: isinstance(v, bool))
TABLE = Kind("a dict", lambda v: isinstance(v, Mapping))
ANYTHING = Kind("anything", lambda v: True)


def check_settings(given: Mapping[str, Any], known: Mapping[str, Kind], where: str) -> None:
    """Raise for unknown settings and for invalid values; ``None`` stands for the default.

    >>> known = {"min_workers": COUNT, "max_workers": COUNT}
    >>> check_settings({"max_worker": 2}, known, "stage 'a', ray_stage_spec")
    Traceback (most recent call last):
    ...
    tamis.errors.PlanError: stage 'a', ray_stage_spec: there is no setting 'max_worker'. Did you mean 'max_workers'?
    >>> check_settings({"max_workers": "2"}, known, "stage 'a', ray_stage_spec")
    Traceback (most recent call last):
    ...
    tamis.errors.PlanError: stage 'a', ray_stage_spec: max_workers='2' must be a whole number, 1 or more
    """
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(str(key), list(known)) or f" The settings are {', '.join(known)}."
            raise PlanError(f"{where}: there is no setting {key!r}.{hint}")
        if value is not None and not known[key].fits(value):
            raise PlanError(f"{where}: {key}={value!r} must be {known[key].words}")
